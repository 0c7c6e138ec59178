"""Compare a baseline with candidates, variants of one run or runs with each other: the object that reports show.

No torch, no I/O, no rendering. Differences are candidate less baseline, of medians, in nanoseconds a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mtp_bench.compare import cautions, gates, job_remarks, notes, selection
from mtp_bench.compare.cautions import Caution
from mtp_bench.compare.gates import Judgement
from mtp_bench.compare.jobs import SLOWEST, Rank
from mtp_bench.compare.pairs import Pair, Side, between, comparable, environment_differences, sides_of, within
from mtp_bench.compare.rows import Row, waiting
from mtp_bench.compare.sites import site_changes
from mtp_bench.compare.verdicts import Difference, Finding, Threshold, difference, finite, judge, mann_whitney_p
from mtp_bench.errors import InputError, did_you_mean
from mtp_bench.results import Result, Run, Time
from mtp_bench.statistics import holm


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows; the sides they come from, the baseline first; what differs between the runs; what the gates say."""

    rows: tuple[Row, ...]
    sides: tuple[Side, ...]
    threshold: Threshold
    environment_differences: tuple[str, ...] = ()
    cautions: tuple[Caution, ...] = ()  # about the runs, not one row
    notes: tuple[str, ...] = ()  # what was left out
    judgement: Judgement = field(default_factory=Judgement)
    command: str = ""  # the command line that compared; "" from Python

    @property
    def within(self) -> bool:
        """Whether variants of the same runs are compared, rather than one side's runs with another's."""
        return len(self.sides) == 1

    @property
    def deciding(self) -> tuple[Row, ...]:
        """The rows that verdict and gates speak of: all but single ranks beside the slowest of their job."""
        return tuple(row for row in self.rows if row.decides)

    def ranks_of(self, row: Row) -> tuple[Row, ...]:
        """The rows of the single ranks beside that of the slowest."""
        if row.rank != SLOWEST:
            return ()
        return tuple(other for other in self.rows if not other.decides and _name(other) == _name(row))

    @property
    def exit_code(self) -> int:
        """0 passed or nothing asked, 1 a gate failed, 3 a gate cannot tell; without gates, 3 where a row cannot."""
        if self.judgement.failures:
            return 1
        if self.judgement.undecided:
            return 3
        if self.judgement.gates:
            return 0
        results = any(run.results for side in self.sides for _, run in side.runs)
        return 0 if results and not any(row.verdict == "incomparable" for row in self.deciding) else 3


def compare(
    sides: Sequence[tuple[str, Sequence[tuple[str, Run]]]],
    *,
    baseline: str | None = None,
    threshold: Threshold | None = None,
    select: Sequence[str] = (),
    sort: str = "run",
    fail_on: Sequence[str] = (),
    command: str = "",
) -> Comparison:
    """Compare the variants of one side's runs with ``baseline``, or every further side with the first.

    ``sides`` are (label, runs), and runs (label, run): several runs of a side are pooled. ``baseline`` is a variant of
    one side, or the label of the side of several that the others are compared with. ``select``, ``sort`` and
    ``fail_on`` are as on the command line; ``command`` is that line, for reports. Raises InputError for a baseline, a
    selection, an order or a gate that is not there.
    """
    wanted, judged_by = selection.Selection.parse(select), gates.parse(fail_on)
    threshold = threshold or Threshold()
    first, *others = ordered = _ordered(sides_of(sides), baseline)
    if others:
        pairs = [pair for other in others for pair in between(first, other, wanted.wants)]
    else:
        pairs = list(within(first, baseline, wanted.wants))
    wanted.check(comparable(ordered, baseline))
    rows = _adjusted([_row(pair, threshold) for pair in pairs if not pair.skipped])
    in_order = selection.sort(rows, sort)
    deciding = [row for row in in_order if row.decides]
    return Comparison(
        in_order,
        tuple(ordered),
        threshold,
        tuple(environment_differences(ordered)),
        (
            *cautions.of_environments([run for side in ordered for _, run in side.runs]),
            *(caution for side in ordered for caution in job_remarks.cautions(side)),
        ),
        (
            *notes.notes(pairs, deciding, ordered, wanted.wants),
            *(note for side in ordered for note in job_remarks.notes(side)),
        ),
        gates.apply(judged_by, deciding),
        command,
    )


