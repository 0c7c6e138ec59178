"""Verdicts: the threshold, every branch that interval and threshold decide, and what would decide an unclear one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from mtp_bench.compare.verdicts import (
    Difference,
    Finding,
    Threshold,
    difference,
    finite,
    judge,
    kept,
    mann_whitney_p,
    median_ns,
)
from mtp_bench.errors import InputError
from tests import runs


@pytest.mark.parametrize(
    ("text", "expected", "shown"),
    [
        ("10us", Threshold(10_000.0, 0.0), "10 us"),
        ("0.5%", Threshold(0.0, 0.005), "0.5 %"),
        ("20us,1%", Threshold(20_000.0, 0.01), "20 us or 1 %"),
        (" 1 % , 2 ms ", Threshold(2_000_000.0, 0.01), "2000 us or 1 %"),
        ("500ns", Threshold(500.0, 0.0), "0.5 us"),
        (".5us", Threshold(500.0, 0.0), "0.5 us"),
        ("0", Threshold(0.0, 0.0), "0 us"),
        ("0us", Threshold(0.0, 0.0), "0 us"),
        ("0,1%", Threshold(0.0, 0.01), "1 %"),
    ],
)
def test_a_threshold_is_a_time_a_percentage_or_both(text, expected, shown):
    assert Threshold.parse(text) == expected
    assert str(expected) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "10us,",
        "ten us",
        "-10us",
        "10s",
        "1e3us",
        "nan%",
        "inf",
        "10us,20us",
        "1%,2%",
        "10us 1%",
        "9" * 400 + "us",
    ],
)
def test_anything_else_is_an_input_error_that_says_what_would_be_right(text):
    with pytest.raises(InputError) as error:
        Threshold.parse(text)
    assert str(error.value) == (
        f"--threshold {text!r}: expected a time, a percentage or both, as in 10us, 0.5% or 20us,1%"
    )


def test_an_error_names_the_option_that_it_came_from():
    with pytest.raises(InputError, match=r"^--fail-on slower>2: '2': expected a time"):
        Threshold.parse("2", "--fail-on slower>2:")


def test_the_larger_of_both_counts_and_the_default_is_10_us_or_half_a_percent():
    assert Threshold.parse("10us,0.5%") == Threshold()
    assert [Threshold().of(ns) for ns in (1e6, 2e6, 5e6)] == [10_000.0, 10_000.0, 25_000.0]


def found_us(low, ns, high, **changes):
    """A difference and its interval, of a step of 1,000 us, whose threshold is 10 us."""
    ends = {"low": low and low * 1e3, "high": high and high * 1e3}
    rest = {"ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0, "baseline_ns": 1e6, "candidate_ns": 1e6 + ns * 1e3}
    return Difference(ns=ns * 1e3, **{**ends, **rest, "windows": (20, 20), **changes})


@pytest.mark.parametrize(
    ("low", "ns", "high", "verdict", "reason"),
    [
        (20, 30, 40, "slower", "the interval excludes 0 and the difference passes the threshold of 10.0 us"),
        (1, 20, 40, "slower", "the interval excludes 0 and the difference passes the threshold of 10.0 us"),
        (-40, -30, -20, "faster", "the interval excludes 0 and the difference passes the threshold of 10.0 us"),
        (-40, -20, -1, "faster", "the interval excludes 0 and the difference passes the threshold of 10.0 us"),
        (-9, 0, 9, "same", "the interval lies within the threshold of 10.0 us"),
        (2, 5, 9, "same", "the interval lies within the threshold of 10.0 us"),
        (-10, 0, 10, "same", "the interval lies within the threshold of 10.0 us"),
        (0, 0, 0, "same", "the interval lies within the threshold of 10.0 us"),
    ],
)
def test_interval_and_threshold_alone_decide(low, ns, high, verdict, reason):
    assert judge(found_us(low, ns, high), Threshold(), modelled=False) == Finding(verdict, reason)


@pytest.mark.parametrize(
    ("low", "ns", "high", "reason", "windows"),
    [
        # The half width of 21, and 0.55 times as much for a difference that is found smaller, must shrink to 20.
        (-1, 20, 41, "the interval holds 0 and reaches past the threshold of 10.0 us", 54),
        (-41, -20, 1, "the interval holds 0 and reaches past the threshold of 10.0 us", 54),
        # 1.55 times 20 must shrink to 10 on both sides.
        (-20, 0, 20, "the interval holds 0 and reaches past the threshold of 10.0 us", 193),
        # 1.55 times 8 must shrink to 6 above; there is more room below.
        (-4, 4, 12, "the interval holds 0 and reaches past the threshold of 10.0 us", 86),
        (
            2,
            8,
            14,
            "the interval excludes 0 and reaches past the threshold of 10.0 us, which the difference does not pass",
            433,
        ),
        # 12 passes 10 by 2: to be found past 10 nine times in ten takes more than to exclude 0.
        (-1, 12, 25, "the interval holds 0 and reaches past the threshold of 10.0 us", 257),
    ],
)
def test_what_neither_decides_is_unclear_with_the_windows_that_would(low, ns, high, reason, windows):
    found = judge(found_us(low, ns, high), Threshold(), modelled=False)
    told = f"{reason}; about {windows} windows a side would decide"
    assert found == Finding("unclear", told, windows_to_decide=windows)


def test_sides_of_different_sizes_count_as_much_as_two_of_their_harmonic_mean():
    found = judge(found_us(-20, 0, 20, windows=(20, 60)), Threshold(), modelled=False)
    assert found.windows_to_decide == 289  # 30 / 20 of 193


def test_a_difference_on_the_threshold_is_never_decided():
    reason = "the interval excludes 0 and reaches past the threshold of 10.0 us, which the difference does not pass"
    for ns in (10.0, 9.999):
        assert judge(found_us(1, ns, 19), Threshold(), modelled=False) == Finding(
            "unclear", f"{reason}; more windows would not decide"
        )


def test_a_threshold_of_0_leaves_slower_faster_and_unclear():
    zero = Threshold.parse("0")
    verdicts = {
        (low, high): judge(found_us(low, (low + high) / 2, high), zero, modelled=False).verdict
        for low, high in ((1, 3), (-3, -1), (-1, 3), (0, 2), (0, 0))
    }
    assert verdicts == {(1, 3): "slower", (-3, -1): "faster", (-1, 3): "unclear", (0, 2): "unclear", (0, 0): "same"}


def test_a_percentage_is_one_of_the_baselines_step():
    found = found_us(20, 30, 40)
    verdicts = [judge(found, Threshold.parse(text), modelled=False).verdict for text in ("2%", "3%", "4%")]
    assert verdicts == ["slower", "unclear", "same"]


@pytest.mark.parametrize(("low", "high", "windows"), [(None, None, 1), (20, 40, 5)])
def test_fewer_than_six_windows_say_nothing(low, high, windows):
    found = found_us(low, 30, high, windows=(20, windows))
    assert judge(found, Threshold(), modelled=False) == Finding(
        "unclear", "fewer than 6 windows a side", windows_to_decide=6
    )


def test_six_windows_are_enough():
    assert judge(found_us(20, 30, 40, windows=(6, 6)), Threshold(), modelled=False).verdict == "slower"


@pytest.mark.parametrize(
    ("ns", "verdict", "reason"),
    [
        (10.1, "slower", "the modelled difference passes the threshold of 10.0 us"),
        (-10.1, "faster", "the modelled difference passes the threshold of 10.0 us"),
        (10.0, "same", "the modelled difference lies within the threshold of 10.0 us"),
        (0.0, "same", "the modelled difference lies within the threshold of 10.0 us"),
    ],
)
def test_a_modelled_difference_is_its_own_interval(ns, verdict, reason):
    assert judge(found_us(None, ns, None), Threshold(), modelled=True) == Finding(verdict, reason)


@pytest.mark.parametrize(("threshold", "shown"), [("0", "0 us"), ("50ns", "0.05 us"), ("1ms", "1,000.0 us")])
def test_a_reason_names_small_thresholds_too(threshold, shown):
    found = judge(found_us(0, 0, 0), Threshold.parse(threshold), modelled=False)
    assert found.reason == f"the interval lies within the threshold of {shown}"


@pytest.mark.parametrize(
    ("paired", "runs_to_decide"),
    # Until (t + 1.28) * 13 * (1 / runs)**0.5 < 40, where t is 4.54 with 4 paired runs. Two sides of 5 runs each have
    # 8 degrees of freedom, a t of 2.90, and 2 / runs.
    [(True, 4), (False, 5)],
)
def test_of_several_runs_it_is_runs_that_decide(paired, runs_to_decide):
    found = found_us(-60, 40, 140, runs=(2, 2), paired=paired, run_deviation_ns=13_000.0)
    reason = "the interval holds 0 and reaches past the threshold of 10.0 us"
    assert judge(found, Threshold(), modelled=False) == Finding(
        "unclear", f"{reason}; about {runs_to_decide} runs a side would decide", runs_to_decide=runs_to_decide
    )


def test_of_several_runs_the_difference_may_be_too_small_for_the_threshold():
    found = found_us(-60, 4, 68, runs=(2, 2), paired=True, run_deviation_ns=3_000.0)
    assert judge(found, Threshold(), modelled=False).runs_to_decide == 6  # (3.36 + 1.28) * 3 / 6**0.5 is 5.7
    on_it = found_us(-60, 10, 80, runs=(2, 2), paired=True, run_deviation_ns=3_000.0)
    assert judge(on_it, Threshold(), modelled=False).reason.endswith("; more runs would not decide")


def noisy(random, centre_us, spread_us, windows):
    return runs.time(*random.normal(centre_us, spread_us, windows), modelled=False)


@pytest.mark.parametrize(("ns", "verdict"), [(20, "slower"), (2, "same"), (0, "same")])
def test_as_many_windows_as_it_says_decide_eight_to_nine_times_in_ten(ns, verdict):
    """Samples of 30 us noise whose difference is as found with 20 windows: of 0, both ends must come within."""
    half = stats.norm.ppf(0.99) * (np.pi / 2) ** 0.5 * 30.0 * (2 / 20) ** 0.5
    told = judge(found_us(ns - half, ns, ns + half), Threshold(), modelled=False)
    assert told.verdict == "unclear"
    random = np.random.default_rng(5)
    verdicts = Counter(
        judge(difference([base], [cand], paired=True), Threshold(), modelled=False).verdict
        for base, cand in (
            (noisy(random, 1_000, 30, told.windows_to_decide), noisy(random, 1_000 + ns, 30, told.windows_to_decide))
            for _ in range(100)
        )
    )
    assert 78 <= verdicts[verdict] <= 97
    assert verdicts[verdict] + verdicts["unclear"] == 100


@pytest.mark.parametrize("paired", [True, False])
def test_as_many_runs_as_it_says_decide_nine_times_in_ten(paired):
    """Runs whose medians (paired: whose differences) deviate by 13 us, and windows without noise."""
    found = found_us(-60, 40, 140, runs=(2, 2), paired=paired, run_deviation_ns=13_000.0)
    count = judge(found, Threshold(), modelled=False).runs_to_decide
    random = np.random.default_rng(6)

    def side(effect_us, deviation_us):
        return [noisy(random, 1_000 + effect_us + random.normal(0, deviation_us), 0.01, 9) for _ in range(count)]

    slower = sum(
        judge(
            difference(side(0, 0 if paired else 13), side(40, 13), paired=paired), Threshold(), modelled=False
        ).verdict
        == "slower"
        for _ in range(100)
    )
    assert 78 <= slower <= 98


def test_windows_are_paired_by_round_and_not_by_position():
    base = runs.time(1.0, 2.0, 3.0, modelled=False, round=[0, 1, 2])
    cand = runs.time(13.0, 11.0, 12.0, modelled=False, round=[2, 0, 1])
    found = difference([base], [cand], paired=True)
    assert (found.ns, found.low, found.high, found.paired) == (10_000, 10_000, 10_000, True)


def test_sides_without_a_round_in_common_are_not_paired():
    base, cand = (runs.time(1.0, 1.0, modelled=False, round=rounds) for rounds in ([0, 1], [2, 3]))
    assert difference([base], [cand], paired=True).paired is False


def test_throttled_windows_are_left_out_in_pairs_and_counted():
    base = runs.time(10.0, 10.0, 10.0, 90.0, modelled=False, throttled=[False, False, False, True])
    cand = runs.time(12.0, 12.0, 12.0, 12.0, modelled=False)
    found = difference([base], [cand], paired=True)
    assert (found.ns, found.high, found.windows, found.dropped) == (2_000, 2_000, (3, 3), 1)
    assert found.alone == 1  # the calm window beside the throttled one


def test_windows_whose_round_the_other_side_lacks_are_left_out_and_counted():
    base, cand = (runs.time(1.0, 1.0, 1.0, modelled=False, round=rounds) for rounds in ([0, 1, 2], [2, 1, 5]))
    found = difference([base], [cand], paired=True)
    assert (found.windows, found.alone, found.dropped) == ((2, 2), 2, 0)


def test_where_all_windows_were_throttled_all_are_kept():
    hot = runs.time(10.0, 14.0, modelled=False, throttled=[True, True])
    assert (kept(hot), median_ns(hot)) == ({0: 10_000.0, 1: 14_000.0}, 12_000.0)
    assert difference([hot], [hot], paired=True).dropped == 0


def test_a_side_of_several_runs_is_the_mean_of_their_medians():
    base = [runs.time(9.0, 10.0, 12.0, modelled=False), runs.time(20.0, 20.0, modelled=False)]
    cand = [runs.time(18.0, 18.0, modelled=False)]
    found = difference(base, cand, paired=False)
    assert (found.baseline_ns, found.candidate_ns, found.ns) == (15_000, 18_000, 3_000)
    assert (found.windows, found.runs, found.ratio) == ((5, 2), (2, 1), 1.2)
    assert found.run_deviation_ns == pytest.approx(5_000 * 2**0.5)


def test_modelled_times_and_single_windows_have_no_interval():
    for modelled, us in ((True, 2.0), (False, 2.0)):
        base, cand = runs.time(1.0, modelled=modelled), runs.time(us, modelled=modelled)
        found = difference([base], [cand], paired=True)
        assert (found.ns, found.ratio, found.low, found.ratio_low) == (1_000, 2.0, None, None)
        assert mann_whitney_p([base], [cand]) is None


def test_mann_whitneys_p_is_of_windows_and_of_medians_where_there_are_several_runs():
    base, cand = ([runs.time(*us, modelled=False) for us in side] for side in ([(1, 2), (3, 4)], [(5, 6), (7, 8)]))
    assert mann_whitney_p(base[:1], cand[:1]) == pytest.approx(1 / 3)
    assert mann_whitney_p(base, cand) == pytest.approx(stats.mannwhitneyu([1.5, 3.5], [5.5, 7.5]).pvalue)


def test_times_that_are_not_finite_are_told_apart():
    assert finite(runs.time(1.0, 2.0))
    assert not finite(runs.time(1.0, float("nan")))
    assert not finite(runs.time(1.0, float("inf")))
    assert not finite(runs.time(1.0, 1e300))  # its square is
