"""Training jobs that measured themselves: what belongs to one job, and the slowest of its ranks.

A rank is no replicate: ranks wait for each other, so that what one of them loses all of them lose. Hence a job counts
once, and its slowest rank speaks for it. No torch, no I/O, no rendering.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from mtp_bench.results import Gradients, Result, Run, Syncs, Time

Rank = int | Literal["slowest"] | None  # None: not of a job
SLOWEST: Final = "slowest"
_SHOWN = 4  # ranges of ranks, named in one sentence
_WORST_FIRST = ("nan", "differs", "close", "equal")


@dataclass(frozen=True, slots=True)
class Replicate:
    """What counts once on its side: a run, or a job with the runs of its ranks, in their order.

    ``copies`` are the labels of runs of ranks that are there already, which do not count.
    """

    label: str
    runs: tuple[tuple[str, Run], ...]
    copies: tuple[str, ...] = ()

    @property
    def of_job(self) -> bool:
        """Whether it is a job."""
        return self.runs[0][1].job is not None

    @property
    def ranks(self) -> list[int]:
        """The ranks that are there."""
        return [run.job.rank for _, run in self.runs if run.job]

    def results(self, several_ranks: Collection[tuple[str, str]]) -> Iterator[tuple[Rank, Run, Result]]:
        """Its results, rank by rank; of workloads and scopes with ``several_ranks`` the slowest rank's before them.

        The run of the slowest rank is that of the first one.
        """
        if self.of_job:
            by_variant: dict[tuple[str, str, str], list[Result]] = {}
            for _, run in self.runs:
                for result in run.results:
                    if (result.workload, result.scope) in several_ranks:
                        by_variant.setdefault((result.workload, result.scope, result.variant), []).append(result)
            yield from ((SLOWEST, self.runs[0][1], slowest(found)) for found in by_variant.values())
        for _, run in self.runs:
            yield from ((run.job.rank if run.job else None, run, result) for result in run.results)


def replicates(runs: Sequence[tuple[str, Run]]) -> tuple[Replicate, ...]:
    """The runs of a side, those of one job together."""
    found: dict[str | int, list[tuple[str, Run]]] = {}
    for index, (label, run) in enumerate(runs):
        found.setdefault(run.job.id if run.job else index, []).append((label, run))
    return tuple(_replicate(together) for together in found.values())


def slowest(results: Sequence[Result]) -> Result:
    """The slowest rank of one variant: of each window the largest step time over the ranks that have it.

    The other columns of a window are that rank's. Lead and loss are, where it has no loss, those of the slowest rank
    that has one. A window is throttled where any rank is, since all wait for it. Syncs are those of the rank with
    most, gradients the worst. It failed where no rank has times.
    """
    times = [result.time for result in results if result.time is not None and result.status == "ok"]
    first = next((result for result in results if result.status == "ok"), results[0])
    changes: dict[str, Any] = {
        "time": _slowest_time(times) if times else None,
        "syncs": _most_syncs(results),
        "gradients": _worst_gradients(results),
        "memory": None,
        "warnings": [],  # every rank has its own
    }
    return first.model_copy(update=changes)


def in_words(rank: Rank, ranks: int) -> str:
    """``rank 3``, ``slowest of 4 ranks``; "" where the job has one rank, or there is no job: then ``ranks`` is 0."""
    if rank is None or not ranks:
        return ""
    return f"slowest of {ranks:,} ranks" if rank == SLOWEST else f"rank {rank}"


def ranks_in_words(ranks: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0 to 2 and 5``, ``ranks 0, 2, 4, 6 and 508 more``."""
    ordered = sorted(ranks)
    ranges: list[tuple[int, int]] = []
    for _, run in itertools.groupby(enumerate(ordered), lambda item: item[1] - item[0]):
        found = [rank for _, rank in run]
        ranges += [(rank, rank) for rank in found] if len(found) < 3 else [(found[0], found[-1])]
    named = ranges if len(ranges) == _SHOWN + 1 else ranges[:_SHOWN]
    shown = [str(low) if low == high else f"{low} to {high}" for low, high in named]
    more = len(ordered) - sum(high - low + 1 for low, high in named)
    *before, last = [*shown, *([f"{more:,} more"] if more else [])]
    return f"rank{'' if len(ordered) == 1 else 's'} {', '.join(before)}{' and ' if before else ''}{last}"


def _replicate(runs: list[tuple[str, Run]]) -> Replicate:
    """A run, or a job; of a rank that is there twice the run that knows more windows counts."""
    by_rank: dict[int, tuple[str, Run]] = {}
    copies = []
    for label, run in runs:
        if run.job is None:
            return Replicate(label, ((label, run),))
        known = by_rank.get(run.job.rank)
        if known is None:
            by_rank[run.job.rank] = label, run
            continue
        kept, copy = ((label, run), known) if _windows(run) > _windows(known[1]) else (known, (label, run))
        by_rank[run.job.rank] = kept
        copies.append(copy[0])
    ordered = tuple(by_rank[rank] for rank in sorted(by_rank))
    return Replicate(_label(ordered), ordered, tuple(copies))


def _windows(run: Run) -> int:
    return run.job.windows if run.job else 0


def _label(runs: Sequence[tuple[str, Run]]) -> str:
    """The folder that holds the ranks' folders, where labels tell; else the job's id."""
    if len(runs) == 1:
        return runs[0][0]
    folders = {str(PurePosixPath(label).parent) for label, _ in runs}
    folder = folders.pop() if len(folders) == 1 else "."
    job = runs[0][1].job
    return folder if folder != "." or job is None else f"job {job.id}"


def _slowest_time(times: Sequence[Time]) -> Time:
    by_round: dict[int, list[tuple[Time, int]]] = {}
    for time in times:
        for index, number in enumerate(time.round):
            by_round.setdefault(number, []).append((time, index))
    rounds = sorted(by_round)
    windows = [max(by_round[number], key=_step) for number in rounds]
    losses = [max(filter(_has_loss, by_round[number]), key=_step, default=None) for number in rounds]
    return Time(
        modelled=any(time.modelled for time in times),
        profiled=any(time.profiled for time in times),
        step_ns=[time.step_ns[index] for time, index in windows],
        round=rounds,
        host_ns=[time.host_ns[index] for time, index in windows],
        lead_ns=[loss[0].lead_ns[loss[1]] if loss else None for loss in losses],
        loss_ns=[loss[0].loss_ns[loss[1]] if loss and loss[0].loss_ns else None for loss in losses],
        sm_clock_mhz=[time.sm_clock_mhz[index] for time, index in windows],
        throttled=[any(time.throttled[index] for time, index in by_round[number]) for number in rounds],
        stop_reason=times[0].stop_reason,
    )


def _step(window: tuple[Time, int]) -> tuple[bool, float]:
    """What windows of one round are ordered by; NaN is never hidden."""
    step_ns = window[0].step_ns[window[1]]
    return math.isnan(step_ns), step_ns


def _has_loss(window: tuple[Time, int]) -> bool:
    time, index = window
    return time.lead_ns[index] is not None or bool(time.loss_ns and time.loss_ns[index] is not None)


def _most_syncs(results: Sequence[Result]) -> Syncs | None:
    return max((result.syncs for result in results if result.syncs), key=lambda syncs: syncs.count, default=None)


def _worst_gradients(results: Sequence[Result]) -> Gradients | None:
    known = [result.gradients for result in results if result.gradients]
    return min(known, key=lambda gradients: _WORST_FIRST.index(gradients.status), default=None)
