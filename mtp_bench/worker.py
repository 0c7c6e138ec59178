"""The process that measures: ``python -m mtp_bench.worker IN OUT`` reads a job on descriptor IN and answers on OUT.

It holds all that can die (the device, Megatron, the variants), so that an abort is one variant's result and the parent
keeps the rest.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from mtp_bench import ranges
from mtp_bench.devices import Device, Observation, Window, resolve
from mtp_bench.errors import InputError, readable
from mtp_bench.job import Job, receive, send
from mtp_bench.measure import STEPS_PER_WINDOW, Policy, Samples, interleave
from mtp_bench.megatron import integrity, isolated_state
from mtp_bench.preserved import preserved_process_state
from mtp_bench.ranks.device import device_of_rank
from mtp_bench.results import Syncs
from mtp_bench.signals import end_with_parent
from mtp_bench.syncs.callsite import user_frame_of
from mtp_bench.variants import is_users, load
from mtp_bench.workloads import Workload

if TYPE_CHECKING:
    from mtp_bench.variants import Variant

# Enough for the syncs of a step; a capture of as many as times need would have millions of API calls. The same on all
# ranks of a job, whose collectives must match.
_PROFILED_WINDOWS = 5
_RANKED_WINDOWS = 20  # as many on every rank

Send = Callable[[dict[str, Any]], None]


def main(serve: Callable[[IO[str], IO[str]], None]) -> int:
    """Serve one job. Anything but 0 is a death that the parent files under the variant named last."""
    end_with_parent()
    messages, out = os.fdopen(int(sys.argv[1])), os.fdopen(int(sys.argv[2]), "w")
    for stream in (messages, out):  # a variant's children do not speak for the worker, nor keep its pipes open
        os.set_inheritable(stream.fileno(), False)
        os.register_at_fork(after_in_child=partial(os.close, stream.fileno()))
    try:
        serve(messages, out)
    except InputError as error:
        send(out, {"event": "input_error", "message": str(error)})
    return 0


def serve(messages: IO[str], out: IO[str], ranks: int = 1) -> None:
    """Do what ``messages`` ask for, as one of so many context-parallel ranks, and tell on ``out`` what was found."""
    request = receive(messages)
    assert request is not None
    device = resolve(request["device"]) if ranks == 1 else device_of_rank(request["device"])
    if _asks_for_profiler_api() and device.modelled:
        raise InputError(f"--capture-range cudaProfilerApi: {device.spec} makes no CUDA call; use --capture-range nvtx")
    introduce(device, out)
    message = receive(messages)
    if message is None:  # the parent found the rest of the request wrong
        return
    job = Job(**message)

    def tell(event: dict[str, Any]) -> None:
        send(out, event)

    with device.session(), isolated_state(device, context_parallel_size=ranks):
        loaded, warnings = _load(job, tell)
        with _profiler_api(), ranges.open_range("run"):
            for name, keys in job.workloads.items():
                workload = Workload.from_dict(name, keys)
                with ranges.open_range(f"workload:{name}"):
                    chosen = [loaded[variant] for variant in job.variants[name]]
                    WorkloadMeasurement(job, device, workload, tell, warnings).run(chosen)
    tell({"event": "done"})


def introduce(device: Device, out: IO[str]) -> None:
    """Tell the parent which device was found."""
    send(
        out,
        {
            "event": "device",
            "spec": device.spec,
            "device": device.describe(),
            "detectors": device.detectors,
            "detectors_linger": device.detectors_linger,
        },
    )


def _asks_for_profiler_api() -> bool:
    return os.environ.get(ranges.CAPTURE_VARIABLE) == "cudaProfilerApi"


@contextmanager
def _profiler_api() -> Iterator[None]:
    """Between cudaProfilerStart and cudaProfilerStop, where Nsight Systems captures what lies between them."""
    if not _asks_for_profiler_api():
        yield
        return
    import torch

    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def _load(job: Job, tell: Send) -> tuple[dict[str, Variant], list[str]]:
    """Load the variants by name, and say which of them changed Megatron when they were imported."""
    loaded, warnings = {}, []
    names = dict.fromkeys(name for chosen in job.variants.values() for name in chosen)  # in one order on all ranks
    for name in sorted(names, key=is_users):
        tell({"event": "stage", "workload": None, "variant": name, "stage": "import"})
        before = integrity.snapshot()
        with preserved_process_state():
            loaded[name] = load(name)
        replaced = integrity.replaced_since(before)
        if replaced:
            warnings.append(f"importing {name} replaced {integrity.names(replaced)} for every variant of this run")
    return loaded, warnings


class WorkloadMeasurement:
    """All passes over one workload: values, syncs, graph capture and memory a variant, then time, interleaved."""

    def __init__(self, job: Job, device: Device, workload: Workload, tell: Send, warnings: list[str]) -> None:
        self.job = job
        self.device = device
        self.workload = workload
        self.tell = tell
        self.warnings = warnings  # of every result

    def run(self, variants: list[Any]) -> None:
        """Measure ``variants``; what one of them raises is its result."""
        from mtp_bench.scopes import open_bench

        passed = self.job.passed.get(self.workload.name, {})
        values = _Once(lambda: open_bench(self.job.scope, self._values_workload(), self.device))
        bench = _Once(lambda: open_bench(self.job.scope, self.workload, self.device))
        alive = []
        for variant in variants:
            if variant.name in passed:
                alive.append(variant)
                continue
            with self._as(variant, "values"):
                reason = variant.unsupported(self.workload)
                if reason:
                    self.tell(self._event(variant, status="skipped", error=reason))
                    continue
                try:
                    found = self._passes_alone(variant, values, bench)
                except InputError:
                    raise
                except BaseException as error:  # SystemExit too: Ctrl-C does not reach this process
                    self.tell(self._event(variant, status="failed", error=describe_error(error)))
                    continue
            self.tell(self._event(variant, event="passed", found=found))
            alive.append(variant)
        if alive and self.job.stage != "passes":
            self._time(alive, bench)

    def _values_workload(self) -> Workload:
        return self.workload if self.job.values == "real" else self.workload.small()

    def _passes_alone(self, variant: Variant, values: _Once, bench: _Once) -> dict[str, Any]:
        """All passes of ``variant``; what it does to the process, to Megatron and to the benches is undone."""
        before = integrity.snapshot()
        try:
            with preserved_process_state():
                found = self._passes(variant, values, bench)
        finally:
            replaced = integrity.replaced_since(before)
            integrity.put_back(replaced)
            if is_users(variant.name):
                values.forget()
                bench.forget()
        if replaced:
            found["warnings"].append(f"{variant.name} replaced {integrity.names(replaced)}; put back after it")
        return found

    def _passes(self, variant: Any, values: _Once, bench: _Once) -> dict[str, Any]:
        numerics = None
        if self.job.values != "shape":
            with self.device.real_values(), isolated_state(self.device):
                numerics = values().check(variant)
        self._stage(variant, "syncs")
        with self._full_size(), isolated_state(self.device):
            bench().restore()
            step = bench().step(variant)
            self.device.warm_up(step)
            observations = {lead: self.device.observe(step, lead) for lead in self._observed_leads()}
            again = self.device.observe(step, self.job.leads_ms[0])
            capture = self.device.graph_capture(step)
            peak_bytes = self.device.peak_memory_bytes(step)
            if self.job.trace:
                self.device.export_trace(step, _trace_path(self.job.trace, self.workload, variant.name))
        first = observations[self.job.leads_ms[0]]
        return {
            "numerics": numerics,
            "syncs": {str(lead): self._syncs(observation) for lead, observation in observations.items()},
            "graph_capture": {
                "possible": capture.possible,
                "site": None
                if capture.site is None
                else {"file": capture.site.file, "line": capture.site.line, "function": capture.site.function},
                "reason": capture.reason,
            },
            "ops": first.ops,
            "memory": {"peak_bytes": peak_bytes},
            "warnings": [*self.warnings, *_varies(first, again)],
            "variant_info": {"version": variant.version, "path": variant.path, "note": variant.note},
        }

    def _full_size(self) -> Any:
        if self.job.values == "real":
            return self.device.real_values()
        return ExitStack()

    def _observed_leads(self) -> list[float]:
        # Blocked and idle times depend on the lead, and only a modelled device has them in this pass.
        return self.job.leads_ms if self.device.modelled else self.job.leads_ms[:1]

    def _syncs(self, observation: Observation) -> dict[str, Any]:
        seen = [sync for sync in observation.syncs if sync.seen_by in self.job.detectors]
        counts = {name: sum(sync.seen_by == name for sync in seen) for name in self.job.detectors}
        return Syncs.of(seen, counts).model_dump()

    def _time(self, variants: list[Any], bench: _Once) -> None:
        """Time ``variants`` at every lead; one that fails is filed and the others start over without it."""
        with self._full_size(), isolated_state(self.device):
            # What users' code does to a model between windows must not be in the times of the others.
            benches = {variant.name: bench.another() if is_users(variant.name) else bench for variant in variants}
            steps = {variant.name: benches[variant.name]().step(variant) for variant in variants}
            by_name = {variant.name: variant for variant in variants}
            for lead in self.job.leads_ms:
                try:
                    if lead == self.job.leads_ms[0]:
                        self._warm_up(steps, by_name)
                    samples = self._interleave(steps, by_name, benches, lead)
                except TimingError as failure:
                    self.tell(self._event(by_name[failure.variant], status="failed", error=str(failure)))
                    rest = [variant for variant in variants if variant.name != failure.variant]
                    break
                for name, measured in samples.items():
                    time = _time_columns(measured, modelled=self.device.modelled)
                    self.tell(self._event(by_name[name], event="timed", lead_ms=lead, time=time))
            else:
                return
        if rest:
            self._time(rest, bench)

    def _warm_up(self, steps: dict[str, Any], by_name: dict[str, Any]) -> None:
        for name, step in steps.items():
            self._stage(by_name[name], "warm-up")
            with _timing(name):
                self.device.warm_up(step)

    def _interleave(
        self, steps: dict[str, Any], by_name: dict[str, Any], benches: dict[str, _Once], lead_ms: float
    ) -> dict[str, Samples]:
        def timer(name: str, step: Any) -> Callable[[], Window]:
            def window() -> Window:
                benches[name]().restore()
                with _timing(name):
                    return self.device.time_window(step, STEPS_PER_WINDOW, lead_ms)

            return window

        if self.device.modelled:  # the model has no noise: one window says all
            policy = Policy(min_windows=1, max_seconds=0.0, seed=self.job.seed)
        elif ranges.profiled():
            policy = Policy(min_windows=_PROFILED_WINDOWS, max_seconds=0.0, seed=self.job.seed)
        elif self.workload.cp_size > 1:
            policy = Policy(min_windows=_RANKED_WINDOWS, max_seconds=0.0, seed=self.job.seed)
        else:
            policy = Policy(max_seconds=self.job.max_seconds, seed=self.job.seed)
        timers = {name: timer(name, step) for name, step in steps.items()}
        baseline = "original" if "original" in timers else next(iter(timers))
        samples = interleave(
            timers,
            baseline,
            policy,
            on_window=lambda name, _: self._stage(by_name[name], f"time at lead {lead_ms:g} ms"),
        )
        ranked = "ranks" if self.workload.cp_size > 1 else ""
        fixed = "modelled" if self.device.modelled else "profiled" if ranges.profiled() else ranked
        for measured in samples.values():
            measured.stop_reason = fixed or measured.stop_reason
        return samples

    @contextmanager
    def _as(self, variant: Any, stage: str) -> Iterator[None]:
        self._stage(variant, stage)
        with ranges.open_range(f"variant:{variant.name}"):
            yield

    def _stage(self, variant: Any, stage: str) -> None:
        ranges.mark(f"{ranges.STAGE}{stage}")
        self.tell(self._event(variant, event="stage", stage=stage))

    def _event(self, variant: Any, event: str = "ended", **more: Any) -> dict[str, Any]:
        return {"event": event, "workload": self.workload.name, "variant": variant.name, **more}


class TimingError(Exception):
    """A variant that passed before failed while it was timed."""

    def __init__(self, variant: str, message: str) -> None:
        super().__init__(message)
        self.variant = variant


@contextmanager
def _timing(name: str) -> Iterator[None]:
    """What variant ``name`` raises inside is a TimingError, and what it does to the process is undone."""
    try:
        with ranges.open_range(f"variant:{name}"), preserved_process_state():
            yield
    except BaseException as error:
        raise TimingError(name, describe_error(error)) from error


class _Once:
    """Make a bench when it is first needed, and keep it: its tensors are large and shared by all variants."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    def __call__(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made

    def another(self) -> _Once:
        """One more of its kind."""
        return _Once(self._make)

    def forget(self) -> None:
        """Make it again when it is next needed."""
        self._made = None
        gc.collect()  # modules and their hooks are cycles; on a GPU they would be held beside the new ones


