"""``read_capture``: a capture of Nsight Systems, from its file to syncs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path as FilePath

from mtp_bench.collector import without_collector
from mtp_bench.nsight.callchains import callchains_recorded, read_callchains
from mtp_bench.nsight.calls import Call
from mtp_bench.nsight.grouping import group_copies, group_syncs, sum_up
from mtp_bench.nsight.idle import Idle, activities_recorded, read_idle
from mtp_bench.nsight.model import Capture, Diagnostic, NotSyncs, RangeName, Source
from mtp_bench.nsight.ranges import Path, Ranges
from mtp_bench.nsight.sqlite import (
    DIAGNOSTICS,
    GRAPH_TRACE,
    NEWEST,
    NVTX,
    RUNTIME,
    STRINGS,
    SYNCHRONIZATION,
    Export,
    open_export,
    schema_version,
)
from mtp_bench.nsight.syncs import Waits, part_across_ranges, read_waits
from mtp_bench.nsight.text import printable
from mtp_bench.ranges import DOMAIN

_SEVERITIES = {1: "information", 2: "warning", 3: "error"}
_LOSS = re.compile(r"drop|los[st]|overflow|incomplete|not all|missing|discard|skipped|too many", re.IGNORECASE)


def read_capture(path: FilePath, *, range_glob: str | None = None) -> Capture:
    """Read the SQLite export at ``path``, through SQL on the file itself; nothing is written.

    With ``range_glob`` only what happened inside a matching range is kept. The pattern is a shell's, and is held
    against the ranges of a path, each as ``text`` and as ``text@domain``, and against the whole of it, ``a > b > c``.

    Raises:
        InputError: ``path`` is no export that can be read.
    """
    # Some objects a sync, and no cycles among them: the collector would only walk them, again and again.
    with open_export(path) as export, without_collector():
        found = read_waits(export)
        calls = _calls(found, with_others=range_glob is not None)
        around = Ranges(export, ((call.thread, call.start) for call in calls))
        around.place(calls)
        own = around.own()
        part_across_ranges(found)
        if range_glob is not None:
            matches = _matcher(range_glob)
            _keep(found, matches)
            own = tuple(row for row in own if matches(tuple(RangeName(DOMAIN, text) for text in row.path)))
            if not (found.waits or found.copies or around.exists(export, range_glob)):
                found.notes.insert(0, f"no range like '{printable(range_glob)}' is in the capture")
        idle = read_idle(export, ((wait.process, wait.end) for wait in found.waits))
        chains = read_callchains(export, _chain_ids(found))
        diagnostics = _diagnostics(export)
        return Capture(
            source=Source("nsys", export.tool_version, export.schema, printable(str(path))),
            missing=(
                *_missing(export, found, around, idle),
                *(f"nsys {said.severity}: {said.text}" for said in diagnostics),
            ),
            diagnostics=diagnostics,
            totals=sum_up(found.waits, found.copies, idle),
            not_syncs=NotSyncs(len(found.event_queries), len(found.stream_waits) + found.stream_wait_rows),
            syncs=group_syncs(found.waits, idle, chains),
            copies=group_copies(found.copies),
            ranges=own,
        )


def _calls(found: Waits, with_others: bool) -> list[Call]:
    """The calls whose ranges are asked for."""
    calls = [wait.call for wait in found.waits] + [copy.call for copy in found.copies]
    if with_others:
        calls += [*found.event_queries, *found.stream_waits]
    return [call for call in calls if call]


def _matcher(glob: str) -> Callable[[Path], bool]:
    known: dict[Path, bool] = {}

    def matches(path: Path) -> bool:
        if path not in known:
            texts = [" > ".join(name.text for name in path), *(name.text for name in path)]
            texts += [f"{name.text}@{name.domain}" for name in path]
            known[path] = any(fnmatchcase(text, glob) for text in texts)
        return known[path]

    return matches


def _keep(found: Waits, matches: Callable[[Path], bool]) -> None:
    """Keep what happened in ranges that match."""
    found.waits = [wait for wait in found.waits if wait.call and matches(wait.call.path)]
    found.copies = [copy for copy in found.copies if copy.call and matches(copy.call.path)]
    found.event_queries = [call for call in found.event_queries if matches(call.path)]
    found.stream_waits = [call for call in found.stream_waits if matches(call.path)]
    found.stream_wait_rows = 0


def _chain_ids(found: Waits) -> Iterator[int]:
    for wait in found.waits:
        for call in (wait.call, wait.copy_call):
            if call and call.callchain is not None:
                yield call.callchain


def _missing(export: Export, found: Waits, around: Ranges, idle: Idle) -> Iterator[str]:
    """What the capture cannot tell, the largest gap first."""
    has_calls, has_activities = found.calls_recorded, activities_recorded(export)
    if not (export.has(RUNTIME) or has_activities or export.has(SYNCHRONIZATION)):
        yield "no CUDA trace: there is nothing about syncs, copies and device idle; profile with --trace=cuda,nvtx"
    elif not has_calls:
        table = STRINGS if export.has(RUNTIME) and not export.has(STRINGS) else RUNTIME
        yield f"no CUDA calls (table {table}): which call waited, on which thread and in which range is unknown"
    if not around.recorded:
        yield f"no NVTX ranges (table {NVTX}): syncs have no range; profile with --trace=cuda,nvtx"
    if has_calls and not has_activities:
        yield "no device activity (kernels, copies, memsets): device idle is unknown"
    unknown = sum(idle.gaps[wait.process][wait.end] is None for wait in found.waits)
    if unknown and has_activities:
        yield f"device idle of {unknown} of {len(found.waits)} syncs is unknown: the capture has not both ends of it"
    if has_calls and not callchains_recorded(export):
        yield (
            "no call chains: where in the code a sync comes from is unknown; "
            "profile with --cudabacktrace=sync:0,memory:0, or --python-backtrace=cuda, and CPU sampling on"
        )
    if export.has(GRAPH_TRACE):
        yield "CUDA graphs are recorded as a whole: what ran inside them is unknown; --cuda-graph-trace=node records it"
    yield from found.notes
    yield from export.lacking()
    if not export.schema:
        yield "the file does not say of which schema it is"
    elif schema_version(export.schema)[:2] > NEWEST:
        newest = ".".join(map(str, NEWEST))
        yield f"schema {export.schema} is newer than {newest}, the newest that was tried: check a number or two"


def _diagnostics(export: Export) -> tuple[Diagnostic, ...]:
    """Warnings and errors of the profiler, and information on what it lost; each text once, in the file's order."""
    if not export.has(DIAGNOSTICS, "severity", "text"):
        return ()
    rows = export.rows(
        f"SELECT CAST(severity AS INTEGER), CAST(text AS TEXT) FROM {DIAGNOSTICS} "
        f"WHERE severity IN ({', '.join(map(str, _SEVERITIES))}) GROUP BY 1, 2 ORDER BY min(rowid)"
    )
    return tuple(
        Diagnostic(_SEVERITIES[severity], printable(" ".join(text.split())))
        for severity, text in rows
        if severity > 1 or _LOSS.search(text)
    )
