"""What the report of one rank of a training job shows: every variant it alternated between, once for all formats."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mtp_bench.compare import Difference, compare
from mtp_bench.compare.summary import summary
from mtp_bench.compare.verdicts import median_ns
from mtp_bench.report.columns import SYNCS_OF_LOSS, Column
from mtp_bench.report.comparison_view import ComparisonView
from mtp_bench.report.job_view import LEGEND
from mtp_bench.report.words import NONE, interval, microseconds, percent, signed_microseconds, whole_microseconds
from mtp_bench.results import Result, Run


@dataclass(frozen=True, slots=True)
class JobRunView:
    """The variants of one rank with what they cost, and what the comparison of them says."""

    headline: str
    heading: str
    variants: tuple[Column, ...]
    notes: tuple[str, ...]
    comparison: ComparisonView


def job_run_view(run: Run) -> JobRunView:
    """Sort out the run of a rank for a report."""
    comparison = compare([("this run", [("this run", run)])])
    view = ComparisonView.of(comparison)
    differences = {(row.workload, row.variant): row.difference for row in comparison.rows}
    baseline = {row.workload: row.baseline for row in comparison.rows}
    found = [differences.get((result.workload, result.variant)) for result in run.results]
    notes = [note for group in view.groups for note in group.notes] or [LEGEND]
    names = " and ".join(dict.fromkeys(result.workload for result in run.results))
    against = " and ".join(dict.fromkeys(baseline.values()))
    heading = f"{names}, scope job{f', baseline {against}' if against else ''}"
    of_baseline = [baseline.get(result.workload) == result.variant for result in run.results]
    columns = _variants(run.results, found, of_baseline)
    return JobRunView(summary(comparison), heading, tuple(columns), tuple(notes), view)


def _variants(
    results: Sequence[Result], differences: Sequence[Difference | None], of_baseline: Sequence[bool]
) -> list[Column]:
    modelled = any(result.time and result.time.modelled for result in results)
    unit = "us, modelled" if modelled else "us"
    steps = [microseconds(median_ns(result.time)) if result.time else NONE for result in results]
    told = [
        "baseline" if base else signed_microseconds(found.ns) if found else NONE
        for found, base in zip(differences, of_baseline, strict=True)
    ]
    counts = [NONE if result.syncs is None else str(result.syncs.count) for result in results]
    columns = [
        Column("variant", tuple(result.variant for result in results), number=False),
        Column("gradients", tuple(map(_gradients, results)), number=False),
        Column(SYNCS_OF_LOSS, tuple(counts)),
        Column(f"step,\n{unit}", tuple(steps)),
        Column(f"difference\n{unit}", tuple(told)),
        Column("98 % interval\nof difference", tuple((interval(f) if f else "") or NONE for f in differences)),
        Column("%", tuple(percent(found) if found else NONE for found in differences)),
        Column(f"lead at\nentry,\n{unit}", tuple(_median(r.time.lead_ns if r.time else None) for r in results)),
        Column(f"loss,\n{unit}", tuple(_median(r.time.loss_ns if r.time else None) for r in results)),
        Column("windows", tuple(f"{len(result.time.step_ns):,}" if result.time else NONE for result in results)),
    ]
    return [column for column in columns if column.known]


def _gradients(result: Result) -> str:
    if result.status != "ok":
        return result.status
    return result.gradients.status if result.gradients else NONE


def _median(values: Sequence[float | None] | None) -> str:
    known = [value for value in values or () if value is not None]
    return whole_microseconds(statistics.median(known)) if known else NONE
