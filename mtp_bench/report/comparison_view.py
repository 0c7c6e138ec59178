"""What a report of a comparison shows, once for all formats: nine parts in one order, still without layout.

Nothing here is made harmless: names, code and error texts are as the runs have them, and every renderer sees to it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mtp_bench import __version__
from mtp_bench.compare import Comparison, Row, Verdict
from mtp_bench.compare.cautions import ADVICE, Kind, subjects
from mtp_bench.compare.pairs import leads_in_words
from mtp_bench.compare.summary import summary
from mtp_bench.compare.verdicts import finite
from mtp_bench.report.sites_view import SiteView, site_views
from mtp_bench.report.words import environment_line, who_at
from mtp_bench.results import Numerics, Result, Run


@dataclass(frozen=True, slots=True)
class CautionView:
    """One kind of caution with its advice, and where it was found: (detail, whom it concerns) each once."""

    kind: Kind
    advice: str
    found: tuple[tuple[str, str], ...]  # whom: "" where it concerns all


@dataclass(frozen=True, slots=True)
class TableView:
    """The rows of one table: of one lead of a group, or of several at which all figures are the same."""

    heading: str
    leads_ms: tuple[float, ...]
    rows: tuple[Row, ...]  # at the first of the leads

    @property
    def leads(self) -> str:
        """``lead 1 ms``, ``leads 0, 1 and 10 ms``."""
        return leads_in_words(self.leads_ms)

    @property
    def modelled(self) -> bool:
        """Whether all its times are modelled."""
        return all(row.modelled for row in self.rows)


@dataclass(frozen=True, slots=True)
class GroupView:
    """One workload in one scope against one baseline: a table a lead, and what there is to say of its rows."""

    heading: str
    workload: str
    scope: str
    harness: str  # of scope "step", where all rows have one; else ""
    baseline: str
    tables: tuple[TableView, ...]
    notes: tuple[str, ...]  # "boundary_roll, host_lens: faster: why"


@dataclass(frozen=True, slots=True)
class ForestEntry:
    """A row of the forest plot; ``ratio`` is None where there is none. ``threshold`` is a fraction of the baseline."""

    group: str
    label: str
    verdict: Verdict
    modelled: bool
    ratio: float | None
    low: float | None
    high: float | None
    threshold: float


@dataclass(frozen=True)
class SampleLane:
    """The measured windows of one run on one side of a row, in the order they were measured.

    ``reference_ns`` is the median of the baseline, which a distribution is drawn against. All times are finite.
    """

    group: str
    label: str
    baseline: bool
    step_ns: tuple[float, ...]
    throttled: tuple[bool, ...]
    clock_mhz: tuple[int | None, ...]
    reference_ns: float

    @property
    def kept_ns(self) -> tuple[float, ...]:
        """The windows that count: those without throttling, unless all had it."""
        kept = tuple(ns for ns, hot in zip(self.step_ns, self.throttled, strict=True) if not hot)
        return kept or self.step_ns

    @cached_property
    def quartiles_ns(self) -> tuple[float, float, float, float, float]:
        """Minimum, lower quartile, median, upper quartile and maximum of the windows that count."""
        low, lower, middle, upper, high = np.quantile(self.kept_ns, [0, 0.25, 0.5, 0.75, 1]).tolist()
        return low, lower, middle, upper, high

    @property
    def clock_range_mhz(self) -> tuple[int, int] | None:
        """The lowest and the highest SM clock; None where it is not known."""
        known = [mhz for mhz in self.clock_mhz if mhz is not None]
        return (min(known), max(known)) if known else None


@dataclass(frozen=True, slots=True)
class ValuesView:
    """The values of one variant on one workload: of ``who``, all leads and runs that agree on them."""

    workload: str
    scope: str
    who: str
    baseline: bool
    numerics: Numerics


@dataclass(frozen=True, slots=True)
class RunView:
    """How one run came about. ``created_at`` is in ISO 8601; ``version`` is that of mtp-bench."""

    side: str
    label: str
    command: str
    environment: str
    created_at: str
    seed: int
    version: str


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """All that a report shows, in the order in which it shows it."""

    verdict: str
    failures: tuple[str, ...]  # 1: of the gates, and what they cannot tell
    undecided: tuple[str, ...]
    environment_differences: tuple[str, ...]  # 2
    cautions: tuple[CautionView, ...]
    notes: tuple[str, ...]  # what was left out of the comparison
    groups: tuple[GroupView, ...]  # 3
    forest: tuple[ForestEntry, ...]  # 4
    lanes: tuple[SampleLane, ...]  # 5 and 6
    sites: tuple[SiteView, ...]  # 7
    values: tuple[ValuesView, ...]  # 8
    runs: tuple[RunView, ...]  # 9
    command: str  # that compared; "" from Python
    threshold: str
    version: str  # of the mtp-bench that compared

    @classmethod
    def of(cls, comparison: Comparison) -> ComparisonView:
        """Sort out a comparison for a report."""
        groups = tuple(_group(comparison, rows) for rows in _by_group(comparison))
        tables = [table for group in groups for table in group.tables]
        run_of = _RunNames(comparison)
        return cls(
            verdict=summary(comparison),
            failures=comparison.judgement.failures,
            undecided=comparison.judgement.undecided,
            environment_differences=comparison.environment_differences,
            cautions=tuple(_cautions(comparison)),
            notes=comparison.notes,
            groups=groups,
            forest=tuple(_forest_entry(table.heading, row) for table in tables for row in table.rows),
            lanes=tuple(lane for table in tables for lane in _lanes(table, run_of)),
            sites=site_views(comparison.rows),
            values=tuple(view for group in groups for view in _values(group, run_of)),
            runs=tuple(_run(side.label, label, run) for side in comparison.sides for label, run in side.runs),
            command=comparison.command,
            threshold=str(comparison.threshold),
            version=__version__,
        )


def regressed(row: Row) -> bool:
    """Whether a reviewer must look at a row first: slower, more syncs, or worse values."""
    return row.verdict == "slower" or any((change or 0) > 0 for change in (row.syncs_change, row.values_change))


def _has_results(row: Row) -> bool:
    """Whether there is anything to show in a table; where one of two runs lacks it altogether, a note says so."""
    return bool(row.baseline_results or row.candidate_results)


def _by_group(comparison: Comparison) -> list[list[Row]]:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in comparison.rows:
        groups.setdefault((row.workload, row.scope, _baseline(comparison, row)), []).append(row)
    return list(groups.values())


def _baseline(comparison: Comparison, row: Row) -> str:
    return row.baseline if comparison.within else comparison.sides[0].label


def _group(comparison: Comparison, rows: Sequence[Row]) -> GroupView:
    first = rows[0]
    shown = [row for row in rows if _has_results(row)]
    baseline = _baseline(comparison, first)
    harness = _harness(shown)
    heading = f"{first.workload}, scope {first.scope}{f', harness {harness}' if harness else ''}"
    tables = tuple(
        TableView(f"{heading}, {leads_in_words(leads_ms)}, baseline {baseline}", leads_ms, of_lead)
        for leads_ms, of_lead in _by_lead(shown)
    )
    return GroupView(
        f"{heading}, baseline {baseline}", first.workload, first.scope, harness, baseline, tables, tuple(_notes(rows))
    )


def _by_lead(rows: Sequence[Row]) -> Iterator[tuple[tuple[float, ...], tuple[Row, ...]]]:
    """The rows of every lead; leads whose rows show the same figures together, as a model has them."""
    by_lead: dict[float, list[Row]] = {}
    for row in rows:
        if row.lead_ms is not None:
            by_lead.setdefault(row.lead_ms, []).append(row)
    alike: dict[object, list[float]] = {}
    for lead_ms, found in by_lead.items():
        same = tuple(map(_figures, found)) if all(row.modelled for row in found) else lead_ms
        alike.setdefault(same, []).append(lead_ms)
    for leads_ms in alike.values():
        yield tuple(leads_ms), tuple(by_lead[leads_ms[0]])


def _figures(row: Row) -> object:
    """All that a table shows of a row with modelled times, which it shows in tenths of a microsecond."""
    found = row.difference
    times = found and tuple(round(ns / 100) for ns in (found.ns, found.baseline_ns, found.candidate_ns))
    return row.candidate, row.verdict, row.reason, times, row.syncs, row.values, row.ops, row.peak_bytes


def _harness(rows: Sequence[Row]) -> str:
    """The harness of scope ``step``, where all rows have one."""
    found = {r.harness for row in rows for r in (*row.baseline_results, *row.candidate_results) if r.scope == "step"}
    return found.pop() if len(found) == 1 else ""


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    """The reason of every verdict, why a result is missing, and what a run warned of: each once, with whom."""
    said: dict[str, dict[str, list[float | None]]] = {}
    everywhere: dict[str, list[float | None]] = {}
    for row in rows:
        for name, results in ((row.candidate, row.candidate_results), (row.baseline, row.baseline_results)):
            if results:
                everywhere.setdefault(name, []).append(row.lead_ms)
            for text in dict.fromkeys(text for result in results for text in _warnings(result)):
                said.setdefault(text, {}).setdefault(name, []).append(row.lead_ms)
        said.setdefault(f"{row.verdict}: {row.reason}", {}).setdefault(row.candidate, []).append(row.lead_ms)
    candidates = {row.candidate: everywhere.get(row.candidate, [row.lead_ms]) for row in rows}
    for text, found in said.items():
        yield f"{_whom(found, candidates if candidates.keys() >= found.keys() else everywhere)}: {text}"


def row_notes(row: Row) -> Iterator[str]:
    """Why a result is missing and what a run warned of, each once, with the side: ``mine (b): failed: why``."""
    sides = (row.baseline, row.baseline_results), (row.candidate, row.candidate_results)
    told = (f"{name}: {text}" for name, results in sides for result in results for text in _warnings(result))
    yield from dict.fromkeys(told)


def _warnings(result: Result) -> Iterator[str]:
    if result.status != "ok":
        yield f"{result.status}: {result.error or 'no reason recorded'}"
    if result.syncs and not result.syncs.agreed:
        seen = ", ".join(f"{name} {count}" for name, count in result.syncs.detectors.items() if count is not None)
        yield f"the detectors disagree: {seen}"
    yield from result.warnings


def _cautions(comparison: Comparison) -> Iterator[CautionView]:
    """Every kind once, in the order of ``Kind``."""
    found: dict[Kind, dict[str, dict[str, dict[str, list[float | None]]]]] = {}  # kind, detail, workload, whom: leads
    everywhere: dict[str, dict[str, list[float | None]]] = {}
    for row in comparison.rows:
        there = everywhere.setdefault(row.workload, {})
        for name, results in ((row.baseline, row.baseline_results), (row.candidate, row.candidate_results)):
            for subject in subjects(name, len(results)) if results else ():
                there.setdefault(subject, []).append(row.lead_ms)
        for caution in row.cautions:
            of_detail = found.setdefault(caution.kind, {}).setdefault(caution.detail, {})
            whom = caution.subject or f"{row.baseline} and {row.candidate}"
            of_detail.setdefault(row.workload, {}).setdefault(whom, []).append(row.lead_ms)
    for kind in Kind:
        told = [(caution.detail, "") for caution in comparison.cautions if caution.kind is kind]
        for detail, workloads in found.get(kind, {}).items():
            told += [(detail, f"{_whom(who, everywhere[name])} on {name}") for name, who in workloads.items()]
        if told:
            yield CautionView(kind, ADVICE[kind], tuple(told))


def _whom(who: Mapping[str, list[float | None]], everywhere: Mapping[str, list[float | None]]) -> str:
    alike = len(who) > 1 and {name: set(leads) for name, leads in who.items()} == {
        name: set(leads) for name, leads in everywhere.items()
    }
    return "all" if alike else who_at(who, everywhere)


def _forest_entry(group: str, row: Row) -> ForestEntry:
    found = row.difference
    nothing = ForestEntry(group, row.candidate, row.verdict, row.modelled, None, None, None, 0.0)
    if not found or not found.baseline_ns:
        return nothing
    threshold = row.threshold.of(found.baseline_ns) / found.baseline_ns
    ends = found.ratio, found.ratio_low, found.ratio_high
    if not all(math.isfinite(number) for number in (threshold, *ends) if number is not None):
        return nothing  # steps that take next to no time
    return ForestEntry(group, row.candidate, row.verdict, row.modelled, *ends, threshold)


def _lanes(table: TableView, run_of: _RunNames) -> Iterator[SampleLane]:
    """The sides of every row, the baseline that rows share once; modelled times have no distribution."""
    done: set[tuple[str, int]] = set()  # a run may be compared with itself
    for row in table.rows:
        for name, results in ((row.baseline, row.baseline_results), (row.candidate, row.candidate_results)):
            for result in results:
                time = result.time
                if (name, id(result)) in done or time is None or time.modelled or not finite(time):
                    continue
                done.add((name, id(result)))
                reference = row.difference.baseline_ns if row.difference else statistics.median(time.step_ns)
                yield SampleLane(
                    table.heading,
                    f"{name}{run_of.suffix(result)}",
                    results is row.baseline_results,
                    tuple(time.step_ns),
                    tuple(time.throttled),
                    tuple(time.sm_clock_mhz),
                    reference,
                )


def _values(group: GroupView, run_of: _RunNames) -> Iterator[ValuesView]:
    """The values of every side, once where leads and runs agree on them; baselines first."""
    found: dict[tuple[bool, str], list[tuple[Numerics, str, float | None]]] = {}
    for row in (row for table in group.tables for row in table.rows):
        for baseline, name in ((True, row.baseline), (False, row.candidate)):
            for result in row.baseline_results if baseline else row.candidate_results:
                if result.numerics:
                    item = result.numerics, run_of.suffix(result), row.lead_ms
                    found.setdefault((baseline, name), []).append(item)
    for (baseline, name), items in sorted(found.items(), key=lambda item: not item[0][0]):
        different: list[Numerics] = []
        for numerics, _, _ in items:
            if numerics not in different:
                different.append(numerics)
        for numerics in different:
            who: dict[str, list[float | None]] = {}
            for other, suffix, lead_ms in items:
                if other == numerics:
                    who.setdefault("" if len(different) == 1 else suffix, []).append(lead_ms)
            everywhere = {name: [lead_ms for _, _, lead_ms in items] for name in who}
            yield ValuesView(group.workload, group.scope, f"{name}{who_at(who, everywhere)}", baseline, numerics)


class _RunNames:
    """Which run of its side a result is from."""

    def __init__(self, comparison: Comparison) -> None:
        self._labels = {
            id(result): f", {label}"
            for side in comparison.sides
            if len(side.runs) > 1
            for label, run in side.runs
            for result in run.results
        }

    def suffix(self, result: Result) -> str:
        """``, LABEL`` where its side has several runs, else ""."""
        return self._labels.get(id(result), "")


def _run(side: str, label: str, run: Run) -> RunView:
    environment = run.environment
    device = f"{environment.device.name} ({'modelled' if environment.device.modelled else 'measured'})"
    variables = [f"{name}={value}" for name, value in environment.cuda_env.items()]
    machine = ", ".join([device, environment_line(run), *variables])
    return RunView(
        side, label, run.command, machine, run.created_at, run.seed, environment.packages.get("mtp-bench", "")
    )
