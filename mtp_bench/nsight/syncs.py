"""Where the host waited: which calls of a capture are syncs, of what kind, and with which copy."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from mtp_bench.nsight.calls import Call, Calls, Role
from mtp_bench.nsight.records import (
    DEVICE_TO_HOST,
    HostCopy,
    Key,
    SyncRow,
    copies_recorded,
    count_stream_wait_rows,
    host_copies,
    process_of_key,
    sync_rows,
    sync_times,
    syncs_recorded,
)
from mtp_bench.nsight.sqlite import KERNEL, MEMCPY, SYNCHRONIZATION, Export

STREAM_SYNC = Role.STREAM_SYNC.value
_SYNC_ROLES = (Role.STREAM_SYNC, Role.DEVICE_SYNC, Role.EVENT_SYNC)
# syncType of rows whose call is none of CUDA's synchronise calls (cudaFree waits for the context, say).
_ROW_KINDS = {1: "event_sync", 3: "stream_sync", 4: "device_sync"}
_EVENT_ROW = 1


class Wait:
    """The host waits once: a synchronisation, a blocking copy, or the two calls of a blocking copy.

    ``call`` is None where the capture has the record of a synchronisation without its call; then only the process is
    known. ``row`` is that record.
    """

    __slots__ = ("call", "copy", "end", "kind", "process", "row", "start")

    def __init__(
        self,
        process: int,
        kind: str,
        call: Call | None,
        start: int,
        end: int,
        row: SyncRow | None = None,
        copy: HostCopy | None = None,
    ) -> None:
        self.process, self.kind, self.call, self.start, self.end = process, kind, call, start, end
        self.row, self.copy = row, copy

    @property
    def copy_call(self) -> Call | None:
        """The copy's call where it is another than the one that waits."""
        call = self.copy.call if self.copy else None
        return None if call is self.call else call

    @property
    def copy_ns(self) -> int:
        """Time in the copy's call."""
        call = self.copy.call if self.copy else None
        return call.end - call.start if call else 0

    @property
    def blocked_ns(self) -> int:
        """Time in the call that waits, and in the copy's where that is another one."""
        return self.end - self.start + (self.copy_ns if self.copy_call else 0)


class Waits:
    """All waits of a capture, its copies between host and device, what looks like a wait, and what cannot be told."""

    def __init__(self, export: Export) -> None:
        calls = Calls(export)
        self.calls_recorded = calls.recorded
        self.copies = host_copies(export)
        waiting = calls.waiting({copy.key for copy in self.copies} if copies_recorded(export) else None)
        self.event_queries = [call for call in waiting if call.api.role is Role.EVENT_QUERY]
        self.stream_waits = [call for call in waiting if call.api.role is Role.STREAM_WAIT]
        # Without calls the table of synchronisations is all there is to count.
        self.stream_wait_rows = 0 if calls.recorded else count_stream_wait_rows(export)
        copy_calls = [call for call in waiting if call.api.role is Role.COPY]
        _give_calls(self.copies, copy_calls)
        rows = sync_rows(export)
        self.waits = _synchronisations(waiting, rows)
        _join_copies(self.waits, self.copies, calls)
        self.waits += blocking_copies(self.copies)
        others, self.notes = _other_waits(export, rows, calls)
        self.waits += others
        self.notes += _notes(export, calls, self, len(copy_calls))


def read_waits(export: Export) -> Waits:
    """Find the waits of ``export``."""
    return Waits(export)


def _give_calls(copies: Iterable[HostCopy], calls: Iterable[Call]) -> None:
    by_key = {key: call for call in calls for key in call.keys}
    for copy in copies:
        copy.call = by_key.get(copy.key)


def _synchronisations(calls: Iterable[Call], rows: dict[Key, SyncRow]) -> list[Wait]:
    """Calls that synchronise. The ``rows`` of all ``calls`` are taken out, so that those of other calls are left."""
    waits = []
    for call in calls:
        row = None
        for key in call.keys:
            row = rows.pop(key, None) or row
        if call.api.role in _SYNC_ROLES:
            waits.append(Wait(call.process, call.api.role.value, call, call.start, call.end, row))
    return waits


def _join_copies(waits: list[Wait], copies: list[HostCopy], calls: Calls) -> None:
    """Give each copy the stream synchronisation that belongs to it.

    That is the next one of its thread, on its stream, if the thread had the device do nothing else in between: so
    PyTorch and others write a blocking copy.
    """
    pairs = [pair for pair in _next_of_thread(waits, copies) if _same_stream(*pair)]
    unsure = [(copy, wait) for copy, wait in pairs if not _follows_directly(copy, wait)]
    gaps = [(copy.call, wait.call) for copy, wait in unsure if copy.call and wait.call]
    broken = {id(unsure[number][1]) for number in calls.interrupted(gaps)}
    for copy, wait in pairs:
        if id(wait) not in broken:
            wait.kind, wait.copy, copy.blocking = copy.direction, copy, True


