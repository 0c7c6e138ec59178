"""The bootstrap interval: against scipy's, and what pairing is for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mtp_bench.statistics import paired_difference, unpaired_difference


def samples(seed: int, centre: float, spread: float, n: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).normal(centre, spread, n)


def test_interval_agrees_with_scipys_percentile_bootstrap():
    base, cand = samples(1, 1000.0, 20.0), samples(2, 1050.0, 20.0)
    ours = unpaired_difference(base, cand)
    theirs = stats.bootstrap(
        (base, cand),
        lambda b, c, axis: np.median(c, axis=axis) - np.median(b, axis=axis),
        confidence_level=0.98,
        n_resamples=9_999,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(0),
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.difference == pytest.approx(np.median(cand) - np.median(base))
    assert ours.low == pytest.approx(theirs.low, abs=0.1 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.1 * width)


def test_pairing_by_round_removes_drift_that_hits_both_sides():
    drift = np.linspace(0.0, 500.0, 40)
    base, cand = samples(1, 1000.0, 1.0) + drift, samples(2, 1010.0, 1.0) + drift
    paired, apart = paired_difference(base, cand), unpaired_difference(base, cand)
    assert paired.low > 0
    assert apart.low < 0 < apart.high


def test_the_same_samples_give_the_same_interval():
    base, cand = samples(1, 1000.0, 20.0), samples(2, 1050.0, 20.0)
    assert paired_difference(base, cand) == paired_difference(list(base), list(cand))


def test_equal_samples_differ_by_nothing():
    base = samples(1, 1000.0, 20.0)
    interval = paired_difference(base, base)
    assert (interval.difference, interval.low, interval.high) == (0.0, 0.0, 0.0)


def test_lengths_that_cannot_be_paired_are_refused():
    with pytest.raises(ValueError, match="one length, got 1 and 2"):
        paired_difference([1.0], [1.0, 2.0])
