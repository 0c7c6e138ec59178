"""The timed steps of a run in its capture, and the syncs in them, a workload, variant and lead at a time.

A run puts a mark on the timeline before each of its stages (``mtp_bench.worker``); what counts here are the steps after
a mark that times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from mtp_bench.nsight.calls import process_of
from mtp_bench.nsight.idle import Gap, read_idle
from mtp_bench.nsight.ranges import Moment, Ranges
from mtp_bench.nsight.records import PROCESS
from mtp_bench.nsight.sqlite import NVTX, STRINGS, Export, open_export
from mtp_bench.nsight.syncs import Wait, read_waits
from mtp_bench.ranges import DOMAIN, STAGE

_MARK, _START_END = 34, 60  # eventType

OwnPath = tuple[str, ...]
"""Texts of the ranges of domain ``mtp_bench`` around a moment, outermost first."""


@dataclass(frozen=True, slots=True)
class StepSync:
    """One wait of the host within a step. ``gap`` is when the device idled around its end, None where unknown."""

    range: OwnPath
    kind: str
    blocked_ns: int
    gap: Gap | None


@dataclass(slots=True)
class Steps:
    """``count`` steps, and all syncs in them."""

    count: int = 0
    syncs: list[StepSync] = field(default_factory=list)


@dataclass(slots=True)
class TimedSteps:
    """Steps by workload, variant and stage (``time at lead 1 ms``), the version of nsys, and whether it saw CUDA."""

    nsys: str
    has_cuda: bool
    steps: dict[tuple[str, str, str], Steps]


def read_steps(path: Path) -> TimedSteps:
    """Read the SQLite export at ``path``. Raises InputError where it is none."""
    with open_export(path) as export:
        found = read_waits(export)
        waits = [wait for wait in found.waits if wait.call is not None]
        starts = _step_starts(export)
        moments = [*starts, *map(_moment, waits)]
        paths = Ranges(export, moments).paths(moments)
        own = {at: tuple(name.text for name in path if name.domain == DOMAIN) for at, path in paths.items()}
        stages = _Stages(export)
        gaps = read_idle(export, [(wait.process, wait.end) for wait in waits]).gaps
        steps: dict[tuple[str, str, str], Steps] = defaultdict(Steps)
        for moment in starts:
            if own[moment][-1:] == ("step",) and (key := stages.key(moment, own[moment])):
                steps[key].count += 1
        for wait in waits:
            at = _moment(wait)
            if key := stages.key(at, own[at]):
                gap = gaps[wait.process][wait.end]
                steps[key].syncs.append(StepSync(own[at], wait.kind, wait.blocked_ns, gap))
        return TimedSteps(export.tool_version, bool(found.waits or found.event_queries), dict(steps))


class _Stages:
    """What a process did at a time, by the last mark before it."""

    def __init__(self, export: Export) -> None:
        self._times: dict[int, list[int]] = defaultdict(list)
        self._texts: dict[int, list[str]] = defaultdict(list)
        for process, at, text in _events(export, _MARK, f"GLOB '{STAGE}*'"):
            self._times[process].append(at)
            self._texts[process].append(text.removeprefix(STAGE))

    def key(self, moment: Moment, path: OwnPath) -> tuple[str, str, str] | None:
        """Workload, variant and stage of a moment within a step; None outside of all steps and stages."""
        thread, at = moment
        process = process_of(thread)
        mark = bisect_right(self._times[process], at)
        named = {text.partition(":")[0]: text.partition(":")[2] for text in path}
        if not mark or "step" not in named or not named.keys() >= {"workload", "variant"}:
            return None
        return named["workload"], named["variant"], self._texts[process][mark - 1]


def _step_starts(export: Export) -> list[Moment]:
    return [(thread, at) for thread, at, _ in _events(export, _START_END, "= 'step'", by_process=False)]


def _moment(wait: Wait) -> Moment:
    assert wait.call is not None
    return wait.call.thread, wait.start


def _events(export: Export, event_type: int, text: str, *, by_process: bool = True) -> list[tuple[int, int, str]]:
    """Process (or thread), time and text of the NVTX events of a type whose text is as the SQL ``text`` says."""
    if not export.has(NVTX, "start", "eventType", "globalTid"):
        return []
    texts = [export.column(NVTX, "text")]
    if export.has(STRINGS, "id", "value") and export.column(NVTX, "textId") != "NULL":
        texts.append(f"(SELECT value FROM {STRINGS} WHERE id = textId)")
    who = PROCESS.format("globalTid") if by_process else "CAST(globalTid AS INTEGER)"
    rows = export.rows(
        f"SELECT {who}, CAST(start AS INTEGER), coalesce({', '.join([*texts, 'NULL'])}) AS said FROM {NVTX} "
        f"WHERE eventType = {event_type} AND globalTid IS NOT NULL AND said {text} ORDER BY start"
    )
    return list(rows)
