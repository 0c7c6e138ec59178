"""What happens while somebody watches: operations counted, syncs kept with their call sites, time modelled."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from mtp_bench import ranges
from mtp_bench.devices.sim.clock import Timeline
from mtp_bench.devices.sim.kernels import copy_work, work_of
from mtp_bench.devices.sim.plans import Plan
from mtp_bench.devices.sim.profile import DeviceProfile
from mtp_bench.devices.sim.state import STATE
from mtp_bench.syncs import Sync, capture_stack


class Recorder:
    """Collects one observation. ``syncs`` grows as the host waits."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.syncs: list[Sync] = []
        self.ops = 0
        self._unfinished: list[int] = []  # syncs after which the device has not started anything yet

    def operation(self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """An operation was dispatched."""
        self.ops += 1
        work = work_of(plan, args, kwargs, result)
        idle_ns = self.timeline.enqueue(self.timeline.profile.kernel_ns(work) if work is not None else ())
        if work is not None:
            self._device_started(idle_ns)

    def waits(self, kind: str, op: str, count: int, args: tuple[Any, ...] = ()) -> None:
        """The host waited ``count`` times inside ``op``."""
        for _ in range(count):
            self.wait(kind, op, args)

    def wait(self, kind: str, op: str, args: tuple[Any, ...] = ()) -> None:
        """The host waited once: for a copy, which is work of the device, or for what was queued."""
        blocked_ns = self._wait(kind, args)
        self.syncs.append(
            Sync(
                kind=kind,
                op=op,
                stack=capture_stack(),
                phase=ranges.phase(),
                range=ranges.path(),
                blocked_ns=round(blocked_ns),
                device_idle_ns=0,
            )
        )
        self._unfinished.append(len(self.syncs) - 1)

    def _wait(self, kind: str, args: tuple[Any, ...]) -> float:
        copied = copy_work(kind, args)
        if copied is not None:
            self._device_started(self.timeline.enqueue((self.timeline.profile.copy_ns(copied),), host_ns=0.0))
        return self.timeline.wait() if kind != "htod_pageable_async" else 0.0

    def finish(self) -> None:
        """The step is over: the last sync's gap lasts until the next step's first kernel could start."""
        self._device_started(self.timeline.gap_to_next_ns())

    def absorb(self, inner: Recorder) -> None:
        """Take over what a recorder inside this one's time has seen."""
        self.syncs.extend(inner.syncs)
        self.ops += inner.ops

    def _device_started(self, idle_ns: float) -> None:
        # A gap behind two syncs is one gap: it goes to the first of them, so that sums count it once.
        if self._unfinished:
            first = self._unfinished[0]
            self.syncs[first] = replace(self.syncs[first], device_idle_ns=round(idle_ns))
            self._unfinished.clear()


class JobClock(Recorder):
    """Models time from :meth:`start` to :meth:`stop` and keeps nothing: a job of any length may run under it."""

    def __init__(self, profile: DeviceProfile) -> None:
        super().__init__(Timeline(profile))
        self.timeline.events = deque(maxlen=0)

    @classmethod
    def start(cls) -> Timeline:
        """The timeline of who records already, or of a clock that starts now."""
        if STATE.recorder is None:
            assert STATE.profile is not None, "the simulated device is used inside its session"
            STATE.recorder = cls(STATE.profile)
        return STATE.recorder.timeline

    @staticmethod
    def stop(timeline: Timeline) -> None:
        """No time passes any more, where a clock was started."""
        if isinstance(STATE.recorder, JobClock) and STATE.recorder.timeline is timeline:
            STATE.recorder = None

    def wait(self, kind: str, op: str, args: tuple[Any, ...] = ()) -> None:
        """The host waited once; it is not kept."""
        self._wait(kind, args)

    def absorb(self, inner: Recorder) -> None:
        """The time that somebody else has recorded passes here too."""
        for event in inner.timeline.events:
            self.timeline._apply(event)