def _ordered(sides: Sequence[Side], baseline: str | None) -> list[Side]:
    """The sides, the baseline first."""
    if len(sides) == 1 or baseline is None:
        return list(sides)
    labels = [side.label for side in sides]
    if baseline not in labels:
        near = did_you_mean(baseline, labels)
        raise InputError(f"--baseline {baseline!r}: of several runs it names one of them{near}")
    first = labels.index(baseline)
    return [sides[first], *(side for index, side in enumerate(sides) if index != first)]


def _row(pair: Pair, threshold: Threshold) -> Row:
    (base_name, base), (cand_name, cand) = pair.baseline, pair.candidate
    why_not = pair.obstacle or _no_time(base_name, base, pair.rank) or _no_time(cand_name, cand, pair.rank)
    found: Difference | None = None
    finding, p = Finding("incomparable", why_not), None
    base_times, cand_times = _in_one_order(base, cand, pair.paired)
    modelled = any(time.modelled for time in (*base_times, *cand_times))
    if not why_not:
        found = difference(base_times, cand_times, paired=pair.paired)
        finding, p = judge(found, threshold, modelled), mann_whitney_p(base_times, cand_times)
        left_out = [
            *([f"{found.dropped} throttled windows"] if found.dropped else []),
            *([f"{found.alone} windows of rounds that one side lacks"] if found.alone else []),
        ]
        if left_out:
            finding = replace(finding, reason=f"{finding.reason}; {' and '.join(left_out)} left out")
    sides = [(base_name, base), (cand_name, cand)]
    return Row(
        pair.workload,
        pair.scope,
        pair.variant,
        pair.lead_ms,
        base_name,
        cand_name,
        modelled,
        finding,
        found,
        threshold,
        base,
        cand,
        site_changes(waiting(base), waiting(cand)),
        (*(caution for side in sides for caution in cautions.of_times(*side, threshold)), *cautions.of_clocks(sides)),
        p,
        rank=pair.rank,
        ranks=pair.ranks,
    )


def _in_one_order(base: Sequence[Result], cand: Sequence[Result], paired: bool) -> tuple[list[Time], list[Time]]:
    """The times of both sides, in an order that does not depend on what the runs' files are called.

    Resamples are drawn run by run: two people who have the same runs get the same interval.
    """
    if paired:
        both = sorted(
            ((b.time, c.time) for b, c in zip(base, cand, strict=True) if b.time and c.time),
            key=lambda times: (times[0].step_ns, times[1].step_ns),
        )
        return [base_time for base_time, _ in both], [cand_time for _, cand_time in both]
    base_times, cand_times = (
        sorted((result.time for result in side if result.time), key=lambda time: time.step_ns) for side in (base, cand)
    )
    return base_times, cand_times


def _adjusted(rows: Sequence[Row]) -> list[Row]:
    """Holm's p for the number of rows that decide; for all rows where a row is one of several ranks."""
    deciding = iter(holm([row.p for row in rows if row.decides]))
    every = holm([row.p for row in rows])
    return [replace(row, p_holm=next(deciding) if row.decides else p) for row, p in zip(rows, every, strict=True)]


def _name(row: Row) -> tuple[str, ...]:
    return row.workload, row.scope, row.baseline, row.candidate


def _no_time(name: str, results: Sequence[Result], rank: Rank) -> str:
    """Why there are no times to compare of one side; "" where every run has them."""
    if not results:
        return f"{name} was not run {'at this lead' if rank is None else 'in the job' if rank == SLOWEST else 'there'}"
    why = [text for result in results if (text := _without_time(result))]
    if not why:
        return ""
    of_runs = f" in {why.count(why[0])} of {len(results)} runs" if len(results) > 1 else ""
    return f"{name} {why[0]}{of_runs}"


def _without_time(result: Result) -> str:
    if result.status != "ok":
        return result.status
    if result.time is None:
        return "has no times"
    if not finite(result.time):
        return "has step times that are not finite"
    return "has step times below 0" if min(result.time.step_ns) < 0 else ""
