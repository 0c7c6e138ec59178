"""The bootstrap interval: against scipy's, what pairing is for, and runs as a level of their own."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from mtp_bench.statistics import Interval, holm, mann_whitney, paired_difference, pooled_difference, unpaired_difference


def samples(seed: int, centre: float, spread: float, n: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).normal(centre, spread, n)


def scipys(base: np.ndarray, cand: np.ndarray, paired: bool) -> tuple[float, float]:
    found = stats.bootstrap(
        (base, cand),
        lambda b, c, axis: np.median(c, axis=axis) - np.median(b, axis=axis),
        confidence_level=0.98,
        n_resamples=9_999,
        method="percentile",
        paired=paired,
        vectorized=True,
        rng=np.random.default_rng(0),
    ).confidence_interval
    return found.low, found.high


@pytest.mark.parametrize("windows", [20, 41, 200])
@pytest.mark.parametrize("paired", [False, True])
def test_the_interval_agrees_with_scipys_percentile_bootstrap(windows, paired):
    base = samples(1, 1000.0, 20.0, windows)
    cand = base / 2 + 525.0 + samples(2, 0.0, 10.0, windows)  # correlated, so that pairing matters
    ours = pooled_difference([base], [cand], paired=paired)
    low, high = scipys(base, cand, paired)
    assert ours.difference == pytest.approx(np.median(cand) - np.median(base))
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.1 * (high - low))
    assert ours.ratio == pytest.approx(np.median(cand) / np.median(base))
    assert ours.ratio_low < ours.ratio < ours.ratio_high
    assert ours.run_deviation == 0.0


def test_pairing_by_round_removes_what_hits_both_sides():
    drift = np.linspace(0.0, 500.0, 40)
    base, cand = samples(1, 1000.0, 1.0) + drift, samples(2, 1010.0, 1.0) + drift
    paired, apart = paired_difference(base, cand), unpaired_difference(base, cand)
    assert paired.low > 0
    assert apart.low < 0 < apart.high


# Another interval of these samples means that two people with the same samples, but two versions of numpy, get two.
GIVEN = [10.31, 12.87, 11.12, 17.64, 14.09, 13.55, 19.78, 16.2, 15.93, 18.41]
ANSWERED = [12.44, 11.96, 14.77, 18.02, 13.58, 17.35, 20.61, 15.16, 19.23, 16.89]
PAIRED = (1.015, -1.04, 3.8, 1.0676216, 0.9358025, 1.2804428)
APART = (1.015, -3.64, 5.15, 1.0676216, 0.7864078, 1.4001554)


def ends(found: Interval) -> tuple[float, ...]:
    numbers = found.difference, found.low, found.high, found.ratio, found.ratio_low, found.ratio_high
    return tuple(round(number, 7) for number in numbers)


def test_the_same_samples_give_the_same_interval_everywhere():
    assert ends(paired_difference(GIVEN, ANSWERED)) == PAIRED
    assert ends(unpaired_difference(GIVEN, ANSWERED)) == APART
    assert np.random.PCG64(12345).random_raw(2).tolist() == [4193609425186963869, 5843160025838961886]


def test_the_samples_alone_decide_and_not_what_holds_them():
    assert ends(paired_difference(np.array(GIVEN), tuple(ANSWERED))) == PAIRED


@pytest.mark.parametrize("paired", [False, True])
def test_sides_exchanged_give_the_same_interval_with_the_signs_exchanged(paired):
    sides = [samples(1, 1000.0, 20.0), samples(2, 1010.0, 20.0)], [samples(3, 1000.0, 20.0), samples(4, 1030.0, 20.0)]
    there, back = (pooled_difference(*pair, paired=paired) for pair in (sides, sides[::-1]))
    assert (back.difference, back.low, back.high) == (-there.difference, -there.high, -there.low)


def test_the_order_of_unpaired_samples_does_not_matter():
    assert unpaired_difference(GIVEN[::-1], ANSWERED) == unpaired_difference(GIVEN, sorted(ANSWERED))


def test_equal_samples_differ_by_nothing():
    base = samples(1, 1000.0, 20.0)
    assert paired_difference(base, base) == Interval(0.0, 0.0, 0.0, 1.0, 1.0, 1.0)


def test_a_step_of_0_has_a_difference_and_no_ratio():
    found = paired_difference([0.0, 0.0], [3.0, 3.0])
    assert (found.difference, found.low, found.high) == (3.0, 3.0, 3.0)
    assert found.ratio == np.inf


@pytest.mark.parametrize(
    ("base", "cand", "message"),
    [
        ([[1.0]], [[1.0, 2.0]], "one length, got 1 and 2"),
        ([[1.0], [1.0, 2.0]], [[1.0]], "one length, got 1, 2 and 1"),
        ([[1.0], []], [[1.0], []], "no samples"),
        ([], [], "no runs"),
    ],
)
def test_what_cannot_be_paired_is_refused(base, cand, message):
    with pytest.raises(ValueError, match=message):
        pooled_difference(base, cand, paired=True)


@pytest.mark.slow
def test_memory_stays_bounded_with_many_windows():
    """Drawn all at once, 1,999 resamples of 100,000 windows would take 1.6 GB a side."""
    base, cand = samples(1, 1000.0, 20.0, 100_000), samples(2, 1000.0, 20.0, 100_000)
    tracemalloc.start()
    paired_difference(base, cand)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 10_000_000


def test_runs_that_differ_widen_the_interval_to_students_t():
    """Levels 10, 12 and 13, 15: a deviation of 1.41 with two degrees of freedom, whose t is 6.96."""
    base, cand = [[10.0, 10.0], [12.0, 12.0]], [[13.0, 13.0], [15.0, 15.0]]
    apart = pooled_difference(base, cand, paired=False)
    assert (apart.difference, apart.low, apart.high) == pytest.approx((3.0, -6.849, 12.849), abs=1e-3)
    assert (apart.ratio, apart.ratio_low, apart.ratio_high) == pytest.approx((14 / 11, 0.377, 2.168), abs=1e-3)
    assert apart.run_deviation == pytest.approx(2**0.5)
    # Within each run the candidate is 3 slower, whichever the machine.
    assert pooled_difference(base, cand, paired=True) == Interval(3.0, 3.0, 3.0, 14 / 11, *(14 / 11,) * 2)


def test_one_run_against_several_takes_their_deviation():
    found = pooled_difference([[10.0], [12.0], [14.0]], [[12.0]], paired=False)
    t = stats.t.ppf(0.99, 2)
    assert found.run_deviation == pytest.approx(2.0)
    assert found.high == pytest.approx(t * 2.0 * (1 / 3 + 1) ** 0.5)


def test_runs_that_agree_leave_the_interval_of_their_windows():
    """No spread of runs beyond that of windows: then these bound the deviation from below."""
    runs = [samples(1, 1000.0, 20.0)] * 2
    alike = pooled_difference(runs, [run + 5.0 for run in runs], paired=False)
    assert alike.difference == pytest.approx(5.0)
    assert alike.high - alike.low > 10.0
    assert alike.run_deviation == pytest.approx(1.25 * 20.0 / 40**0.5, rel=0.3)


@pytest.mark.parametrize("of_machines", [0.0, 3.0])
@pytest.mark.parametrize(("baselines", "candidates", "paired"), [
    (2, 2, True), (3, 3, True), (5, 5, True), (2, 2, False), (3, 3, False), (5, 5, False), (3, 1, False),
])  # fmt: skip
def test_what_machines_differ_by_is_no_effect(baselines, candidates, paired, of_machines):
    """``of_machines``: their deviation in standard errors of a run's median; at most 5 % of 200 equal pairs differ."""
    random = np.random.default_rng(7)
    error = 1.25 / 9**0.5

    def side(centres: np.ndarray) -> list[np.ndarray]:
        return [centre + random.normal(0.0, of_machines * error) + random.normal(0.0, 1.0, 9) for centre in centres]

    wrong = 0
    for _ in range(200):
        machines = np.full(baselines, 100.0) + (random.normal(0.0, 50.0, baselines) if paired else 0.0)
        found = pooled_difference(side(machines), side(machines[:candidates]), paired=paired)
        wrong += found.low > 0 or found.high < 0
    assert wrong <= 10


