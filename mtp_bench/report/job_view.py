"""The table of a training job: the slowest of its ranks first, below it those that are furthest from the others."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from mtp_bench.compare import Comparison, Row
from mtp_bench.compare.jobs import ranks_in_words
from mtp_bench.report.groups import GroupView, TableView, baseline, has_results, reasons, warnings_of
from mtp_bench.report.words import signed_microseconds, significant
from mtp_bench.results import Gradients

_MOST_RANKS = 8  # shown of a variant beside the slowest
LEGEND = (
    "step: device time of an iteration; lead: how far the host is ahead of the device where the loss begins, median; "
    "loss: device time of one call, forward; gradients: against those of the job's own loss"
)


def job_group(comparison: Comparison, rows: Sequence[Row]) -> GroupView:
    """One table of a job: variant by variant, in the order of the rows that decide."""
    first, against = rows[0], baseline(comparison, rows[0])
    heading = f"{first.workload}, scope {first.scope}, baseline {against}"
    shown: list[Row] = []
    folded: list[Row] = []
    notes = [*reasons([row for row in rows if row.decides])]
    for row in filter(lambda row: row.decides and has_results(row), rows):
        ranks = comparison.ranks_of(row)
        beside, others = _furthest(ranks)
        shown += [row, *beside]
        folded += others
        notes += [*_of_ranks(ranks), *_folded(row, others)]
    notes += _gradients([row for row in rows if row.decides])
    tables = (TableView(heading, (), tuple(shown), tuple(folded)),) if shown else ()
    return GroupView(heading, first.workload, first.scope, "", against, tables, (*notes, *([LEGEND] if shown else [])))


def _furthest(ranks: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The ranks to show, those furthest from the median difference, and the others; both by rank."""
    known = [row.difference.ns for row in ranks if row.difference]
    middle = statistics.median(known) if known else 0.0
    ordered = sorted(ranks, key=lambda row: -abs(row.difference.ns - middle) if row.difference else 1.0)
    chosen, others = ordered[:_MOST_RANKS], ordered[_MOST_RANKS:]
    return sorted(chosen, key=_rank), sorted(others, key=_rank)


def _rank(row: Row) -> int:
    assert isinstance(row.rank, int)
    return row.rank


def _folded(row: Row, others: Sequence[Row]) -> Iterator[str]:
    """``boundary_roll: 1,016 more ranks, from -12.1 to -10.3 us a step``."""
    if not others:
        return
    known = [other.difference.ns for other in others if other.difference]
    ends = f", from {signed_microseconds(min(known))} to {signed_microseconds(max(known))} us a step" if known else ""
    yield f"{row.candidate}: {len(others):,} more rank{'' if len(others) == 1 else 's'}{ends}"


def _of_ranks(ranks: Sequence[Row]) -> Iterator[str]:
    """What the runs of single ranks say, ranks with the same to say together."""
    said: dict[tuple[str, str], set[int]] = {}
    for row in ranks:
        for name, results in ((row.baseline, row.baseline_results), (row.candidate, row.candidate_results)):
            for text in (text for result in results for text in warnings_of(result)):
                said.setdefault((name, text), set()).add(_rank(row))
    yield from (f"{name}, {ranks_in_words(of)}: {text}" for (name, text), of in said.items())


def _gradients(rows: Sequence[Row]) -> Iterator[str]:
    """What there is to know of gradients that are not those of the job's own loss, bit for bit."""
    said: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, results in ((row.baseline, row.baseline_results), (row.candidate, row.candidate_results)):
            for gradients in (result.gradients for result in results if result.gradients):
                for text in _of_gradients(gradients):
                    said.setdefault(text, {})[name] = None
    yield from (f"{', '.join(names)}: {text}" for text, names in said.items())


def _of_gradients(found: Gradients) -> Iterator[str]:
    if found.status != "equal":
        error = f"relative error {significant(found.max_rel_err, 2)}, rounding explains {found.bound:.2g}"
        yield f"gradients {found.status} against {found.compared_with}: {error}"
    if found.detail:
        yield found.detail
    if found.head_gradient == "detached":
        yield "the MTP loss does not train the output layer"
