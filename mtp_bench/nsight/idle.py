"""Device idle around the returns of waits: the gap between what the device had done by then and what it did next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from mtp_bench.nsight.records import PROCESS
from mtp_bench.nsight.sqlite import GRAPH_TRACE, KERNEL, MEMCPY, MEMSET, Export

_NEVER, _AFTER = -(2**63), 2**63 - 1
_UNKNOWN = 0xFFFF  # a device or context that the table does not name
_ACTIVITIES = (KERNEL, MEMCPY, MEMSET, GRAPH_TRACE)

Gap = tuple[int, int]
"""From the end of one activity to the start of the next; a gap that begins and ends at once where one still ran."""


class Timeline:
    """The times at which one process's waits returned, and what its devices did between each two of them.

    Interval ``k`` lies before ``times[k]`` and after the time before that; there is one more of them than of times.
    """

    __slots__ = ("_current", "_first_start", "_last_end", "_more_running", "_since", "_until", "times")

    def __init__(self, times: Iterable[int]) -> None:
        self.times = sorted(set(times))
        intervals = len(self.times) + 1
        # Of all that ended or began in an interval only the last end and the first start matter.
        self._last_end = [_NEVER] * intervals
        self._first_start = [_AFTER] * intervals
        # How many more activities run over a return than over the one before it.
        self._more_running = [0] * intervals
        self._current, self._since, self._until = 0, _AFTER, _NEVER

    def take(self, start: int, end: int) -> None:
        """Note an activity."""
        if self._since <= start and end <= self._until:  # where the one before it was: most are
            began = ended = self._current
        else:
            began, ended = self._intervals(start, end)
        if end > self._last_end[ended]:  # noqa: PLR1730  (max() would double the time of this)
            self._last_end[ended] = end
        if start < self._first_start[began]:  # noqa: PLR1730
            self._first_start[began] = start

    def _intervals(self, start: int, end: int) -> tuple[int, int]:
        """The intervals in which an activity began and ended; the first becomes the current one."""
        began, ended = bisect_right(self.times, start), bisect_left(self.times, end)
        if began < ended:
            self._more_running[began] += 1
            self._more_running[ended] -= 1
        self._current = began
        self._since = self.times[began - 1] if began else _NEVER
        self._until = self.times[began] if began < len(self.times) else _AFTER
        return began, ended

    def gaps(self) -> dict[int, Gap | None]:
        """The gap around each return, None where the capture does not have both ends of it."""
        ends = accumulate(self._last_end, max)
        starts = list(accumulate(reversed(self._first_start), min))[-2::-1]
        running = accumulate(self._more_running)
        found: dict[int, Gap | None] = {}
        for at, count, end, start in zip(self.times, running, ends, starts, strict=False):
            if count:
                found[at] = (at, at)
            else:
                found[at] = None if end == _NEVER or start == _AFTER else (end, start)
        return found


@dataclass(slots=True)
class Idle:
    """Gaps by process and return, and the devices that activities were on, by process and context (and by process)."""

    gaps: dict[int, dict[int, Gap | None]]
    devices: dict[tuple[int, int | None], set[int]] = field(default_factory=lambda: defaultdict(set))

    def device(self, process: int, context: int | None) -> int | None:
        """The device of a context, if it is known to be one."""
        for key in ((process, context), (process, None)):
            devices = self.devices.get(key, ())
            if len(devices) == 1:
                return next(iter(devices))
        return None


def read_idle(export: Export, returns: Iterable[tuple[int, int]]) -> Idle:
    """The gaps around ``returns``, each a process and a time. Activities are read once, in any order."""
    times: dict[int, list[int]] = defaultdict(list)
    for process, at in returns:
        times[process].append(at)
    timelines = {process: Timeline(ats) for process, ats in times.items()}
    found = Idle({})
    for table in _ACTIVITIES:
        _read_activities(export, table, timelines, found)
    found.gaps = {process: timeline.gaps() for process, timeline in timelines.items()}
    return found


def activities_recorded(export: Export) -> bool:
    """Whether the capture has anything that a device did."""
    return any(export.has(table, "start", "end", "globalPid") for table in _ACTIVITIES)


def _read_activities(export: Export, table: str, timelines: dict[int, Timeline], found: Idle) -> None:
    if not export.has(table, "start", "end", "globalPid"):
        return
    device, context = (f"coalesce({export.column(table, name)}, {_UNKNOWN})" for name in ("deviceId", "contextId"))
    without_waits = Timeline(())
    where: dict[int, Timeline] = {}  # by process, device and context in one number, which is quicker than a tuple
    rows = export.rows(
        f"SELECT ({PROCESS.format('globalPid')} << 32) | (({device} & 65535) << 16) | ({context} & 65535), "
        f'CAST(start AS INTEGER), CAST("end" AS INTEGER) FROM {table} WHERE "end" >= start AND globalPid IS NOT NULL'
    )
    for place, start, end in rows:
        timeline = where.get(place)
        if timeline is None:
            process, on_device, in_context = place >> 32, place >> 16 & 0xFFFF, place & 0xFFFF
            if on_device != _UNKNOWN:
                found.devices[process, in_context].add(on_device)
                found.devices[process, None].add(on_device)
            timeline = where[place] = timelines.get(process, without_waits)
        timeline.take(start, end)
