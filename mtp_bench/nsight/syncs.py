"""Where the host waited: which calls of a capture are syncs, of what kind, and with which copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from mtp_bench.nsight.calls import (
    DEVICE_TO_HOST,
    Call,
    Calls,
    HostCopy,
    Key,
    Role,
    SyncRow,
    count_stream_wait_rows,
    host_copies,
    sync_rows,
)
from mtp_bench.nsight.sqlite import MEMCPY, SYNCHRONIZATION, Export

_SYNC_ROLES = (Role.STREAM_SYNC, Role.DEVICE_SYNC, Role.EVENT_SYNC)
# syncType of rows whose call is none of CUDA's synchronise calls (cudaFree waits for the context, say).
_ROW_KINDS = {1: "event_sync", 3: "stream_sync", 4: "device_sync"}
_EVENT_ROW = 1


@dataclass(slots=True, eq=False)
class Wait:
    """The host waits once: a synchronisation, a blocking copy, or the two calls of a blocking copy.

    ``call`` is None where the capture has the record of a synchronisation without its call; then only the process is
    known. ``row`` is that record.
    """

    process: int
    kind: str
    call: Call | None
    start: int
    end: int
    row: SyncRow | None = None
    copy: HostCopy | None = None

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


@dataclass(slots=True)
class Waits:
    """All waits of a capture, its copies between host and device, what looks like a wait, and what cannot be told."""

    waits: list[Wait]
    copies: list[HostCopy]
    event_queries: list[Call]
    stream_waits: list[Call]
    stream_wait_rows: int
    notes: list[str] = field(default_factory=list)


def read_waits(export: Export) -> Waits:
    """Find the waits of ``export``."""
    calls = Calls(export)
    copies = host_copies(export)
    rows = sync_rows(export)
    by_role: dict[Role, list[Call]] = {role: [] for role in Role}
    waiting = calls.waiting()
    for call in waiting:
        by_role[call.api.role].append(call)
    found = Waits(
        waits=[],
        copies=copies,
        event_queries=by_role[Role.EVENT_QUERY],
        stream_waits=by_role[Role.STREAM_WAIT],
        stream_wait_rows=0 if calls.recorded else count_stream_wait_rows(export),
    )
    copy_calls = {key: call for call in by_role[Role.COPY] for key in call.keys}
    for copy in copies:
        copy.call = copy_calls.get(copy.key)
    row_of = {id(call): row for call in waiting if (row := _take(rows, call)) is not None}
    found.waits += [
        Wait(call.process, role.value, call, call.start, call.end, row_of.get(id(call)))
        for role in _SYNC_ROLES
        for call in by_role[role]
    ]
    _join_copies(found.waits, found.copies, calls)
    found.waits += _blocking_copies(found.copies)
    found.waits += _other_waits(rows, calls, found.notes)
    found.notes += _what_cannot_be_told(export, calls, by_role, found.copies)
    return found


def _take(rows: dict[Key, SyncRow], call: Call) -> SyncRow | None:
    """The record of a call, taken out of ``rows``, so that those of other calls are left."""
    taken = [rows.pop(key) for key in call.keys if key in rows]
    return taken[0] if taken else None


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
            join(wait, copy)


def join(wait: Wait, copy: HostCopy) -> None:
    """Make one sync of a stream synchronisation and the copy it belongs to."""
    wait.kind, wait.copy, copy.blocking = copy.direction, copy, True


def part(wait: Wait, copy: HostCopy) -> Wait | None:
    """Undo :func:`join`; what is returned is the wait in the copy itself, if it has one."""
    wait.kind, wait.copy, copy.blocking = Role.STREAM_SYNC.value, None, False
    return next(iter(_blocking_copies([copy])), None)


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
        and isinstance(second, Wait)
        and second.kind == Role.STREAM_SYNC.value
    ]


def _same_stream(copy: HostCopy, wait: Wait) -> bool:
    stream = wait.row.stream if wait.row else None
    return copy.stream is None or stream is None or copy.stream == stream


def _follows_directly(copy: HostCopy, wait: Wait) -> bool:
    """Whether the process made no call at all in between: correlation ids count its calls."""
    if copy.call is None or wait.call is None or not copy.call.correlations or not wait.call.correlations:
        return False
    return wait.call.correlations[0] - copy.call.correlations[-1] == 1


def _blocking_copies(copies: list[HostCopy]) -> list[Wait]:
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


def _other_waits(rows: dict[Key, SyncRow], calls: Calls, notes: list[str]) -> list[Wait]:
    """Waits inside other calls (``cudaFree``), and records whose call is not in the capture."""
    behind = calls.behind(rows) if rows else {}
    waits = []
    undecided = without_call = 0
    for key, row in rows.items():
        call = behind.get(key)
        kind = _ROW_KINDS.get(row.type)
        if kind is None or (call is not None and "Query" in call.api.name):
            continue
        if call is None and row.type == _EVENT_ROW:
            undecided += 1
            continue
        start, end = (call.start, call.end) if call else (row.start, row.end)
        without_call += call is None
        waits.append(Wait(key[0], kind, call, start, end, row))
    if undecided:
        notes.append(
            f"{undecided} records of events have no call in the capture: queries, in which the host does not wait, or "
            "synchronisations; they are left out"
        )
    if without_call:
        notes.append(
            f"{without_call} synchronisations have no call in the capture: their thread, ranges and call site are "
            "unknown, and blocked time is what the record of the synchronisation says"
        )
    return waits


def _what_cannot_be_told(
    export: Export, calls: Calls, by_role: dict[Role, list[Call]], copies: list[HostCopy]
) -> list[str]:
    notes = []
    has_copies = export.has(MEMCPY)
    if by_role[Role.COPY] and not has_copies:
        notes.append(
            f"no record of copies (table {MEMCPY}) though there are {len(by_role[Role.COPY])} calls of copies: "
            "direction, bytes and pageability are unknown, and copies that block are not among the syncs"
        )
    syncs = sum(len(by_role[role]) for role in _SYNC_ROLES)
    if syncs and not export.has(SYNCHRONIZATION):
        notes.append(
            f"no record of synchronisations (table {SYNCHRONIZATION}): waits inside other calls (cudaFree, say) and "
            "the stream that was waited for are unknown"
        )
    outside = sum(copy.call is None and not copy.in_graph for copy in copies)
    if outside and calls.recorded:
        notes.append(
            f"{outside} of {len(copies)} copies between host and device have no call in the capture: whether the host "
            "waited for them is unknown"
        )
    unknown = sum(copy.pageable is None for copy in copies)
    if unknown:
        notes.append(f"pageability of {unknown} of {len(copies)} copies is not recorded")
    return notes
