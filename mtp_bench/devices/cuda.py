"""The ``cuda`` device: a GPU, measured. Times from CUDA events and the host clock, syncs from PyTorch itself."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from mtp_bench import ranges
from mtp_bench.devices.interface import GraphCapture, Observation, Step, Window
from mtp_bench.devices.nvml import Nvml
from mtp_bench.errors import InputError
from mtp_bench.syncs import Sync
from mtp_bench.syncs.callsite import user_frame_of
from mtp_bench.syncs.torch_detector import TorchRecorder, record_torch_syncs

_MAX_WARM_UP_STEPS = 12
_CALIBRATION_CYCLES = 2_000_000


@dataclass
class CudaDevice:
    """GPU ``index`` as PyTorch numbers them."""

    index: int = 0
    spec: str = field(init=False)
    modelled: bool = field(default=False, init=False)
    detectors: tuple[str, ...] = field(default=("torch",), init=False)
    detectors_linger: bool = field(init=False)

    def __post_init__(self) -> None:
        self.spec = f"cuda:{self.index}"
        # Nsight Systems captures one process and sees what the callbacks see, so they stay off under it.
        self.detectors_linger = not ranges.profiled()

    @classmethod
    def from_spec(cls, rest: str) -> CudaDevice:
        """Return the GPU that ``cuda:rest`` names. InputError where there is none.

        Where ``rest`` is empty it is torchrun's ``LOCAL_RANK``, or 0 outside torchrun or where each rank sees one GPU.
        """
        spec = f"cuda:{rest}" if rest else "cuda"
        if not torch.cuda.is_available():
            why = "this PyTorch is a CPU build" if torch.version.cuda is None else "check `nvidia-smi` and its driver"
            raise InputError(
                f"--device {spec}: no GPU is visible to PyTorch ({why}); use --device sim for a model of one"
            )
        count = torch.cuda.device_count()
        if not (rest or "0").isdecimal() or int(rest or 0) >= count:
            known = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
            raise InputError(f"--device {spec}: no such GPU; PyTorch sees {known}")
        return cls(int(rest) if rest else _local_rank() % count)

    @property
    def torch_device(self) -> torch.device:
        """Where tensors of this device live."""
        return torch.device("cuda", self.index)

    def describe(self) -> dict[str, Any]:
        """``environment.device`` of run.json."""
        return {
            "kind": "cuda",
            "name": torch.cuda.get_device_name(self.index),
            "modelled": False,
            "driver": self._nvml.driver_version,
            "cuda": torch.version.cuda,
        }

    def backend(self) -> str:
        """NCCL for the GPU's tensors: Gloo would wait for the stream at each collective."""
        return "cpu:gloo,cuda:nccl" if torch.distributed.is_nccl_available() else "gloo"

    @contextmanager
    def session(self) -> Iterator[None]:
        """Make this GPU the current one. InputError where the simulated device is registered in this process."""
        if _sim_is_registered():
            raise InputError(
                "--device cuda: this process has used the simulated device, and PyTorch allows one accelerator a "
                "process; use cuda in a process of its own"
            )
        before = torch.cuda.current_device()
        torch.cuda.set_device(self.index)
        try:
            yield
        finally:
            torch.cuda.set_device(before)

    def real_values(self) -> AbstractContextManager[None]:
        """Nothing to do: tensors on a GPU always hold real values."""
        return nullcontext()

    def record_syncs(self) -> AbstractContextManager[list[Sync]]:
        """Collect the syncs of what runs inside."""
        return record_torch_syncs()

    def warm_up(self, step: Step) -> None:
        """Run ``step`` until one more takes no memory from the driver, twice at least."""
        reserved = -1
        for done in range(_MAX_WARM_UP_STEPS):
            step()
            torch.cuda.synchronize()
            before, reserved = reserved, torch.cuda.memory_stats(self.index).get("segment.all.allocated", 0)
            if done >= 2 and reserved == before:
                break

    def observe(self, step: Step, lead_ms: float = 0.0) -> Observation:
        """Run ``step`` once and record its syncs; nothing is timed here, since the detector slows the host."""
        self._queue(lead_ms)
        with TorchRecorder(callbacks=self.detectors_linger).recording() as recorder:
            step()
        torch.cuda.synchronize()
        return Observation(tuple(recorder.syncs), recorder.ops)

    def graph_capture(self, step: Step) -> GraphCapture:
        """Capture ``step`` in a CUDA graph, which is not run.

        Where that fails, the line is the error's innermost that is neither PyTorch's nor ours. Backward runs on the
        calling thread here, so that a line of a Python backward is found too; the operator is the detector's.
        """
        self._run_on_capture_stream(step)
        recorder = TorchRecorder()
        cause: Exception | None = None
        try:
            with self._graph(), recorder.recording():
                try:
                    step()
                except Exception as error:
                    cause = error  # ending an invalid capture raises again, over this one
                    raise
        except Exception as error:
            return _refusal(cause or error, recorder.syncs)
        finally:
            cause = None
            gc.collect()  # the traceback of a refusal holds the tensors of the step that was cut off
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()  # that of the capture stream is no memory of the step
        return GraphCapture(True)

    def peak_memory_bytes(self, step: Step) -> int:
        """Peak of the bytes that tensors hold during one step, those that were there before included."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats(self.index)
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated(self.index)

    def export_trace(self, step: Step, path: str) -> None:
        """Write a Kineto trace of one step to ``path``."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True) as profiler:
            step()
            torch.cuda.synchronize()
        profiler.export_chrome_trace(path)

    def time_window(self, step: Step, steps: int, lead_ms: float = 0.0) -> Window:
        """Time ``steps`` back-to-back steps, with ``lead_ms`` of spinning queued before each and left out of the time.

        One more step runs first and is dropped. The host waits before the window and after it, never inside. A step's
        time is between the events at its ends, so it holds the time in which the device was idle too. Its lead is how
        much later the device reached the first of these events than the host began to enqueue the step: device time is
        placed on the host's clock by an event that the host waited for just before the window.
        """
        cycles = self._cycles(lead_ms)
        starts, ends = _events(steps + 1), _events(steps + 1)
        host_starts, host_ends = [0] * (steps + 1), [0] * (steps + 1)
        with _no_garbage_collection():
            origin, origin_ns = _aligned_event()
            for k in range(steps + 1):
                if cycles:
                    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
                starts[k].record()
                host_starts[k] = time.perf_counter_ns()
                step()
                host_ends[k] = time.perf_counter_ns()
                ends[k].record()
            torch.cuda.synchronize()
        clock = self._nvml.clock()
        timed = range(1, steps + 1)
        # Without spinning between them, from boundary to boundary, so that what lies between two steps is not lost.
        apart = sum(starts[k].elapsed_time(ends[k]) for k in timed)
        total_ms = apart if cycles else ends[0].elapsed_time(ends[steps])
        leads = [origin_ns + origin.elapsed_time(starts[k]) * 1e6 - host_starts[k] for k in timed]
        return Window(
            step_ns=total_ms * 1e6 / steps,
            host_ns=sum(host_ends[k] - host_starts[k] for k in timed) / steps,
            lead_ns=max(0.0, statistics.median(leads)),
            sm_clock_mhz=clock.sm_mhz,
            throttled=clock.throttled,
        )

    @cached_property
    def _nvml(self) -> Nvml:
        return Nvml.of(self.index)

    @cached_property
    def _cycles_per_ms(self) -> float:
        """Cycles of the spin kernel in a millisecond, once the clock has gone up. The measured lead is what counts."""
        rates = []
        for _ in range(5):
            start, end = _events(2)
            start.record()
            torch.cuda._sleep(_CALIBRATION_CYCLES)  # type: ignore[no-untyped-call]
            end.record()
            end.synchronize()
            rates.append(_CALIBRATION_CYCLES / start.elapsed_time(end))
        return float(statistics.median(rates[2:]))

    def _cycles(self, lead_ms: float) -> int:
        return round(lead_ms * self._cycles_per_ms) if lead_ms else 0

    def _queue(self, lead_ms: float) -> None:
        torch.cuda.synchronize()
        if lead_ms:
            torch.cuda._sleep(self._cycles(lead_ms))  # type: ignore[no-untyped-call]

    @cached_property
    def _capture_stream(self) -> Any:
        """One stream for all captures: cuBLAS keeps a workspace of its own for each stream."""
        return torch.cuda.Stream(self.index)  # type: ignore[no-untyped-call]

    def _run_on_capture_stream(self, step: Step) -> None:
        """A capture cannot create what the first step on a stream creates, such as handles and workspaces."""
        current = torch.cuda.current_stream()
        self._capture_stream.wait_stream(current)
        with torch.cuda.stream(self._capture_stream):
            step()
        current.wait_stream(self._capture_stream)

    @contextmanager
    def _graph(self) -> Iterator[None]:
        """``torch.cuda.graph``, and what PyTorch leaves undone where the capture fails."""
        current, pool = torch.cuda.current_stream(), torch.cuda.graph_pool_handle()
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=pool, stream=self._capture_stream):
                yield
        except BaseException:
            torch.cuda.set_stream(current)
            self._leave_failed_capture(pool)
            raise

    def _leave_failed_capture(self, pool: Any) -> None:
        try:
            torch._C._cuda_endAllocateToPool(self.index, pool)
        except RuntimeError:
            return  # this version of PyTorch has cleaned up by itself
        torch._C._cuda_releasePool(self.index, pool)
        # It has also left the random generators in capture mode; the end of a capture that succeeds takes them out.
        one = torch.zeros(1, device=self.torch_device)
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=self._capture_stream):
            one.zero_()


def _local_rank() -> int:
    rank = os.environ.get("LOCAL_RANK", "")
    return int(rank) if rank.isdecimal() else 0


def _refusal(error: Exception, syncs: list[Sync]) -> GraphCapture:
    site = user_frame_of(error)
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    if syncs and site is not None and syncs[-1].stack[:1] == (site,):
        reason = f"{syncs[-1].op}: {reason}"
    return GraphCapture(False, site, reason)


def _events(count: int) -> list[torch.cuda.Event]:
    return [torch.cuda.Event(enable_timing=True) for _ in range(count)]  # type: ignore[no-untyped-call]


def _aligned_event() -> tuple[torch.cuda.Event, int]:
    """An event that has just passed on an idle device, and the host's clock then (late by a wait's return)."""
    torch.cuda.synchronize()
    (event,) = _events(1)
    event.record()
    event.synchronize()
    return event, time.perf_counter_ns()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collection in the middle of a step would be measured as the step's."""
    enabled = gc.isenabled()
    gc.collect(1)
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


def _sim_is_registered() -> bool:
    return torch._C._get_privateuse1_backend_name() == "sim"
