"""One synchronisation, and the sum of those that happen at one place."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from dataclasses import dataclass

from mtp_bench.syncs.callsite import Frame

KINDS = (
    "item",  # a scalar read: .item(), bool(), int(), slicing with a 0-d device tensor
    "dtoh",  # a blocking copy to the host
    "htod",  # a blocking copy from the host
    "htod_pageable_async",  # non_blocking from pageable memory: staged by the driver, which may wait
    "dynamic_shape",  # the size of the result is known to the device only
    "data_dependent",  # the operator itself reads a value to decide what to do
    "stream_sync",
    "event_sync",
    "device_sync",
)


@dataclass(frozen=True, slots=True)
class Sync:
    """One point where the host waits for the device.

    ``stack`` runs from the call site outwards. ``range`` is the NVTX path, outermost first. Times are nanoseconds, and
    None where the detector gives none (PyTorch's debug mode has no durations).
    """

    kind: str
    op: str
    stack: tuple[Frame, ...]
    phase: str = "forward"
    range: tuple[str, ...] = ()
    blocked_ns: int | None = None
    device_idle_ns: int | None = None
    seen_by: str = "sim"

    @property
    def file(self) -> str:
        """Path of the call site, relative to the ``sys.path`` entry that holds it."""
        return self.stack[0].file if self.stack else "<unknown>"

    @property
    def line(self) -> int:
        """Line number of the call site, from 1; 0 where unknown."""
        return self.stack[0].line if self.stack else 0

    @property
    def function(self) -> str:
        """Qualified name of the function that holds the call site."""
        return self.stack[0].function if self.stack else "<unknown>"

    @property
    def code(self) -> str:
        """The source line at the call site, stripped; empty where the source is not to be had."""
        return linecache.getline(self.stack[0].path, self.stack[0].line).strip() if self.stack else ""


@dataclass(frozen=True, slots=True)
class SyncSite:
    """All syncs of one step that share call site, operator, kind, phase and range."""

    first: Sync
    count: int
    blocked_ns: int | None
    device_idle_ns: int | None
    seen_by: tuple[str, ...]


def by_site(syncs: Iterable[Sync]) -> list[SyncSite]:
    """Group ``syncs`` by place, in the order in which the places were first seen."""
    groups: dict[tuple[object, ...], list[Sync]] = {}
    for sync in syncs:
        key = (sync.file, sync.line, sync.function, sync.op, sync.kind, sync.phase, sync.range)
        groups.setdefault(key, []).append(sync)
    return [
        SyncSite(
            first=group[0],
            count=len(group),
            blocked_ns=total_known(sync.blocked_ns for sync in group),
            device_idle_ns=total_known(sync.device_idle_ns for sync in group),
            seen_by=tuple(sorted({sync.seen_by for sync in group})),
        )
        for group in groups.values()
    ]


def total_known(values: Iterable[int | None]) -> int | None:
    """The sum of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
