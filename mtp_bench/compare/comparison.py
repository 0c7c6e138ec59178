"""Compare a baseline with candidates, variants of one run or runs with each other: the object that reports show.

No torch, no I/O, no rendering. Differences are candidate less baseline, of medians, in nanoseconds a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mtp_bench.compare import cautions, gates, notes, selection
from mtp_bench.compare.cautions import Caution
from mtp_bench.compare.gates import Judgement
from mtp_bench.compare.pairs import Pair, Side, between, comparable, environment_differences, leads_in_words, within
from mtp_bench.compare.sites import SiteChange, site_changes
from mtp_bench.compare.verdicts import (
    Difference,
    Finding,
    Threshold,
    Verdict,
    difference,
    finite,
    judge,
    mann_whitney_p,
)
from mtp_bench.errors import InputError, did_you_mean
from mtp_bench.results import Result, Run, Syncs, Time
from mtp_bench.statistics import holm

_VALUES_RANK = {"equal": 0, "close": 0, "differs": 1, "nan": 2}
_WORST_VALUES = ("nan", "differs", "close", "equal")


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate against its baseline, on one workload at one lead.

    ``baseline`` and ``candidate`` name the sides, ``variant`` the candidate's variant ("" for a whole workload that one
    side lacks). Results are one a run. What one of two sides lacks is one row without results, as ``Pair`` has it.
    ``p`` is Mann and Whitney's, ``p_holm`` the same adjusted for all rows; neither decides anything.
    """

    workload: str
    scope: str
    variant: str
    lead_ms: float | None
    baseline: str
    candidate: str
    modelled: bool
    finding: Finding
    difference: Difference | None
    threshold: Threshold
    baseline_results: tuple[Result, ...]
    candidate_results: tuple[Result, ...]
    changes: tuple[SiteChange, ...] = ()
    cautions: tuple[Caution, ...] = ()
    p: float | None = None
    p_holm: float | None = None

    @property
    def verdict(self) -> Verdict:
        """``faster``, ``slower``, ``same``, ``unclear`` or ``incomparable``."""
        return self.finding.verdict

    @property
    def reason(self) -> str:
        """Why, in words."""
        return self.finding.reason

    @property
    def candidate_on_workload(self) -> str:
        """``patched on packed-sft``, what sentences call the row; scope ``loss`` goes without saying."""
        return f"{self.candidate} on {self.workload}{'' if self.scope == 'loss' else f' in scope {self.scope}'}"

    @property
    def candidate_at_lead(self) -> str:
        """``patched on packed-sft at lead 1 ms``."""
        return self.candidate_on_workload + ("" if self.lead_ms is None else f" at {leads_in_words([self.lead_ms])}")

    @property
    def added(self) -> tuple[SiteChange, ...]:
        """Lines with more syncs than in the baseline."""
        return tuple(change for change in self.changes if change.count > 0)

    @property
    def removed(self) -> tuple[SiteChange, ...]:
        """Lines with fewer syncs than in the baseline."""
        return tuple(change for change in self.changes if change.count < 0)

    @property
    def moved(self) -> tuple[SiteChange, ...]:
        """Lines that wait as often as before, elsewhere in their file."""
        return tuple(change for change in self.changes if change.count == 0)

    @property
    def waiting(self) -> tuple[Syncs | None, Syncs | None]:
        """The syncs of both sides: of the run that has most; None where those of a run are not known."""
        base, cand = map(_waiting, self._sides)
        return base, cand

    @property
    def syncs(self) -> tuple[int | None, int | None]:
        """Syncs a step of both sides: the most that one of its runs has; None where not known."""
        base, cand = self.waiting
        return base.count if base else None, cand.count if cand else None

    @property
    def ops(self) -> tuple[int | None, int | None]:
        """Dispatched operations a step of both sides."""
        base, cand = ([r.ops for r in side] for side in self._sides)
        return _most(base), _most(cand)

    @property
    def peak_bytes(self) -> tuple[int | None, int | None]:
        """Peak device memory of both sides."""
        base, cand = ([r.memory.peak_bytes if r.memory else None for r in side] for side in self._sides)
        return _most(base), _most(cand)

    @property
    def values(self) -> tuple[str | None, str | None]:
        """Whether the values of both sides are right: the worst status that one of its runs has."""
        base, cand = ([r.numerics.status if r.numerics else None for r in side] for side in self._sides)
        return _worst(base), _worst(cand)

    @property
    def syncs_change(self) -> int | None:
        """Syncs a step more than in the baseline; None where one is not known."""
        before, after = self.syncs
        return None if before is None or after is None else after - before

    @property
    def values_change(self) -> int | None:
        """Above 0 where values got worse, below 0 where better; ``equal`` is no better than ``close``."""
        before, after = self.values
        return None if before is None or after is None else _VALUES_RANK[after] - _VALUES_RANK[before]

    @property
    def _sides(self) -> tuple[tuple[Result, ...], tuple[Result, ...]]:
        return self.baseline_results, self.candidate_results


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
    def exit_code(self) -> int:
        """0 passed or nothing asked, 1 a gate failed, 3 a gate cannot tell; without gates, 3 where a row cannot."""
        if self.judgement.failures:
            return 1
        if self.judgement.undecided:
            return 3
        if self.judgement.gates:
            return 0
        results = any(run.results for side in self.sides for _, run in side.runs)
        return 0 if results and not any(row.verdict == "incomparable" for row in self.rows) else 3


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
    first, *others = ordered = _ordered([Side.of(*side) for side in sides], baseline)
    if others:
        pairs = [pair for other in others for pair in between(first, other, wanted.wants)]
    else:
        pairs = list(within(first, baseline, wanted.wants))
    wanted.check(comparable(ordered, baseline))
    rows = _adjusted([_row(pair, threshold) for pair in pairs if not pair.skipped])
    in_order = selection.sort(rows, sort)
    return Comparison(
        in_order,
        tuple(ordered),
        threshold,
        tuple(environment_differences(ordered)),
        tuple(cautions.of_environments([run for side in ordered for _, run in side.runs])),
        tuple(notes.notes(pairs, in_order, ordered, wanted.wants)),
        gates.apply(judged_by, in_order),
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
    why_not = pair.obstacle or _no_time(base_name, base) or _no_time(cand_name, cand)
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
        site_changes(_waiting(base), _waiting(cand)),
        (*(caution for side in sides for caution in cautions.of_times(*side, threshold)), *cautions.of_clocks(sides)),
        p,
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
    return [replace(row, p_holm=p) for row, p in zip(rows, holm([row.p for row in rows]), strict=True)]


def _no_time(name: str, results: Sequence[Result]) -> str:
    """Why there are no times to compare of one side; "" where every run has them."""
    if not results:
        return f"{name} was not run at this lead"
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


def _waiting(results: Sequence[Result]) -> Syncs | None:
    known = [result.syncs for result in results if result.syncs]
    return max(known, key=lambda syncs: syncs.count) if known and len(known) == len(results) else None


def _most(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None


def _worst(statuses: Sequence[str | None]) -> str | None:
    return next((status for status in _WORST_VALUES if status in statuses), None) if None not in statuses else None
