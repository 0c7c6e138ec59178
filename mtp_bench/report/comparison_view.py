"""What a report of a comparison shows, once for all formats: nine parts in one order, still without layout.

Nothing here is made harmless: names, code and error texts are as the runs have them, and every renderer sees to it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mtp_bench import __version__
from mtp_bench.compare import Comparison, Row, Verdict
from mtp_bench.compare.cautions import ADVICE, Kind, subjects
from mtp_bench.compare.jobs import Replicate, ranks_in_words
from mtp_bench.compare.pairs import Side
from mtp_bench.compare.summary import summary
from mtp_bench.compare.verdicts import finite
from mtp_bench.report.groups import GroupView, TableView, by_group, lead_group, whom
from mtp_bench.report.job_view import job_group
from mtp_bench.report.sites_view import SiteView, site_views
from mtp_bench.report.words import environment_line, of_rank, who_at
from mtp_bench.results import Numerics, Result


@dataclass(frozen=True, slots=True)
class CautionView:
    """One kind of caution with its advice, and where it was found: (detail, whom it concerns) each once."""

    kind: Kind
    advice: str
    found: tuple[tuple[str, str], ...]  # whom: "" where it concerns all


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
    ranks: str = ""  # "ranks 0 to 3 of 4" of a job


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

    @property
    def of_jobs(self) -> bool:
        """Whether it is of training jobs alone."""
        return bool(self.groups) and all(group.scope == "job" for group in self.groups)

    @classmethod
    def of(cls, comparison: Comparison) -> ComparisonView:
        """Sort out a comparison for a report."""
        groups = tuple(_group(comparison, rows) for rows in by_group(comparison))
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
            sites=site_views(comparison.deciding),
            values=tuple(view for group in groups for view in _values(group, run_of)),
            runs=tuple(_run(side, replicate) for side in comparison.sides for replicate in side.replicates),
            command=comparison.command,
            threshold=str(comparison.threshold),
            version=__version__,
        )


def regressed(row: Row) -> bool:
    """Whether a reviewer must look at a row first: slower, more syncs, or worse values."""
    return row.verdict == "slower" or any((change or 0) > 0 for change in (row.syncs_change, row.values_change))


def _group(comparison: Comparison, rows: Sequence[Row]) -> GroupView:
    return job_group(comparison, rows) if rows[0].of_job else lead_group(comparison, rows)


def _cautions(comparison: Comparison) -> Iterator[CautionView]:
    """Every kind once, in the order of ``Kind``."""
    found: dict[Kind, dict[str, dict[str, dict[str, list[float | None]]]]] = {}  # kind, detail, workload, whom: leads
    everywhere: dict[str, dict[str, list[float | None]]] = {}
    for row in comparison.deciding:
        there = everywhere.setdefault(row.workload, {})
        for name, results in ((row.baseline, row.baseline_results), (row.candidate, row.candidate_results)):
            for subject in subjects(name, len(results), "job" if row.of_job else "run") if results else ():
                there.setdefault(subject, []).append(row.lead_ms)
        for caution in row.cautions:
            of_detail = found.setdefault(caution.kind, {}).setdefault(caution.detail, {})
            subject = caution.subject or f"{row.baseline} and {row.candidate}"
            of_detail.setdefault(row.workload, {}).setdefault(subject, []).append(row.lead_ms)
    for kind in Kind:
        told = [(caution.detail, "") for caution in comparison.cautions if caution.kind is kind]
        for detail, workloads in found.get(kind, {}).items():
            told += [(detail, f"{whom(who, everywhere[name])} on {name}") for name, who in workloads.items()]
        if told:
            yield CautionView(kind, ADVICE[kind], tuple(told))


def _forest_entry(group: str, row: Row) -> ForestEntry:
    found = row.difference
    label = of_rank(row.candidate, row)
    nothing = ForestEntry(group, label, row.verdict, row.modelled, None, None, None, 0.0)
    if not found or not found.baseline_ns:
        return nothing
    threshold = row.threshold.of(found.baseline_ns) / found.baseline_ns
    ends = found.ratio, found.ratio_low, found.ratio_high
    if not all(math.isfinite(number) for number in (threshold, *ends) if number is not None):
        return nothing  # steps that take next to no time
    return ForestEntry(group, label, row.verdict, row.modelled, *ends, threshold)


def _lanes(table: TableView, run_of: _RunNames) -> Iterator[SampleLane]:
    """The sides of every row, the baseline that rows share once; modelled times have no distribution.

    Of several ranks the slowest alone.
    """
    done: set[tuple[str, int]] = set()  # a run may be compared with itself
    for row in filter(lambda row: row.decides, table.rows):
        for name, results in ((row.baseline, row.baseline_results), (row.candidate, row.candidate_results)):
            for result in results:
                time = result.time
                if (name, id(result)) in done or time is None or time.modelled or not finite(time):
                    continue
                done.add((name, id(result)))
                reference = row.difference.baseline_ns if row.difference else statistics.median(time.step_ns)
                yield SampleLane(
                    table.heading,
                    f"{of_rank(name, row)}{run_of.suffix(result)}",
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
            id(result): f", {side.replicates[index].label}"
            for side in comparison.sides
            if len(side.replicates) > 1
            for of_where in side.results.values()
            for found in of_where.values()
            for index, (_, result) in found.items()
        }

    def suffix(self, result: Result) -> str:
        """``, LABEL`` where its side has several runs, else ""."""
        return self._labels.get(id(result), "")


def _run(side: Side, replicate: Replicate) -> RunView:
    """A run; of a job that of its first rank."""
    label, run = replicate.runs[0]
    ranks = ""
    if run.job:
        label = side.label if len(side.replicates) == 1 else replicate.label
        ranks = f"{ranks_in_words(replicate.ranks)} of {run.job.world_size:,}"
    environment = run.environment
    device = f"{environment.device.name} ({'modelled' if environment.device.modelled else 'measured'})"
    variables = [f"{name}={value}" for name, value in environment.cuda_env.items()]
    machine = ", ".join([device, environment_line(run), *variables])
    version = environment.packages.get("mtp-bench", "")
    return RunView(side.label, label, run.command, machine, run.created_at, run.seed, version, ranks)
