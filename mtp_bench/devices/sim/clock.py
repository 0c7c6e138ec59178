"""The virtual clock: a host that runs ahead of one device queue, and what a wait does to its lead."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass

from mtp_bench.devices.sim.profile import DeviceProfile


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a recorded step: host time spent, then kernels enqueued, then perhaps a wait."""

    host_ns: float
    kernels_ns: tuple[float, ...] = ()
    waits: bool = False


class Timeline:
    """Host and device time in nanoseconds since the step began; ``lead_ns`` of device work is queued before it.

    ``issue = issue + host cost``; a kernel starts at ``max(issue + launch latency, end of the one before)``; a wait
    sets ``issue = max(issue, end of the last) + sync cost``.
    """

    def __init__(self, profile: DeviceProfile, lead_ns: float = 0.0) -> None:
        self.profile = profile
        self.issue_ns = 0.0
        self.end_ns = lead_ns
        self.idle_ns = 0.0
        self.events: MutableSequence[Event] = []
        self._busy_once = lead_ns > 0

    def enqueue(self, kernels_ns: Sequence[float], host_ns: float | None = None) -> float:
        """The host issues an operation of these kernels. Returns how long the device idled before the first."""
        event = Event(self.profile.host_op_ns if host_ns is None else host_ns, tuple(kernels_ns))
        self.events.append(event)
        return self._apply(event)

    def wait(self) -> float:
        """The host waits until the device has drained. Returns for how long it was blocked."""
        before_ns = self.issue_ns
        event = Event(0.0, waits=True)
        self.events.append(event)
        self._apply(event)
        return self.issue_ns - before_ns

    def gap_to_next_ns(self) -> float:
        """How long the device will have idled when the next kernel starts, if the host issues it now."""
        return max(0.0, self.issue_ns + self.profile.host_op_ns + self.profile.launch_latency_ns - self.end_ns)

    def reached_ns(self) -> float:
        """When the device reaches an event that the host records now."""
        return max(self.issue_ns + self.profile.launch_latency_ns, self.end_ns)

    def _kernel(self, start_ns: float, end_ns: float) -> None:
        """Told of every kernel; a trace keeps them."""

    def _apply(self, event: Event) -> float:
        self.issue_ns += event.host_ns
        idle_ns = 0.0
        for at, kernel_ns in enumerate(event.kernels_ns):
            if at:
                self.issue_ns += self.profile.host_launch_ns
            start_ns = max(self.issue_ns + self.profile.launch_latency_ns, self.end_ns)
            gap_ns = start_ns - self.end_ns if self._busy_once else 0.0
            self._busy_once = True
            self.idle_ns += gap_ns
            idle_ns = gap_ns if at == 0 else idle_ns
            self.end_ns = start_ns + kernel_ns
            self._kernel(start_ns, self.end_ns)
        if event.waits:
            self.issue_ns = max(self.issue_ns, self.end_ns) + self.profile.sync_ns
        return idle_ns


@dataclass(frozen=True, slots=True)
class Replay:
    """Times of one step among back-to-back ones."""

    step_ns: float
    host_ns: float
    lead_ns: float
    device_idle_ns: float


def replay(events: Sequence[Event], profile: DeviceProfile, lead_ns: float, steps: int = 3) -> Replay:
    """Run a recorded step ``steps`` times back to back, each behind ``lead_ns`` of device work, and time the last.

    As on a GPU: an event before and one after the step, both on the device's own queue. The step's time is the time
    between them, so the queued work is not counted, and the first event is not reached before that work is done.
    """
    timeline = Timeline(profile)
    result = Replay(0.0, 0.0, 0.0, 0.0)
    for _ in range(steps):
        if lead_ns:
            timeline._apply(Event(profile.host_launch_ns, (lead_ns,)))
        entry_ns = timeline.issue_ns
        lead_at_entry_ns = max(0.0, timeline.end_ns - entry_ns)
        begin_ns = timeline.reached_ns()
        timeline.end_ns, timeline._busy_once, timeline.idle_ns = begin_ns, True, 0.0
        for event in events:
            timeline._apply(event)
        finish_ns = timeline.reached_ns()
        idle_ns = timeline.idle_ns + finish_ns - timeline.end_ns
        timeline.end_ns = finish_ns
        result = Replay(finish_ns - begin_ns, timeline.issue_ns - entry_ns, lead_at_entry_ns, idle_ns)
    return result
