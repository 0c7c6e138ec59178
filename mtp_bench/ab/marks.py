"""Points in a running job whose time is wanted on the host and on the device: CUDA events that nobody waits for.

A mark is a place in a fixed pool. It is recorded in the current stream, found to have passed by a later look, and read.
On the simulated device both times are modelled.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from mtp_bench.devices.sim.cuda_functions import Event as SimEvent

# CUDA documents half a microsecond. The float32 milliseconds of `elapsed_time` add 6e-8 of what is between two marks:
# 6 ns at 100 ms, 0.6 us at 10 s.
RESOLUTION_NS = 500.0
# Two crystals, each off by 50 ppm at most as such parts are sold.
DRIFT = 1e-4
_NS_PER_MS = 1e6
_LOOKS = 4  # marks found passed by one look at most: what one hook may cost is bounded
_STREAMS = 64


class HostTime:
    """Host time at which the device passed the latest of a chain of marks, as two bounds in nanoseconds.

    Each mark says when it cannot have passed yet and when it was seen to have passed. What an earlier mark said holds
    for a later one too, moved on by the device time between them and widened by what two clocks may drift apart.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Nothing is known: the next mark does not follow from the one before."""
        self.not_before_ns = float("-inf")
        self.not_after_ns = float("inf")

    def follow(self, device_ns: float, not_before_ns: float, not_after_ns: float) -> None:
        """Go on to a mark ``device_ns`` later (earlier where negative), of which so much is known by itself.

        What is known of it alone counts where it contradicts what came before: a clock was set.
        """
        apart_ns = abs(device_ns) * DRIFT + RESOLUTION_NS
        before_ns = max(self.not_before_ns + device_ns - apart_ns, not_before_ns)
        after_ns = min(self.not_after_ns + device_ns + apart_ns, not_after_ns)
        if before_ns > after_ns:
            before_ns, after_ns = not_before_ns, not_after_ns
        self.not_before_ns, self.not_after_ns = before_ns, after_ns


class Marks(Protocol):
    """A pool of marks, numbered from 0."""

    modelled: bool
    clock_ns: Callable[[], float]  # host time now

    def record(self, mark: int) -> None:
        """Mark the end of what is queued on the current stream."""
        ...

    def look(self) -> None:
        """Find out which of the marks recorded longest ago have passed. Never waits."""
        ...

    def forget(self, first: int, last: int) -> None:
        """These marks are about to be recorded again: nobody will read what they were."""
        ...

    def has_passed(self, mark: int) -> bool:
        """Whether a look has found it, and all recorded before it, passed."""
        ...

    def host_ns(self, mark: int) -> float:
        """Host time when it was recorded."""
        ...

    def bounds_ns(self, mark: int) -> tuple[float, float]:
        """Host times between which the device passed it."""
        ...

    def elapsed_ns(self, start: int, end: int) -> float:
        """Device time from one passed mark to another near it."""
        ...

    def close(self) -> None:
        """No mark is recorded any more."""
        ...


class CudaMarks:
    """CUDA events. A mark costs an ``event.record``, and an ``event.query`` or two in later looks."""

    modelled = False

    def __init__(self, count: int, index: int) -> None:
        self.clock_ns: Callable[[], float] = time.perf_counter_ns
        self._index = index
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(count)]  # type: ignore[no-untyped-call]
        for event in self._events:
            event.record()  # made by the driver at the first record: here, not in the job's iterations
        self._host_ns = array("q", bytes(8 * count))
        self._not_before_ns = array("q", bytes(8 * count))
        self._not_after_ns = array("q", bytes(8 * count))
        self._pending: deque[int] = deque(maxlen=count)
        # `torch.cuda.current_stream` makes an object, 3 us; one kept for each stream takes a tenth of that.
        self._streams: dict[int, torch.cuda.Stream] = {}
        self._raw_stream = torch._C._cuda_getCurrentRawStream

    def record(self, mark: int) -> None:
        """Mark the end of what is queued on the current stream."""
        stream = self._streams.get(self._raw_stream(self._index)) or self._new_stream()
        now_ns = time.perf_counter_ns()
        self._events[mark].record(stream)
        self._host_ns[mark] = self._not_before_ns[mark] = now_ns
        self._not_after_ns[mark] = 0
        self._pending.append(mark)

    def look(self) -> None:
        """Ask for the oldest, and for the next where it has passed."""
        pending, looks = self._pending, _LOOKS
        while pending and looks:
            mark = pending[0]
            asked_ns = time.perf_counter_ns()
            if not self._events[mark].query():  # type: ignore[no-untyped-call]
                self._not_before_ns[mark] = asked_ns
                return
            self._not_after_ns[mark] = time.perf_counter_ns()
            pending.popleft()
            looks -= 1

    def forget(self, first: int, last: int) -> None:
        """Marks are forgotten in the order of their recording, so that these are the oldest."""
        pending = self._pending
        while pending and first <= pending[0] <= last:
            pending.popleft()

    def has_passed(self, mark: int) -> bool:
        """Whether a look has found it, and all recorded before it, passed."""
        return self._not_after_ns[mark] != 0

    def host_ns(self, mark: int) -> float:
        """``time.perf_counter_ns`` when it was recorded."""
        return self._host_ns[mark]

    def bounds_ns(self, mark: int) -> tuple[float, float]:
        """From when it was recorded or last seen pending, to when it was first seen passed."""
        return self._not_before_ns[mark], self._not_after_ns[mark]

    def elapsed_ns(self, start: int, end: int) -> float:
        """To half a microsecond, see ``RESOLUTION_NS``."""
        elapsed_ms: float = self._events[start].elapsed_time(self._events[end])
        return elapsed_ms * _NS_PER_MS

    def close(self) -> None:
        """Nothing to undo."""

    def _new_stream(self) -> torch.cuda.Stream:
        stream = torch.cuda.current_stream(self._index)
        if len(self._streams) >= _STREAMS:
            self._streams.clear()
        self._streams[stream.cuda_stream] = stream
        return stream


class SimMarks:
    """Events on the modelled timeline: all times are exact, and every mark can be read at once."""

    modelled = True

    def __init__(self, count: int) -> None:
        from mtp_bench.devices.sim.recorder import JobClock

        self._timeline = timeline = JobClock.start()
        self.clock_ns: Callable[[], float] = lambda: timeline.issue_ns
        self._events: list[SimEvent] = [self._new_event() for _ in range(count)]

    def record(self, mark: int) -> None:
        """Mark the end of what is queued on the modelled device."""
        self._events[mark].record()

    def look(self) -> None:
        """Nothing to find out: what the model says is known at once."""

    def forget(self, first: int, last: int) -> None:
        """Nothing is pending."""

    def has_passed(self, mark: int) -> bool:
        """Whether it has a time on the job's timeline; it has none where somebody else was recording."""
        return self._events[mark].timeline is self._timeline

    def host_ns(self, mark: int) -> float:
        """Modelled host time when it was recorded."""
        return self._events[mark].issue_ns

    def bounds_ns(self, mark: int) -> tuple[float, float]:
        """When the modelled device reached it, twice."""
        return self._events[mark].device_ns, self._events[mark].device_ns

    def elapsed_ns(self, start: int, end: int) -> float:
        """Modelled."""
        return self._events[end].device_ns - self._events[start].device_ns

    def close(self) -> None:
        """No time passes any more, as before."""
        from mtp_bench.devices.sim.recorder import JobClock

        JobClock.stop(self._timeline)

    @staticmethod
    def _new_event() -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def marks_on(device: torch.device, count: int) -> Marks:
    """A pool of ``count`` marks for ``device``: a GPU by its index, or the simulated one inside its session."""
    return CudaMarks(count, device.index) if device.type == "cuda" else SimMarks(count)
