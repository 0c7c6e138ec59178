"""The interval of a difference of medians, by the bootstrap: paired by round or not, one run a side or several.

Percentile intervals at 98 % from 1,999 resamples, seeded by the samples themselves, so that two people get the same
interval from the same data (Davison and Hinkley, Bootstrap Methods and their Application, 1997, sections 5.3 and 3.8).
Random numbers come from the raw stream of PCG64, which numpy keeps from version to version. No torch, no I/O.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

RESAMPLES = 1_999
CONFIDENCE = 0.98

Array = npt.NDArray[np.float64]

_TAIL = (1 - CONFIDENCE) / 2
# 1,999 and one make the ends whole order statistics: the 20th and the 1,980th.
_LOW, _HIGH = round(_TAIL * (RESAMPLES + 1)) - 1, round((1 - _TAIL) * (RESAMPLES + 1)) - 1

_BLOCK = 2**15  # windows drawn at a time: they stay in the cache, and memory does not grow with their number
_EXACT = 8  # samples up to which Mann and Whitney's p is counted out; scipy has the same limit


@dataclass(frozen=True, slots=True)
class Interval:
    """A difference of medians, candidate less baseline, and their ratio, each with its interval.

    Differences are in the unit of the samples. Of several runs a side, a side is the mean of its runs' medians.
    ``run_deviation`` is the standard deviation of one run's median (paired: of one run's difference) from run to run,
    at least what its windows explain; 0 where both sides have one run.
    """

    difference: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    run_deviation: float = 0.0


def paired_difference(baseline: Sequence[float], candidate: Sequence[float]) -> Interval:
    """Interval of the difference where sample i of both sides is of one round: rounds are resampled, not samples.

    Raises ValueError where the lengths differ, or where there are no samples.
    """
    return pooled_difference([baseline], [candidate], paired=True)


def unpaired_difference(baseline: Sequence[float], candidate: Sequence[float]) -> Interval:
    """Interval of the difference where the sides were measured apart: each side is resampled on its own.

    Raises ValueError where a side has no samples. Their order does not matter.
    """
    return pooled_difference([baseline], [candidate], paired=False)


def pooled_difference(
    baseline: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]], *, paired: bool
) -> Interval:
    """Interval of the difference of two sides of one or more runs each, the run as a level of its own.

    ``paired``: run i holds both sides, and sample j of both is of one round. Windows are resampled within their run.
    Where a side has several runs, the interval also holds Student's t interval of the runs' medians (paired: of the
    runs' differences), each run one observation: what machines differ by is then no effect, however few they are. Both
    sides' runs are taken to scatter alike. Sides exchanged give the same interval with the signs exchanged.

    Raises ValueError where a run has no samples, or where paired runs or samples do not correspond.
    """
    base, cand = [_array(run) for run in baseline], [_array(run) for run in candidate]
    if not base or not cand:
        raise ValueError("no runs")
    if paired and [len(run) for run in base] != [len(run) for run in cand]:
        raise ValueError(f"paired samples need one length, got {_lengths(base)} and {_lengths(cand)}")
    base_medians, cand_medians = _resampled(base, cand, paired)
    base_levels, cand_levels = _levels(base), _levels(cand)
    if paired:
        deviation, of_mean = _run_deviations([cand_levels - base_levels], cand_medians - base_medians)
    else:
        deviation, of_mean = _run_deviations([base_levels, cand_levels], np.concatenate([base_medians, cand_medians]))
    base_level = float(base_levels.mean())
    difference = float(cand_levels.mean()) - base_level
    differences = cand_medians.mean(axis=0) - base_medians.mean(axis=0)
    low, high = np.sort(differences)[[_LOW, _HIGH]]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a step of next to no time has no ratio
        ratio_low, ratio_high = np.sort(1 + differences / base_medians.mean(axis=0))[[_LOW, _HIGH]]
        ratio, of_ratio = 1 + np.float64(difference) / base_level, np.float64(of_mean) / base_level
    if of_mean:
        low, high = min(low, difference - of_mean), max(high, difference + of_mean)
        ratio_low, ratio_high = min(ratio_low, ratio - of_ratio), max(ratio_high, ratio + of_ratio)
    return Interval(*map(float, (difference, low, high, ratio, ratio_low, ratio_high, deviation)))


def student_t(freedom: int) -> float:
    """The quantile of Student's t that half an interval is wide, in standard deviations of the mean."""
    from scipy import special

    return float(special.stdtrit(freedom, 1 - _TAIL))


def mann_whitney(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """Two-sided p of Mann and Whitney's test (Ann. Math. Statist. 18, 1947), as ``scipy.stats.mannwhitneyu`` has it.

    Counted out for few samples without ties; else the normal distribution, corrected for ties and continuity. Not
    scipy's own, since importing ``scipy.stats`` takes as long as comparing a hundred results.
    """
    base, cand = np.sort(_array(baseline)), np.sort(_array(candidate))
    wins = (np.searchsorted(base, cand, "left") + np.searchsorted(base, cand, "right")).sum() / 2
    pairs = len(base) * len(cand)
    larger = max(wins, pairs - wins)
    together = np.unique(np.concatenate([base, cand]), return_counts=True)[1].astype(float)
    count = together.sum()
    if min(len(base), len(cand)) <= _EXACT and len(together) == count:
        ways = _ways(len(base), len(cand))
        return min(1.0, 2 * sum(ways[int(larger) :]) / sum(ways))
    variance = pairs / 12 * (count + 1 - (together**3 - together).sum() / (count * (count - 1)))
    if not variance:
        return 1.0
    return min(1.0, math.erfc((larger - pairs / 2 - 0.5) / math.sqrt(2 * variance)))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p values for their number, step-down (Holm, Scand. J. Statist. 6, 1979); None stays None."""
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for position, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - position)))
        adjusted[index] = largest
    return adjusted


def _resampled(base: Sequence[Array], cand: Sequence[Array], paired: bool) -> tuple[Array, Array]:
    """Medians of the resamples of every run of both sides, [runs, RESAMPLES] each."""
    if not paired:  # their order says nothing
        base, cand = [np.sort(run) for run in base], [np.sort(run) for run in cand]
    digests = [hashlib.sha256(b"|".join(run.tobytes() for run in side)).digest() for side in (base, cand)]
    stream = np.random.PCG64(int.from_bytes(hashlib.sha256(b"".join(sorted(digests))).digest()[:16], "little"))
    if paired:
        both = np.stack([_medians(stream, pair) for pair in zip(base, cand, strict=True)], axis=1)
        return both[0], both[1]
    first, second = (base, cand) if digests[0] <= digests[1] else (cand, base)
    drawn = [np.concatenate([_medians(stream, [run]) for run in side]) for side in (first, second)]
    return (drawn[0], drawn[1]) if first is base else (drawn[1], drawn[0])


def _medians(stream: np.random.PCG64, runs: Sequence[Array]) -> Array:
    """Medians of RESAMPLES resamples of ``runs`` of one length, [runs, RESAMPLES]: of each, the same windows."""
    length = len(runs[0])
    middle = length // 2
    rows = max(1, _BLOCK // length)
    # Ranks of 16 bits, since numpy finds their medians in a tenth of the time that those of doubles take.
    of_rank = [np.sort(run) for run in runs]
    ranks = [_ranks(run) for run in runs]
    medians = np.empty((len(runs), RESAMPLES))
    for start in range(0, RESAMPLES, rows):
        stop = min(start + rows, RESAMPLES)
        windows = _indices(stream, (stop - start) * length, length).reshape(-1, length)
        for index in range(len(runs)):
            drawn = ranks[index].take(windows)
            drawn.partition(middle, axis=1)
            upper = of_rank[index][drawn[:, middle]]
            lower = upper if length % 2 else of_rank[index][drawn[:, :middle].max(axis=1)]
            medians[index, start:stop] = (lower + upper) / 2
    return medians


def _ranks(run: Array) -> npt.NDArray[Any]:
    ranks = np.empty(len(run), dtype=np.uint16 if len(run) <= 2**16 else np.uint32)
    ranks[np.argsort(run, kind="stable")] = np.arange(len(run), dtype=ranks.dtype)
    return ranks


def _indices(stream: np.random.PCG64, count: int, below: int) -> npt.NDArray[np.intp]:
    """``count`` uniform whole numbers from 0 to ``below`` - 1, two of each 64 bits.

    In doubles, which multiply exactly up to 2**21 windows, and faster than numpy shifts whole numbers of 64 bits.
    """
    words = np.asarray(stream.random_raw((count + 1) // 2), dtype="<u8").view("<u4")[:count]
    return (words * (below / 2**32)).astype(np.intp)


def _run_deviations(sides: Sequence[Array], resampled: Array) -> tuple[float, float]:
    """The standard deviation of a run's level, and half the t interval of the sides' difference; 0 without runs.

    ``sides`` are the runs' levels, two sides or the one side of paired differences; ``resampled`` the resampled levels
    of all runs, [runs, RESAMPLES].
    """
    freedom = sum(len(side) - 1 for side in sides)
    if not freedom:
        return 0.0, 0.0
    seen = sum(float(np.sum((side - side.mean()) ** 2)) for side in sides) / freedom
    of_windows = float(resampled.var(axis=1).mean())
    half = student_t(freedom) * math.sqrt(seen * sum(1 / len(side) for side in sides))
    return math.sqrt(max(seen, of_windows)), half


def _ways(rows: int, columns: int) -> list[int]:
    """In how many orders of two samples without ties the statistic is 0, 1, ...: Gauss' binomial coefficients."""
    ways = [1] + [0] * (rows * columns)
    for size in range(1, min(rows, columns) + 1):
        step = max(rows, columns) + size
        for at in range(len(ways) - 1, step - 1, -1):
            ways[at] -= ways[at - step]
        for at in range(size, len(ways)):
            ways[at] += ways[at - size]
    return ways


def _levels(side: Sequence[Array]) -> Array:
    return np.array([np.median(run) for run in side])


def _lengths(side: Sequence[Array]) -> str:
    return ", ".join(str(len(run)) for run in side)


def _array(samples: Sequence[float]) -> Array:
    if not len(samples):
        raise ValueError("no samples")
    return np.asarray(samples, dtype="<f8")
