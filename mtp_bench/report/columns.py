"""The tables of a comparison as columns of words, the same in every format; a column that is not known is left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mtp_bench.compare import Row
from mtp_bench.compare.verdicts import median_ns
from mtp_bench.report.comparison_view import SampleLane, ValuesView
from mtp_bench.report.words import (
    NONE,
    change,
    interval,
    known_change,
    mebibytes,
    microseconds,
    percent,
    probability,
    signed_microseconds,
    significant,
    whole_microseconds,
)
from mtp_bench.results import Result

SYNCS_OF_LOSS = "syncs a\nloss call,\nforward and\nbackward"
RANK = "rank"
_WHO = ("candidate", RANK, "verdict")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, a cell a row. ``title`` may have two lines; ``number``: it stands at the right."""

    title: str
    cells: tuple[str, ...]
    number: bool = True

    @property
    def known(self) -> bool:
        """Whether any cell says something."""
        return any(cell != NONE for cell in self.cells)


def decision(rows: Sequence[Row]) -> list[Column]:
    """Candidate, verdict, difference with its interval, percent, syncs and values."""
    unit, mixed = _unit(rows)
    found = [row.difference for row in rows]
    syncs, values = _of_jobs(rows)
    differences = [_difference(row) + (" modelled" if mixed and row.modelled else "") for row in rows]
    return _known(
        Column("candidate", tuple(row.candidate for row in rows), number=False),
        Column(RANK, tuple(map(_rank, rows)), number=False),
        Column("verdict", tuple(row.verdict for row in rows), number=False),
        Column(f"difference\n{unit}", tuple(differences)),
        Column("98 % interval\nof difference", tuple((interval(f) if f else "") or NONE for f in found)),
        Column("%", tuple(percent(f) if f else NONE for f in found)),
        Column(syncs, tuple(known_change(row.syncs) for row in rows), number=False),
        Column(values, tuple(known_change(row.values) for row in rows), number=False),
    )


def evidence(rows: Sequence[Row]) -> list[Column]:
    """What the difference rests on; [] where nothing of it is known.

    Step times of both sides, of a job lead and loss, windows and runs, p values, operations and peak memory.
    """
    unit, mixed = _unit(rows)
    steps = [_steps(row) + (" modelled" if mixed and row.modelled else "") for row in rows]
    columns = _known(
        Column(f"step,\n{unit}", tuple(steps)),
        Column(f"lead at\nentry,\n{unit}", tuple(known_change(row.entry_lead_ns, whole_microseconds) for row in rows)),
        Column(f"loss,\n{unit}", tuple(known_change(row.loss_ns, whole_microseconds) for row in rows)),
        Column("windows", tuple(windows(row) for row in rows)),
        Column("p", tuple(NONE if row.of_job else probability(row.p) for row in rows)),
        Column("p, Holm", tuple(NONE if row.of_job else probability(row.p_holm) for row in rows)),
        Column("operations\na step", tuple(known_change(row.ops, "{:,}".format) for row in rows)),
        Column("peak\nmemory", tuple(known_change(row.peak_bytes, mebibytes) for row in rows)),
    )
    names = (
        Column("candidate", tuple(row.candidate for row in rows), number=False),
        Column(RANK, tuple(map(_rank, rows)), number=False),
    )
    return [*_known(*names), *columns] if columns else []


def figures(row: Row) -> str:
    """All that a table has of a row, on one line: ``difference us +100.0; % +1.0; syncs a step 0 > 1``."""
    columns = [column for column in (*decision([row]), *evidence([row])) if column.title not in _WHO]
    return "; ".join(f"{' '.join(column.title.split())} {column.cells[0]}" for column in columns)


def distribution(lanes: Sequence[SampleLane]) -> list[Column]:
    """Windows, minimum, quartiles and maximum of every side."""
    titles = ("minimum", "lower\nquartile", "median", "upper\nquartile", "maximum")
    return [
        Column("step, us", tuple(lane.label for lane in lanes), number=False),
        *(
            Column(title, tuple(microseconds(lane.quartiles_ns[index]) for lane in lanes))
            for index, title in enumerate(titles)
        ),
        Column("windows", tuple(str(len(lane.kept_ns)) for lane in lanes)),
    ]


def values(views: Sequence[ValuesView]) -> list[Column]:
    """Status, scale and error of the gradient, and the losses, of every side."""
    found = [view.numerics for view in views]
    return _known(
        Column("variant", tuple(view.who for view in views), number=False),
        Column("values", tuple(numerics.status for numerics in found), number=False),
        Column("gradient\nscale", tuple(significant(numerics.grad_scale) for numerics in found)),
        Column("gradient\nerror", tuple(significant(numerics.max_rel_err_grad, 2) for numerics in found)),
        Column("logged\nloss", tuple(_losses(numerics.logged_loss) for numerics in found)),
        Column("reference\nloss", tuple(_losses(numerics.reference_loss) for numerics in found)),
    )


def _of_jobs(rows: Sequence[Row]) -> tuple[str, str]:
    """What the columns of syncs and of values are called: a job has those of its loss."""
    if not all(row.of_job for row in rows):
        return "syncs a step\nor call of the loss" if any(row.of_job for row in rows) else "syncs\na step", "values"
    return SYNCS_OF_LOSS, "gradients"


def _rank(row: Row) -> str:
    return str(row.rank) if row.rank_in_words else NONE


def _unit(rows: Sequence[Row]) -> tuple[str, bool]:
    """The unit of all rows, and whether some are modelled and some are not: then each says what it is."""
    modelled = {row.modelled for row in rows}
    return "us, modelled" if modelled == {True} else "us", len(modelled) > 1


def _known(*columns: Column) -> list[Column]:
    return [column for column in columns if column.known]


def _difference(row: Row) -> str:
    return signed_microseconds(row.difference.ns) if row.difference else NONE


def _steps(row: Row) -> str:
    if row.difference:
        return change(microseconds(row.difference.baseline_ns), microseconds(row.difference.candidate_ns))
    base, cand = (_step(side) for side in (row.baseline_results, row.candidate_results))
    return change(base, cand)


def _step(results: Iterable[Result]) -> str:
    """The step time of a side that is not compared: NaN is shown, not hidden."""
    known = [median_ns(result.time) for result in results if result.time]
    if not known:
        return NONE
    return microseconds(sum(known) / len(known)) if all(map(math.isfinite, known)) else "nan"


def windows(row: Row) -> str:
    """``40``, ``40 > 38``, ``160 of 4 runs``: the windows that a difference rests on."""
    if row.difference is None or row.modelled:
        return NONE
    noun = "jobs" if row.of_job else "runs"
    return change(*(_of_runs(*side, noun) for side in zip(row.difference.windows, row.difference.runs, strict=True)))


def _of_runs(windows: int, runs: int, noun: str) -> str:
    return f"{windows:,}" if runs == 1 else f"{windows:,} of {runs} {noun}"


def _losses(losses: Sequence[float]) -> str:
    """One number a depth."""
    return ", ".join(significant(loss, 5) for loss in losses) or NONE
