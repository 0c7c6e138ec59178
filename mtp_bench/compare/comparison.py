"""Compare a baseline with candidates, variants of one run or runs with each other: the object that reports show.

No torch, no I/O, no rendering. Differences are candidate less baseline, of medians, in nanoseconds a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from mtp_bench.compare import cautions, gates, selection
from mtp_bench.compare.cautions import Caution
from mtp_bench.compare.gates import Judgement
from mtp_bench.compare.pairs import Pair, Side, between, environment_differences, within
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
from mtp_bench.errors import InputError
from mtp_bench.results import Result, Run
from mtp_bench.statistics import holm

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
    def syncs(self) -> tuple[int | None, int | None]:
        """Syncs a step of both sides: the most that one of its runs has; None where not known."""
        base, cand = ([r.syncs.count if r.syncs else None for r in side] for side in self._sides)
        return _most(base), _most(cand)

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
        """0 passed or nothing asked, 1 a gate failed, 3 a gate cannot tell, or times asked for are incomparable."""
        if self.judgement.failures:
            return 1
        if self.judgement.undecided:
            return 3
        asked = self.judgement.gates
        return 3 if not asked and any(row.verdict == "incomparable" for row in self.rows) else 0


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
    found = (pair for other in others for pair in between(first, other)) if others else within(first, baseline)
    pairs = wanted.of(found)
    rows = _adjusted([_row(pair, threshold) for pair in pairs if not pair.skipped])
    in_order = selection.sort(rows, sort)
    runs = [run for side in ordered for _, run in side.runs]
    return Comparison(
        in_order,
        tuple(ordered),
        threshold,
        tuple(environment_differences(ordered)),
        tuple(cautions.of_environments(runs)),
        tuple(_notes(pairs, in_order, ordered)),
        gates.apply(judged_by, in_order),
        command,
    )


def _ordered(sides: Sequence[Side], baseline: str | None) -> list[Side]:
    """The sides, the baseline first."""
    if len(sides) == 1 or baseline is None:
        return list(sides)
    labels = [side.label for side in sides]
    if baseline not in labels:
        raise InputError(f"--baseline {baseline!r}: of several runs it names one of them: {', '.join(labels)}")
    first = labels.index(baseline)
    return [sides[first], *(side for index, side in enumerate(sides) if index != first)]


def _notes(pairs: Sequence[Pair], rows: Sequence[Row], sides: Sequence[Side]) -> Iterator[str]:
    skipped = list(dict.fromkeys(f"{pair.candidate[0]} on {pair.workload}" for pair in pairs if pair.skipped))
    if skipped:
        yield f"left out, since skipped on both sides: {', '.join(skipped)}"
    yield from dict.fromkeys(pair.note for pair in pairs if pair.note)
    for row in rows:
        for name, results in ((row.baseline, row.baseline_results), (row.candidate, row.candidate_results)):
            counts = list(dict.fromkeys(result.syncs.count for result in results if result.syncs))
            if len(counts) > 1:
                yield f"{name} on {row.workload}: its runs have {' and '.join(map(str, counts))} syncs a step"
    empty = [label for side in sides for label, run in side.runs if not run.results]
    if empty:
        yield f"without results: {', '.join(empty)}"


def _row(pair: Pair, threshold: Threshold) -> Row:
    (base_name, base), (cand_name, cand) = pair.baseline, pair.candidate
    why_not = pair.obstacle or _no_time(base_name, base) or _no_time(cand_name, cand)
    found: Difference | None = None
    finding, p = Finding("incomparable", why_not), None
    base_times, cand_times = ([result.time for result in side if result.time] for side in (base, cand))
    modelled = any(time.modelled for time in (*base_times, *cand_times))
    if not why_not:
        found = difference(base_times, cand_times, paired=pair.paired)
        finding, p = judge(found, threshold, modelled), mann_whitney_p(base_times, cand_times)
        if found.dropped:
            finding = replace(finding, reason=f"{finding.reason}; {found.dropped} throttled windows left out")
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
        site_changes(base[0], cand[0]) if base and cand and base[0].syncs and cand[0].syncs else (),
        (*(caution for side in sides for caution in cautions.of_times(*side, threshold)), *cautions.of_clocks(sides)),
        p,
    )


def _adjusted(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, p_holm=p) for row, p in zip(rows, holm([row.p for row in rows]), strict=True)]


def _no_time(name: str, results: Sequence[Result]) -> str:
    if not results:
        return f"{name} is not in the run"
    for result in results:
        if result.status != "ok":
            return f"{name} {result.status}"
        if result.time is None:
            return f"{name} has no times"
        if not finite(result.time):
            return f"{name} has step times that are not finite"
    return ""


def _most(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None


def _worst(statuses: Sequence[str | None]) -> str | None:
    return next((status for status in _WORST_VALUES if status in statuses), None) if None not in statuses else None