def test_an_effect_that_every_run_has_is_found():
    random = np.random.default_rng(7)
    found = 0
    for _ in range(100):
        machines = random.normal(5_000.0, 200.0, 3)
        base, cand = ([us + effect + random.normal(0.0, 50.0, 40) for us in machines] for effect in (0.0, 100.0))
        found += pooled_difference(base, cand, paired=True).low > 0
    assert found >= 90


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (5, 5), (8, 40), (9, 9), (40, 60)])
def test_mann_whitneys_p_is_scipys(sizes):
    random = np.random.default_rng(sizes)
    for shift, digits in itertools.product((0.0, 0.5, 3.0), (1, 9)):  # rounded to one digit, there are ties
        base, cand = (random.normal(at, 1.0, n).round(digits) for at, n in zip((0.0, shift), sizes, strict=True))
        assert mann_whitney(base, cand) == pytest.approx(stats.mannwhitneyu(base, cand).pvalue, rel=1e-12)


def test_samples_that_are_all_equal_say_nothing():
    assert mann_whitney([1.0] * 10, [1.0] * 10) == 1.0


def test_holms_correction_worked_by_hand():
    """0.01 is taken 4 times, 0.02 3 times, 0.03 2 times but not below the one before, 0.5 once."""
    assert holm([0.5, 0.01, None, 0.03, 0.02]) == pytest.approx([0.5, 0.04, None, 0.06, 0.06])
    assert holm([0.4, 0.6]) == [0.8, 0.8]
    assert holm([0.9, 0.7]) == [1.0, 1.0]
    assert holm([None]) == [None]


def test_steps_of_next_to_no_time_have_no_finite_ratio_and_no_warning(recwarn):
    found = paired_difference([5e-324] * 5, [1e10] * 5)
    assert (found.difference, found.ratio) == (1e10, math.inf)
    assert not recwarn.list
