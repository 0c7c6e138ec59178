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

_BLOCK = 2**20  # windows drawn at a time, so that memory does not grow with their number


@dataclass(frozen=True, slots=True)
class Interval:
    """A difference of medians, candidate less baseline, and their ratio, each with its interval.

    Differences are in the unit of the samples. Of several runs a side, a side is the mean of its runs' medians.
    """

    difference: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float


def paired_difference(baseline: Sequence[float], candidate: Sequence[float]) -> Interval:
    """Interval of the difference where sample i of both sides is of one round: rounds are resampled, not samples.

    Raises ValueError where the lengths differ, or where there are no samples.
    """
    return pooled_difference([baseline], [candidate], paired=True)


def unpaired_difference(baseline: Sequence[float], candidate: Sequence[float]) -> Interval:
    """Interval of the difference where the sides were measured apart: each side is resampled on its own."""
    return pooled_difference([baseline], [candidate], paired=False)


def pooled_difference(
    baseline: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]], *, paired: bool
) -> Interval:
    """Interval of the difference of two sides of one or more runs each, the run as a level of its own.

    ``paired``: run i holds both sides, and sample j of both is of one round. Windows are resampled within their run.
    What the runs' medians differ by beyond what their windows explain is a random effect of the run: drawn from a
    normal distribution, since two to five runs are too few to resample, and widened from normal to Student's t with the
    degrees of freedom that its estimate has. Two sides of one run each have no such level.

    Raises ValueError where a run has no samples, or where paired runs or samples do not correspond.
    """
    base, cand = [_array(run) for run in baseline], [_array(run) for run in candidate]
    if paired and [len(run) for run in base] != [len(run) for run in cand]:
        raise ValueError("paired samples need one length")
    if not base or not cand:
        raise ValueError("no runs")
    draw = _Draw(base, cand)
    with np.errstate(divide="ignore", invalid="ignore"):
        if paired:
            both = [draw.medians(pair) for pair in zip(base, cand, strict=True)]
            base_medians, cand_medians = np.stack([b for b, _ in both]), np.stack([c for _, c in both])
            levels = [[_of(c) - _of(b) for b, c in zip(base, cand, strict=True)]]
            spread = _run_spread(levels, cand_medians - base_medians)
        else:
            base_medians, cand_medians = (np.stack([draw.medians([run])[0] for run in side]) for side in (base, cand))
            levels = [[_of(run) for run in side] for side in (base, cand)]
            spread = _run_spread(levels, np.concatenate([base_medians, cand_medians]))
        differences = cand_medians.mean(axis=0) - base_medians.mean(axis=0)
        if spread:
            runs = 1 / len(base) if paired else 1 / len(base) + 1 / len(cand)
            differences = differences + spread * math.sqrt(runs) * draw.normal()
        ratios = 1 + differences / base_medians.mean(axis=0)
        base_level, cand_level = (float(np.mean([_of(run) for run in side])) for side in (base, cand))
        difference = cand_level - base_level
        ratio = 1 + np.float64(difference) / base_level
        low, high = np.sort(differences)[[_LOW, _HIGH]]
        ratio_low, ratio_high = np.sort(ratios)[[_LOW, _HIGH]]
    return Interval(*map(float, (difference, low, high, ratio, ratio_low, ratio_high)))


def mann_whitney(baseline: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]]) -> float:
    """Two-sided p of Mann and Whitney's test (scipy) of windows; of the runs' medians where a side has several runs."""
    from scipy import stats

    several = len(baseline) > 1 or len(candidate) > 1
    base, cand = ([_of(_array(run)) for run in side] if several else list(side[0]) for side in (baseline, candidate))
    return float(stats.mannwhitneyu(base, cand, alternative="two-sided").pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p values for their number, step-down (Holm, Scand. J. Statist. 6, 1979); None stays None."""
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for position, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - position)))
        adjusted[index] = largest
    return adjusted


class _Draw:
    """Random numbers that depend on the samples alone."""

    def __init__(self, base: Sequence[Array], cand: Sequence[Array]) -> None:
        content = b"|".join([*(run.tobytes() for run in base), b"", *(run.tobytes() for run in cand)])
        self._stream = np.random.PCG64(int.from_bytes(hashlib.sha256(content).digest()[:16], "little"))

    def medians(self, runs: Sequence[Array]) -> Array:
        """Medians of RESAMPLES resamples, [runs, RESAMPLES]; of runs of one length, the same windows are drawn."""
        length = len(runs[0])
        rows = max(1, _BLOCK // length)
        ranked = [_ranked(run) for run in runs]
        medians = np.empty((len(runs), RESAMPLES))
        for start in range(0, RESAMPLES, rows):
            stop = min(start + rows, RESAMPLES)
            windows = self._indices(stop - start, length)
            for index, (ranks, in_order) in enumerate(ranked):
                medians[index, start:stop] = _medians(ranks, in_order, windows)
        return medians

    def normal(self) -> Array:
        """RESAMPLES standard normal numbers."""
        from scipy import special

        uniform = (self._words(RESAMPLES) + 0.5) / 2**32
        return np.asarray(special.ndtri(uniform), dtype=np.float64)

    def _indices(self, rows: int, length: int) -> npt.NDArray[np.intp]:
        words = self._words(rows * length)
        return (words * np.uint64(length) >> np.uint64(32)).astype(np.intp).reshape(rows, length)

    def _words(self, count: int) -> npt.NDArray[np.uint64]:
        """Uniform numbers of 32 bits."""
        raw = np.asarray(self._stream.random_raw((count + 1) // 2), dtype="<u8")
        return raw.view("<u4")[:count].astype(np.uint64)


def _ranked(run: Array) -> tuple[npt.NDArray[Any], Array]:
    """The rank of every sample, and the samples in order: sorting 16-bit ranks takes a tenth of finding medians."""
    order = np.argsort(run, kind="stable")
    ranks = np.empty(len(run), dtype=np.uint16 if len(run) <= 2**16 else np.uint32)
    ranks[order] = np.arange(len(run), dtype=ranks.dtype)
    return ranks, run[order]


def _medians(ranks: npt.NDArray[Any], in_order: Array, windows: npt.NDArray[np.intp]) -> Array:
    resampled = ranks[windows]
    resampled.sort(axis=1)
    middle = len(in_order) // 2
    upper: Array = in_order[resampled[:, middle]]
    if len(in_order) % 2:
        return upper
    lower: Array = in_order[resampled[:, middle - 1]]
    return (lower + upper) / 2


def _run_spread(sides: Sequence[Sequence[float]], resampled: Array) -> float:
    """Standard deviation from run to run beyond what windows explain, times t over z; 0 where no side has two runs.

    ``sides`` are the runs' levels. The spread is taken to be the same on both sides; ``resampled`` are the resampled
    levels of all runs, [runs, RESAMPLES].
    """
    freedom = sum(len(side) - 1 for side in sides)
    if freedom < 1:
        return 0.0
    from scipy import special

    of_runs = sum(float(np.var(side)) * len(side) for side in sides) / freedom
    of_windows = float(resampled.var(axis=1).mean())
    widening = special.stdtrit(freedom, 1 - _TAIL) / special.ndtri(1 - _TAIL)
    return math.sqrt(max(0.0, of_runs - of_windows)) * float(widening)


def _of(run: Array) -> float:
    return float(np.median(run))


def _array(samples: Sequence[float]) -> Array:
    if not len(samples):
        raise ValueError("no samples")
    return np.asarray(samples, dtype=np.float64)
