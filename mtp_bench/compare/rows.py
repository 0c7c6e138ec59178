"""A row of a comparison: one candidate against its baseline, and what their results say. No torch, no I/O.

Differences are candidate less baseline, of medians, in nanoseconds a step.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mtp_bench.compare.cautions import Caution
from mtp_bench.compare.jobs import SLOWEST, Rank, in_words
from mtp_bench.compare.pairs import leads_in_words
from mtp_bench.compare.sites import SiteChange
from mtp_bench.compare.verdicts import Difference, Finding, Threshold, Verdict
from mtp_bench.results import Result, Syncs

_VALUES_RANK = {"equal": 0, "close": 0, "differs": 1, "nan": 2}
_WORST_VALUES = ("nan", "differs", "close", "equal")


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate against its baseline, on one workload at one lead, or in one training job.

    ``baseline`` and ``candidate`` name the sides, ``variant`` the candidate's variant ("" for a whole workload that one
    side lacks). Results are one a run; of a job's ``rank``, of ``ranks`` that are there, one a job. What one of two
    sides lacks is one row without results, as ``Pair`` has it. ``lead_ms`` is None there, and in a job, whose lead is
    its own. ``p`` is Mann and Whitney's, ``p_holm`` the same adjusted for all rows; neither decides anything.
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
    rank: Rank = None
    ranks: int = 0

    @property
    def verdict(self) -> Verdict:
        """``faster``, ``slower``, ``same``, ``unclear`` or ``incomparable``."""
        return self.finding.verdict

    @property
    def reason(self) -> str:
        """Why, in words."""
        return self.finding.reason

    @property
    def of_job(self) -> bool:
        """Whether steps are iterations of a training job, and syncs those of a call of its loss."""
        return self.scope == "job"

    @property
    def decides(self) -> bool:
        """Whether verdict and gates speak of it; of several ranks the slowest alone does."""
        return self.ranks < 2 or self.rank == SLOWEST

    @property
    def rank_in_words(self) -> str:
        """``rank 3``, ``slowest of 4 ranks``; "" where the job has one rank, or there is no job."""
        return in_words(self.rank, self.ranks)

    @property
    def candidate_on_workload(self) -> str:
        """``patched on packed-sft``, what sentences call the row; scope ``loss`` goes without saying."""
        if self.rank_in_words:
            return (
                f"{self.candidate} on {'the ' if self.rank == SLOWEST else ''}{self.rank_in_words} of {self.workload}"
            )
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
        base, cand = map(waiting, self._sides)
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
        """Whether values of both sides are right, or a job's gradients: the worst status that one of its runs has."""
        base, cand = (list(map(_status, side)) for side in self._sides)
        return _worst(base), _worst(cand)

    @property
    def entry_lead_ns(self) -> tuple[float | None, float | None]:
        """Of a job: how far the host is ahead of the device where the loss begins, median; None where not known."""
        base, cand = ([r.time.lead_ns for r in side if r.time and self.of_job] for side in self._sides)
        return _median(base), _median(cand)

    @property
    def loss_ns(self) -> tuple[float | None, float | None]:
        """Of a job: device time of a call of the loss, forward, median; None where not known."""
        base, cand = ([r.time.loss_ns or [] for r in side if r.time] for side in self._sides)
        return _median(base), _median(cand)

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


def waiting(results: Sequence[Result]) -> Syncs | None:
    """The syncs of the run that has most; None where those of a run are not known."""
    known = [result.syncs for result in results if result.syncs]
    return max(known, key=lambda syncs: syncs.count) if known and len(known) == len(results) else None


def _most(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None


def _worst(statuses: Sequence[str | None]) -> str | None:
    return next((status for status in _WORST_VALUES if status in statuses), None) if None not in statuses else None


def _status(result: Result) -> str | None:
    judged = result.numerics or result.gradients
    return judged.status if judged else None


def _median(runs: Sequence[Sequence[float | None]]) -> float | None:
    """Of the runs' medians over the windows that know it."""
    known = [[value for value in run if value is not None] for run in runs]
    medians = [statistics.median(run) for run in known if run]
    return statistics.median(medians) if medians else None
