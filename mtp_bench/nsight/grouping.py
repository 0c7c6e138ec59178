"""Rows and totals of a capture from its single waits and copies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from mtp_bench.nsight.callchains import Stack, site
from mtp_bench.nsight.calls import Role, thread_id
from mtp_bench.nsight.idle import Idle
from mtp_bench.nsight.model import CapturedCopy, CapturedSync, Totals
from mtp_bench.nsight.ranges import Path
from mtp_bench.nsight.records import DEVICE_TO_HOST, HOST_TO_DEVICE, HostCopy
from mtp_bench.nsight.syncs import STREAM_SYNC, Wait
from mtp_bench.nsight.text import is_operator

UNKNOWN_API = "(unknown)"


def group_syncs(waits: Iterable[Wait], idle: Idle, chains: Mapping[int, Stack]) -> tuple[CapturedSync, ...]:
    """Waits by thread, device, path, call, kind, call chain and pageability, the longest blocked first."""
    groups: dict[tuple[object, ...], list[Wait]] = defaultdict(list)
    for wait in waits:
        key = (
            wait.process,
            wait.call.thread if wait.call else None,
            _device(wait, idle),
            wait.call.path if wait.call else (),
            wait.call.api if wait.call else None,
            wait.copy_call.api if wait.copy_call else None,
            wait.kind,
            _stack(wait, chains),
            wait.copy.pageable if wait.copy else None,
        )
        groups[key].append(wait)
    rows = [_sync(group, idle, chains) for group in groups.values()]
    return tuple(sorted(rows, key=lambda row: (-row.blocked_ns, row.process, row.thread or 0)))


def _sync(group: Sequence[Wait], idle: Idle, chains: Mapping[int, Stack]) -> CapturedSync:
    first = group[0]
    stack = _stack(first, chains)
    path = first.call.path if first.call else ()
    return CapturedSync(
        process=first.process,
        thread=thread_id(first.call.thread) if first.call else None,
        device=_device(first, idle),
        range=path,
        api=first.call.api.name if first.call else UNKNOWN_API,
        copy_api=first.copy_call.api.name if first.copy_call else None,
        kind=first.kind,
        op=_operator(path),
        site=site(stack),
        stack=stack,
        pageable=first.copy.pageable if first.copy else None,
        bytes=sum(wait.copy.bytes for wait in group if wait.copy) if first.copy else None,
        count=len(group),
        blocked_ns=sum(wait.blocked_ns for wait in group),
        copy_ns=sum(wait.copy_ns for wait in group),
        device_idle_ns=_idle_ns(group, idle),
    )


def group_copies(copies: Iterable[HostCopy]) -> tuple[CapturedCopy, ...]:
    """Copies by thread, device, path, direction, pageability and size, the most frequent first."""
    groups: dict[tuple[object, ...], list[HostCopy]] = defaultdict(list)
    for copy in copies:
        thread = copy.call.thread if copy.call else None
        place = (copy.process, thread, copy.device, copy.call.path if copy.call else ())
        groups[(*place, copy.direction, copy.pageable, copy.bytes)].append(copy)
    rows = [
        CapturedCopy(
            process=group[0].process,
            thread=thread_id(group[0].call.thread) if group[0].call else None,
            device=group[0].device,
            range=group[0].call.path if group[0].call else (),
            direction=group[0].direction,
            pageable=group[0].pageable,
            bytes=group[0].bytes,
            count=len(group),
            blocking=sum(copy.blocking for copy in group),
        )
        for group in groups.values()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.count, row.process, row.thread or 0, row.direction, row.bytes)))


def sum_up(waits: Sequence[Wait], copies: Sequence[HostCopy], idle: Idle) -> Totals:
    """Totals of a capture."""
    calls = Counter(STREAM_SYNC if wait.copy_call else wait.kind for wait in waits)
    to_device = [copy for copy in copies if copy.direction == HOST_TO_DEVICE]
    to_host = [copy for copy in copies if copy.direction == DEVICE_TO_HOST]
    return Totals(
        stream_sync=calls[STREAM_SYNC],
        device_sync=calls[Role.DEVICE_SYNC.value],
        event_sync=calls[Role.EVENT_SYNC.value],
        dtoh=len(to_host),
        htod=len(to_device),
        dtoh_pageable=sum(copy.pageable is True for copy in to_host),
        htod_pageable=sum(copy.pageable is True for copy in to_device),
        syncs=len(waits),
        blocked_ns=sum(wait.blocked_ns for wait in waits),
        copy_ns=sum(wait.copy_ns for wait in waits),
        device_idle_ns=_idle_ns(waits, idle),
    )


def _stack(wait: Wait, chains: Mapping[int, Stack]) -> Stack:
    """The call chain of the call that waits, or of the copy's."""
    ids = [call.callchain for call in (wait.call, wait.copy_call) if call and call.callchain is not None]
    return next((chains[number] for number in ids if number in chains), ())


def _operator(path: Path) -> str | None:
    return next((name.text for name in reversed(path) if is_operator(name.text)), None)


def _device(wait: Wait, idle: Idle) -> int | None:
    """The copy's device, else that of the context: the table of synchronisations has 0 for every process."""
    if wait.copy:
        return wait.copy.device
    return idle.device(wait.process, wait.row.context if wait.row else None)


def _idle_ns(waits: Iterable[Wait], idle: Idle) -> int | None:
    """The gaps around the waits, each once; None where none is known."""
    gaps = {(wait.process, idle.gaps[wait.process][wait.end]) for wait in waits}
    known = [gap for _, gap in gaps if gap is not None]
    return sum(end - begin for begin, end in known) if known else None