def part_across_ranges(found: Waits) -> None:
    """Part copies from synchronisations in other ranges: a blocking copy's two calls are in the same one."""
    for wait in list(found.waits):
        copy = wait.copy
        if copy and wait.copy_call and wait.call and wait.copy_call.path != wait.call.path:
            wait.kind, wait.copy, copy.blocking = STREAM_SYNC, None, False
            found.waits += blocking_copies([copy])


def _next_of_thread(waits: list[Wait], copies: list[HostCopy]) -> list[tuple[HostCopy, Wait]]:
    """Each copy whose next synchronisation or copy, on its thread, is a stream synchronisation, with that."""
    events: list[tuple[int, int, HostCopy | Wait]] = [
        (copy.call.thread, copy.call.start, copy) for copy in copies if copy.call
    ]
    events += [(wait.call.thread, wait.start, wait) for wait in waits if wait.call]
    events.sort(key=lambda event: event[:2])
    return [
        (first, second)
        for (thread, _, first), (next_thread, _, second) in pairwise(events)
        if thread == next_thread
        and isinstance(first, HostCopy)
        and first.call
        and first.call.api.is_async  # else it has waited already
        and isinstance(second, Wait)
        and second.kind == STREAM_SYNC
    ]


def _same_stream(copy: HostCopy, wait: Wait) -> bool:
    stream = wait.row.stream if wait.row else None
    return copy.stream is None or stream is None or copy.stream == stream


def _follows_directly(copy: HostCopy, wait: Wait) -> bool:
    """Whether the process made no call at all in between: correlation ids count its calls."""
    before = copy.call.keys if copy.call else ()
    after = wait.call.key if wait.call else None
    return after is not None and bool(before) and after - max(before) == 1


def blocking_copies(copies: Iterable[HostCopy]) -> list[Wait]:
    """Copies whose own call waits: those without Async in their name, and to or from pageable memory."""
    waits = []
    waited = {id(copy.call) for copy in copies if copy.blocking}  # one call may copy several times
    for copy in copies:
        call = copy.call
        if call is None or id(call) in waited:
            continue
        if not call.api.is_async or (copy.pageable and copy.direction == DEVICE_TO_HOST):
            kind = copy.direction
        elif copy.pageable:
            kind = "htod_pageable_async"
        else:
            continue
        copy.blocking = True
        waited.add(id(call))
        waits.append(Wait(call.process, kind, call, call.start, call.end, copy=copy))
    return waits


def _other_waits(export: Export, rows: dict[Key, SyncRow], calls: Calls) -> tuple[list[Wait], list[str]]:
    """Waits inside other calls (``cudaFree``), and records whose call is not in the capture; what to say of them."""
    behind = calls.behind(rows) if rows else {}
    without_call = {key: row for key, row in rows.items() if key not in behind and row.type in _ROW_KINDS}
    undecided = sum(row.type == _EVENT_ROW for row in without_call.values())
    notes = []
    if undecided:
        notes.append(
            f"{undecided} records of events have no call in the capture: queries, in which the host does not wait, or "
            "synchronisations; they are left out"
        )
    if len(without_call) > undecided:
        notes.append(
            f"{len(without_call) - undecided} synchronisations have no call in the capture: their thread, ranges and "
            "call site are unknown, and blocked time is what the record of the synchronisation says"
        )
    waits = [
        Wait(process_of_key(key), _ROW_KINDS[without_call[key].type], None, start, end, without_call[key])
        for key, (start, end) in (sync_times(export, without_call) if without_call else {}).items()
        if without_call[key].type != _EVENT_ROW
    ]
    for key, call in behind.items():
        row = rows[key]
        if row.type in _ROW_KINDS and "Query" not in call.api.name:
            waits.append(Wait(call.process, _ROW_KINDS[row.type], call, call.start, call.end, row))
    return waits, notes


def _notes(export: Export, calls: Calls, found: Waits, copy_calls: int) -> list[str]:
    """What cannot be told of waits and copies."""
    notes = []
    if copy_calls and not copies_recorded(export):
        notes.append(
            f"no record of copies (table {MEMCPY}) though there are {copy_calls} calls of copies: "
            "direction, bytes and pageability are unknown, and copies that block are not among the syncs"
        )
    if found.waits and not syncs_recorded(export):
        notes.append(
            f"no record of synchronisations (table {SYNCHRONIZATION}): waits inside other calls (cudaFree, say) and "
            "the stream that was waited for are unknown"
        )
    launches = 0 if export.has(KERNEL, "start", "end", "globalPid") else calls.launches()
    if launches:
        notes.append(
            f"no record of kernels (table {KERNEL}) though there are {launches} launches: "
            "device idle is that between copies and memsets, and too high"
        )
    outside = sum(copy.call is None and not copy.in_graph for copy in found.copies)
    if outside and calls.recorded:
        notes.append(
            f"{outside} of {len(found.copies)} copies between host and device have no call in the capture: whether the "
            "host waited for them is unknown"
        )
    unknown = sum(copy.pageable is None for copy in found.copies)
    if unknown:
        notes.append(f"pageability of {unknown} of {len(found.copies)} copies is not recorded")
    return notes
