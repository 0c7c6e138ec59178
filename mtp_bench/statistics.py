"""The interval of a difference of medians: percentile bootstrap, paired by round or not. No torch, no I/O.

98 % intervals from 1,999 resamples, seeded by the samples themselves, so that two people get the same interval from the
same data (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 1_999
CONFIDENCE = 0.98

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A difference of medians, candidate less baseline, and their ratio, each with its interval.

    Differences are in the unit of the samples.
    """

    difference: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float


def paired_difference(baseline: Sequence[float], candidate: Sequence[float]) -> Interval:
    """Interval of the difference where sample i of both sides is of one round: rounds are resampled, not samples.

    Raises ValueError where the lengths differ.
    """
    base, cand = _array(baseline), _array(candidate)
    if len(base) != len(cand):
        raise ValueError(f"paired samples need one length, got {len(base)} and {len(cand)}")
    rng = _generator(base, cand)
    rounds = rng.integers(0, len(base), size=(RESAMPLES, len(base)))
    return _interval(base, cand, base[rounds], cand[rounds])


def unpaired_difference(baseline: Sequence[float], candidate: Sequence[float]) -> Interval:
    """Interval of the difference where the sides were measured apart: each side is resampled on its own."""
    base, cand = _array(baseline), _array(candidate)
    rng = _generator(base, cand)
    return _interval(
        base,
        cand,
        base[rng.integers(0, len(base), size=(RESAMPLES, len(base)))],
        cand[rng.integers(0, len(cand), size=(RESAMPLES, len(cand)))],
    )


def _interval(base: Array, cand: Array, base_resampled: Array, cand_resampled: Array) -> Interval:
    base_medians, cand_medians = np.median(base_resampled, axis=1), np.median(cand_resampled, axis=1)
    ends = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.quantile(cand_medians - base_medians, ends)
        ratio_low, ratio_high = np.quantile(cand_medians / base_medians, ends)
        base_median, cand_median = np.median(base), np.median(cand)
        difference, ratio = cand_median - base_median, cand_median / base_median
    return Interval(*map(float, (difference, low, high, ratio, ratio_low, ratio_high)))


def _array(samples: Sequence[float]) -> Array:
    if not len(samples):
        raise ValueError("no samples")
    return np.asarray(samples, dtype=np.float64)


def _generator(base: Array, cand: Array) -> np.random.Generator:
    digest = hashlib.sha256(base.tobytes() + b"|" + cand.tobytes()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))
