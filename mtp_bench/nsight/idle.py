"""Device idle around the returns of waits: the gap between what the device had done by then and what it did next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from mtp_bench.nsight.calls import PROCESS
from mtp_bench.nsight.sqlite import GRAPH_TRACE, KERNEL, MEMCPY, MEMSET, Export

_NEVER = -(2**63)
_AFTER = 2**63 - 1
_UNKNOWN = 0xFFFF
_ACTIVITIES = (KERNEL, MEMCPY, MEMSET, GRAPH_TRACE)

Gap = tuple[int, int]
"""From the end of one activity to the start of the next; a gap that begins and ends at once where one still ran."""


class _Returns:
    """The times at which one process's waits returned, and the activities next to each."""

    def __init__(self, times: Iterable[int]) -> None:
        self.times = sorted(set(times))
        # Of activities that ended between two returns only the last matters, and of those that began only the first.
        self.last_end = [_NEVER] * len(self.times)
        self.next_start = [_AFTER] * len(self.times)
        # How many more activities run over a return than over the one before it.
        self.more_running = [0] * (len(self.times) + 1)

    def gaps(self) -> dict[int, Gap | None]:
        """The gap around each return, None where the capture does not have both ends of it."""
        for index in range(1, len(self.times)):
            self.last_end[index] = max(self.last_end[index], self.last_end[index - 1])
        for index in range(len(self.times) - 1, 0, -1):
            self.next_start[index - 1] = min(self.next_start[index], self.next_start[index - 1])
        found: dict[int, Gap | None] = {}
        running_at = accumulate(self.more_running[:-1])
        for at, running, end, start in zip(self.times, running_at, self.last_end, self.next_start, strict=True):
            if running:
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
    by_process = {process: _Returns(ats) for process, ats in times.items()}
    found = Idle({})
    for table in _ACTIVITIES:
        _read_activities(export, table, by_process, found)
    found.gaps = {process: returns_.gaps() for process, returns_ in by_process.items()}
    return found


def activities_recorded(export: Export) -> bool:
    """Whether the capture has anything that a device did."""
    return any(export.has(table, "start", "end", "globalPid") for table in _ACTIVITIES)


def _read_activities(export: Export, table: str, by_process: dict[int, _Returns], found: Idle) -> None:
    if not export.has(table, "start", "end", "globalPid"):
        return
    device, context = (f"coalesce({export.column(table, name)}, {_UNKNOWN})" for name in ("deviceId", "contextId"))
    nowhere = _Returns(())
    where: dict[int, _Returns] = {}  # by process, device and context in one number, which is quicker than a tuple
    rows = export.rows(
        f"SELECT ({PROCESS.format('globalPid')} << 32) | (({device} & 65535) << 16) | ({context} & 65535), "
        f'CAST(start AS INTEGER), CAST("end" AS INTEGER) FROM {table} WHERE "end" >= start AND globalPid IS NOT NULL'
    )
    for place, start, end in rows:
        returns = where.get(place)
        if returns is None:
            process, on_device, in_context = place >> 32, place >> 16 & 0xFFFF, place & 0xFFFF
            if on_device != _UNKNOWN:
                found.devices[process, in_context].add(on_device)
                found.devices[process, None].add(on_device)
            returns = where[place] = by_process.get(process, nowhere)
        times = returns.times
        ended = bisect_left(times, end)
        if ended < len(times) and end > returns.last_end[ended]:
            returns.last_end[ended] = end
        began = bisect_right(times, start)
        if began and start < returns.next_start[began - 1]:
            returns.next_start[began - 1] = start
        if began < ended:
            returns.more_running[began] += 1
            returns.more_running[ended] -= 1
