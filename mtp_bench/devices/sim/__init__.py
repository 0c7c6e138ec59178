"""The simulated device: a PrivateUse1 backend in Python that computes on the CPU, sees syncs, and models time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from mtp_bench.devices.interface import GraphCapture, Observation, Step, Window
from mtp_bench.devices.sim.state import SHAPE_ONLY_ABOVE, STATE
from mtp_bench.devices.sim.tensor import is_shape_only
from mtp_bench.syncs import Sync

if TYPE_CHECKING:
    from mtp_bench.devices.sim.profile import DeviceProfile
    from mtp_bench.devices.sim.recorder import Recorder

__all__ = ["SHAPE_ONLY_ABOVE", "SimDevice", "is_shape_only"]

_NS_PER_MS = 1e6


class SimDevice:
    """A simulated GPU with the constants of ``profile``. All of its use happens inside :meth:`session`."""

    modelled = True
    detectors: tuple[str, ...] = ("sim",)
    detectors_linger = False

    def __init__(self, profile: DeviceProfile, spec: str) -> None:
        self.profile = profile
        self.spec = spec
        self.shape_only_above = SHAPE_ONLY_ABOVE

    @classmethod
    def from_spec(cls, rest: str) -> SimDevice:
        """``h100``, or a path to a device profile. Raises InputError."""
        from mtp_bench.devices.sim.profile import load_profile

        return cls(load_profile(rest or "h100"), f"sim:{rest or 'h100'}")

    @property
    def torch_device(self) -> torch.device:
        """``sim:0``: PyTorch's hooks know one device of ours in a process, whatever the profile."""
        from mtp_bench.devices.sim.tensor import sim_device

        return sim_device()

    def describe(self) -> dict[str, Any]:
        """``environment.device`` of run.json."""
        return {
            "kind": "sim",
            "name": self.profile.name,
            "modelled": True,
            "driver": None,
            "cuda": None,
            "profile": f"{self.spec.partition(':')[2]} {self.profile.digest()}",
        }

    def backend(self) -> str:
        """Gloo: the values are in CPU memory."""
        return "gloo"

    @contextmanager
    def session(self) -> Iterator[None]:
        """Register the device, let ``cuda`` mean it, and keep backward on the calling thread; undone on leaving."""
        from mtp_bench.devices.sim import session

        with session.open_session(self):
            yield

    @contextmanager
    def real_values(self) -> Iterator[None]:
        """Inside, new tensors of any size hold real values."""
        before, STATE.limit = STATE.limit, math.inf
        try:
            yield
        finally:
            STATE.limit = before

    @contextmanager
    def record_syncs(self) -> Iterator[list[Sync]]:
        """Collect the syncs of what runs inside."""
        with self._recording(0.0) as recorder:
            yield recorder.syncs

    @contextmanager
    def _recording(self, lead_ms: float, recorder: Recorder | None = None) -> Iterator[Recorder]:
        from mtp_bench.devices.sim.clock import Timeline
        from mtp_bench.devices.sim.recorder import Recorder

        recorder = recorder or Recorder(Timeline(self.profile, lead_ms * _NS_PER_MS))
        before, STATE.recorder = STATE.recorder, recorder
        try:
            yield recorder
        finally:
            STATE.recorder = before
            recorder.finish()
            if before is not None:
                before.absorb(recorder)

    def warm_up(self, step: Step) -> None:
        """Run ``step`` once: what it initialises lazily (a rotary table, say) is not the step's."""
        step()

    def observe(self, step: Step, lead_ms: float = 0.0) -> Observation:
        """Run ``step`` once with ``lead_ms`` of device work queued before it."""
        with self._recording(lead_ms) as recorder:
            step()
        return Observation(tuple(recorder.syncs), recorder.ops)

    def graph_capture(self, step: Step) -> GraphCapture:
        """A CUDA graph cannot hold a wait: the first one forbids it."""
        syncs = self.observe(step).syncs
        first = next((sync for sync in syncs if sync.kind != "htod_pageable_async"), None)
        if first is None:
            return GraphCapture(possible=True)
        return GraphCapture(
            False, first.stack[0] if first.stack else None, f"{first.op} waits for the device ({first.kind})"
        )

    def peak_memory_bytes(self, step: Step) -> int | None:
        """None: the simulated device has no allocator."""
        return None

    def time_window(self, step: Step, steps: int, lead_ms: float = 0.0) -> Window:
        """Model back-to-back steps from one that is run; ``steps`` does not matter, since every window is the same."""
        from mtp_bench.devices.sim.clock import replay

        with self._recording(lead_ms) as recorder:
            step()
        times = replay(recorder.timeline.events, self.profile, lead_ms * _NS_PER_MS)
        return Window(times.step_ns, times.host_ns, times.lead_ns, times.device_idle_ns)

    def export_trace(self, step: Step, path: str) -> None:
        """Write the modelled timeline of one step to ``path`` as a Chrome trace."""
        from mtp_bench.devices.sim.trace import TraceRecorder, write_trace

        recorder = TraceRecorder(self.profile)
        with self._recording(0.0, recorder):
            step()
        write_trace(recorder, self.spec, path)
