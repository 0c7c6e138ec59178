"""What a comparison leaves out, and what varies between the runs of a side: nothing is dropped without a word."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from mtp_bench.compare.jobs import SLOWEST
from mtp_bench.compare.pairs import Pair, Side, Wanted, run_label, some
from mtp_bench.results import Result, Run

if TYPE_CHECKING:
    from mtp_bench.compare.rows import Row


def notes(pairs: Sequence[Pair], rows: Sequence[Row], sides: Sequence[Side], wanted: Wanted) -> Iterator[str]:
    """What was skipped, what some runs lack, which runs are there twice, and what runs of a side do not agree on."""
    yield from _skipped(pairs)
    for side in sides:
        yield from _gaps(side, wanted)
        yield from _copies(side)
    if len(sides) == 1:
        yield from _alone(sides[0], wanted)
    else:
        yield from _shared(sides)
    yield from dict.fromkeys(
        f"{name} on {row.workload}: its {'jobs' if row.of_job else 'runs'} {text}"
        for row in rows
        for name, results in ((row.baseline, row.baseline_results), (row.candidate, row.candidate_results))
        for text in varying(results)
    )


class _Known:
    """Runs that were seen; the time of day tells nearly all apart without a look at the samples."""

    def __init__(self, runs: Iterable[tuple[str, Run]] = ()) -> None:
        self._runs: dict[Hashable, list[tuple[str, Run]]] = {}
        for one in runs:
            self.add(*one)

    def add(self, label: str, run: Run) -> None:
        self._runs.setdefault(self._key(run), []).append((label, run))

    def copy_of(self, run: Run) -> str | None:
        """The label of one of which ``run`` is a copy."""
        alike = self._runs.get(self._key(run), [])
        return next((label for label, known in alike if known.to_json() == run.to_json()), None)

    @staticmethod
    def _key(run: Run) -> Hashable:
        return run.created_at, run.command, len(run.results), run.job and (run.job.id, run.job.rank)


def _skipped(pairs: Sequence[Pair]) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.skipped:
            reasons = dict.fromkeys(result.error for side in (pair.baseline, pair.candidate) for result in side[1])
            why = "; ".join(filter(None, reasons))
            found.setdefault(f" ({why})" if why else "", []).append(f"{pair.candidate[0]} on {pair.workload}")
    for why, who in found.items():
        yield f"left out, since skipped on both sides: {', '.join(dict.fromkeys(who))}{why}"


def _gaps(side: Side, wanted: Wanted) -> Iterator[str]:
    """What some runs of a side lack and others have, and what a run was to measure and has no result of."""
    lacking: dict[tuple[int, ...], list[str]] = {}
    for where in side.results:
        found = side.wanted(where, wanted)
        if len(side.ranks[where]) > 1:  # what single ranks lack is not for here
            found = {which: runs for which, runs in found.items() if which.rank == SLOWEST}
        of_jobs = bool(side.ranks[where])
        every = [index for index, replicate in enumerate(side.replicates) if replicate.of_job == of_jobs]
        there = sorted({index for runs in found.values() for index in runs})
        absent = tuple(index for index in every if index not in there)
        if found and absent:
            lacking.setdefault(absent, []).append(f"{where[0]} in scope {where[1]}")
        by_variant: dict[tuple[str, tuple[int, ...]], list[float]] = {}
        for which, runs in found.items():
            without = tuple(index for index in there if index not in runs)
            by_variant.setdefault((which.variant, without), []).append(which.lead_ms)
        for (variant, without), leads in by_variant.items():
            if without:
                all_leads = len(leads) == sum(which.variant == variant for which in found)
                at = "" if all_leads else f" at {' and '.join(f'{lead:g}' for lead in leads)} ms lead"
                lacking.setdefault(without, []).append(f"{variant} on {where[0]}{at}")
    for indices, what in lacking.items():
        replicates = [side.replicates[index] for index in indices]
        alike = sum(replicate.of_job == replicates[0].of_job for replicate in side.replicates)
        names = some([replicate.label for replicate in replicates])
        noun = "jobs" if replicates[0].of_job else "runs"
        yield f"not in {len(indices)} of {alike} {noun} of {side.label} ({names}): {', '.join(what)}"
    for label, run in side.runs:
        done = {result.workload for result in run.results}
        missing = [name for name in run.workloads if name not in done]
        if run.job:
            continue
        if missing:
            yield f"without results in {run_label(side, label)}: {', '.join(missing)}"
        elif not run.results:
            yield f"without results: {run_label(side, label)}"


def _copies(side: Side) -> Iterator[str]:
    """Copies of one run agree perfectly, which makes intervals too narrow. Of a job's rank only one counts anyway."""
    known = _Known()
    for label, run in side.runs:
        same = known.copy_of(run) if run.job is None else None
        if same is not None:
            yield f"{run_label(side, label)} is a copy of {same}, and both count: give one of them"
        known.add(label, run)


def _alone(side: Side, wanted: Wanted) -> Iterator[str]:
    for where, found in side.results.items():
        variants = list(dict.fromkeys(which.variant for which in found))
        if len(variants) == 1 and side.wanted(where, wanted):
            yield f"on {where[0]} in scope {where[1]} there is only {variants[0]}"


def _shared(sides: Sequence[Side]) -> Iterator[str]:
    """Pooled runs that are on two sides, as a glob that matches too much has it."""
    first, *others = sides
    known = _Known(first.runs)
    for other in others:
        if len(first.runs) > 1 or len(other.runs) > 1:
            both = [label for label, run in other.runs if known.copy_of(run) is not None]
            if both:
                yield f"on both sides, {first.label} and {other.label}: {some(both)}"


def varying(results: Sequence[Result]) -> Iterator[str]:
    """What results of one variant on one workload do not agree on: ``have 33 and 34 syncs a step``."""
    counts = [result.syncs.count for result in results if result.syncs]
    lines = {
        tuple(sorted((site.file, site.line, site.kind, site.op, site.count) for site in result.syncs.sites))
        for result in results
        if result.syncs
    }
    if len({*counts}) > 1:
        yield f"have {_each(counts)} syncs a {'call of the loss' if results[0].scope == 'job' else 'step'}"
    elif len(lines) > 1:
        yield "have their syncs on different lines"
    ops = [result.ops for result in results if result.ops is not None]
    if len({*ops}) > 1:
        yield f"have {_each(ops)} operations a step"
    values = [judged.status for result in results if (judged := result.numerics or result.gradients)]
    if len({*values}) > 1:
        yield f"have {'gradients' if results[0].scope == 'job' else 'values'} {_each(values)}"


def _each(values: Sequence[object]) -> str:
    return " and ".join(dict.fromkeys(map(str, values)))