def describe_error(error: BaseException) -> str:
    """One line: what was raised, and at which line of the user's code."""
    frame = user_frame_of(error)
    where = f" at {frame.file}:{frame.line} in {frame.function}" if frame is not None else ""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = "(its text cannot be read)"
    return readable(f"{type(error).__name__}: {text}{where}")


def _time_columns(samples: Samples, modelled: bool) -> dict[str, Any]:
    windows = samples.windows
    return {
        "modelled": modelled,
        "profiled": ranges.profiled(),
        "step_ns": [window.step_ns for window in windows],
        "round": samples.rounds,
        "host_ns": [window.host_ns for window in windows],
        "lead_ns": [window.lead_ns for window in windows],
        "device_idle_ns": [window.device_idle_ns for window in windows],
        "sm_clock_mhz": [window.sm_clock_mhz for window in windows],
        "throttled": [window.throttled for window in windows],
        "stop_reason": samples.stop_reason,
    }


def _varies(first: Observation, again: Observation) -> list[str]:
    if len(first.syncs) == len(again.syncs):
        return []
    return [f"syncs vary between steps: {len(first.syncs)}, then {len(again.syncs)}; the count is of the first step"]


def _trace_path(pattern: str, workload: Workload, variant: str) -> str:
    """A file a variant: ``trace.json.gz`` becomes ``trace-WORKLOAD-VARIANT.json.gz``, with the rank where several."""
    folder, name = os.path.split(pattern)
    stem, dot, suffix = name.partition(".")
    rank = f"-rank{os.environ['RANK']}" if workload.cp_size > 1 else ""
    return os.path.join(folder, f"{stem}-{workload.name}-{variant.replace(':', '.')}{rank}{dot}{suffix}")


if __name__ == "__main__":
    try:
        sys.exit(main(serve))
    except Exception:
        traceback.print_exc()
        sys.exit(1)
