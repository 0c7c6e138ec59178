"""What a capture of Nsight Systems says about syncs: plain values, the same for every export schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class RangeName(NamedTuple):
    """One NVTX range of a path. ``domain`` is "" for NVTX's default domain."""

    domain: str
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where a capture comes from. ``version`` is the tool's, ``schema`` the export's; "" where the file has none."""

    kind: str
    version: str
    schema: str
    file: str


@dataclass(frozen=True, slots=True)
class CapturedSync:
    """Syncs of one thread that share range path, API, kind, call site, device and pageability.

    ``range`` is the NVTX path, outermost first. ``api`` is the call that waited, without its version; of a blocking
    copy that consists of two calls it is the synchronisation, and ``copy_api`` the copy. ``op`` is the innermost
    PyTorch operator among the ranges. ``stack`` is the call chain where one was recorded, innermost first, ``site`` the
    frame of it that tells most. ``bytes`` is the sum over the syncs, None where there is no copy. ``copy_ns`` is the
    part of ``blocked_ns`` that was spent in copy calls. ``device_idle_ns`` is None where the capture does not hold both
    ends of the gap; a gap that syncs of a row share counts once.
    """

    process: int
    thread: int | None
    device: int | None
    range: tuple[RangeName, ...]
    api: str
    copy_api: str | None
    kind: str
    op: str | None
    site: str | None
    stack: tuple[str, ...]
    pageable: bool | None
    bytes: int | None
    count: int
    blocked_ns: int
    copy_ns: int
    device_idle_ns: int | None


@dataclass(frozen=True, slots=True)
class CapturedCopy:
    """Copies between host and device of one thread that share range path, direction, pageability and size.

    ``direction`` is ``htod`` or ``dtoh``; ``bytes`` is the size of one copy; ``blocking`` is how many of ``count`` are
    part of a sync. ``thread`` is None, and ``range`` empty, where the call is outside the capture.
    """

    process: int
    thread: int | None
    device: int | None
    range: tuple[RangeName, ...]
    direction: str
    pageable: bool | None
    bytes: int
    count: int
    blocking: int


@dataclass(frozen=True, slots=True)
class CapturedRange:
    """Ranges of domain ``mtp_bench`` of one process that share a path: that domain's ranges, outermost first.

    One that the capture does not see end counts without its time.
    """

    process: int
    path: tuple[str, ...]
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a capture.

    ``stream_sync``, ``device_sync`` and ``event_sync`` count synchronise calls, and the four of copies count copies, as
    the capture has them; ``syncs`` counts host syncs, a copy and its synchronisation being one. ``device_idle_ns``
    counts a gap that several syncs share once, and is None where the capture shows no device work around any sync.
    """

    stream_sync: int
    device_sync: int
    event_sync: int
    dtoh: int
    htod: int
    dtoh_pageable: int
    htod_pageable: int
    syncs: int
    blocked_ns: int
    copy_ns: int
    device_idle_ns: int | None


@dataclass(frozen=True, slots=True)
class NotSyncs:
    """Calls that stand in a capture's table of synchronisations though the host does not wait in them."""

    event_query: int
    stream_wait: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What the tool itself had to say about the capture. ``severity`` is ``information``, ``warning`` or ``error``."""

    severity: str
    text: str


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture, read.

    ``missing`` says, a sentence each, what it cannot tell, ``diagnostics`` included; to be shown first. ``syncs`` are
    in descending order of ``blocked_ns``, ``copies`` of how many there are, ``ranges`` in order of opening.
    """

    source: Source
    missing: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
    totals: Totals
    not_syncs: NotSyncs
    syncs: tuple[CapturedSync, ...]
    copies: tuple[CapturedCopy, ...]
    ranges: tuple[CapturedRange, ...]
