"""Cautions: each fires on what it is for, stays silent on clean samples, and says what to do."""

from __future__ import annotations

import numpy as np
import pytest

from mtp_bench.compare import compare
from mtp_bench.compare.cautions import ADVICE, Caution, Kind, of_clocks, of_environments, of_times, subjects
from mtp_bench.compare.verdicts import Threshold
from tests import runs


def measured(step_us, **changes):
    return runs.result("mine", time=runs.time(*step_us, modelled=False, **changes))


def gaussian(seed, windows=40, spread_us=50.0):
    return np.random.default_rng(seed).normal(10_000.0, spread_us, windows)


def kinds(step_us, **options):
    return [caution.kind for caution in of_times("mine", [measured(step_us)], **options)]


def test_every_kind_has_advice():
    assert set(ADVICE) == set(Kind)
    assert all(ADVICE.values())


def test_clean_samples_have_none():
    assert list(of_times("mine", [measured(gaussian(1))])) == []
    assert list(of_times("mine", [measured([10_000.0] * 20)])) == []
    assert list(of_times("mine", [runs.result("mine"), runs.result("mine", status="failed", time=None)])) == []


@pytest.mark.parametrize(("windows", "expected"), [(19, [Kind.TOO_FEW_SAMPLES]), (20, [])])
def test_fewer_than_20_windows_are_too_few(windows, expected):
    assert kinds(gaussian(1, windows)) == expected


def test_drift_says_how_far():
    climbing = [10_000.0 + 10 * window for window in range(40)]
    assert list(of_times("mine", [measured(climbing)])) == [
        Caution(Kind.DRIFT, "mine", "+300.0 us from the first quarter of windows to the last")
    ]


def test_drift_that_would_change_no_verdict_is_none():
    """Of steps of 10 ms the threshold is 50 us."""
    climbing = [10_000.0 + window for window in range(40)]
    assert kinds(climbing) == []
    assert kinds(climbing, threshold=Threshold.parse("10us")) == [Kind.DRIFT]


def test_two_modes_are_named():
    jumping = [10_000.0 + 300 * (window * 7 % 5 < 2) + window % 3 for window in range(40)]
    assert list(of_times("mine", [measured(jumping)])) == [
        Caution(Kind.BIMODAL, "mine", "around 10,001.0 and 10,301.0 us")
    ]


def test_modes_that_would_change_no_verdict_are_none():
    jumping = [10_000.0 + 30 * (window * 7 % 5 < 2) + window % 3 for window in range(40)]
    assert kinds(jumping) == []
    assert kinds(jumping, threshold=Threshold.parse("10us")) == [Kind.BIMODAL]


def test_a_few_outliers_are_no_mode():
    outliers = [*gaussian(1, 36), *[12_000.0] * 4]
    assert kinds(np.random.default_rng(0).permutation(outliers)) == []


def test_a_step_in_time_is_drift_and_two_modes():
    assert kinds([10_000.0 + window % 5 for window in range(20)] + [11_000.0 + window % 5 for window in range(20)]) == [
        Kind.DRIFT,
        Kind.BIMODAL,
    ]


def rate(kind, samples):
    return sum(kind in kinds(step_us, threshold=Threshold(0.0, 0.0)) for step_us in samples) / len(samples)


@pytest.mark.parametrize("windows", [20, 40, 200])
def test_clean_samples_are_called_neither_drifting_nor_bimodal(windows):
    """At a threshold of 0. In the long run drift is seen in 0.1 %, two modes in 0.1 % or less."""
    samples = [gaussian(seed, windows) for seed in range(1_000)]
    assert rate(Kind.DRIFT, samples) <= 0.005
    assert rate(Kind.BIMODAL, samples) <= 0.005


@pytest.mark.parametrize("windows", [20, 40, 200])
def test_one_long_tail_is_not_two_modes(windows):
    random = np.random.default_rng(3)
    samples = [10_000.0 + random.exponential(50.0, windows) for _ in range(1_000)]
    assert rate(Kind.BIMODAL, samples) <= 0.02


@pytest.mark.parametrize(("windows", "deviations", "found"), [(20, 4, 0.8), (40, 3, 0.9), (200, 2, 0.99)])
def test_drift_of_a_few_deviations_is_seen(windows, deviations, found):
    drift = np.linspace(0.0, 50.0 * deviations, windows)
    assert rate(Kind.DRIFT, [gaussian(seed, windows) + drift for seed in range(200)]) >= found


@pytest.mark.parametrize(("windows", "deviations", "found"), [(20, 8, 0.98), (40, 6, 0.95), (200, 5, 0.98)])
def test_two_modes_a_few_deviations_apart_are_seen(windows, deviations, found):
    random = np.random.default_rng(4)
    samples = [gaussian(seed, windows) + 50.0 * deviations * (random.random(windows) < 0.5) for seed in range(200)]
    assert rate(Kind.BIMODAL, samples) >= found


def test_throttled_windows_are_counted_and_the_rest_is_looked_at():
    step_us = [*gaussian(1, 20), 90_000.0, 90_000.0]
    hot = measured(step_us, throttled=[False] * 20 + [True] * 2)
    assert list(of_times("mine", [hot])) == [Caution(Kind.THROTTLED, "mine", "2 of 22 windows")]
    all_hot = measured(gaussian(1, 20), throttled=[True] * 20)
    assert list(of_times("mine", [all_hot])) == [Caution(Kind.THROTTLED, "mine", "20 of 20 windows")]


def test_times_under_a_profiler_say_so():
    assert list(of_times("mine", [measured(gaussian(1), profiled=True)])) == [
        Caution(Kind.PROFILED, "mine", "timed under a profiler")
    ]


def test_runs_of_one_side_are_told_apart():
    assert subjects("mine", 1) == ["mine"]
    found = of_times("mine", [measured(gaussian(1)), measured(gaussian(1, 5))])
    assert list(found) == [Caution(Kind.TOO_FEW_SAMPLES, "mine, run 2 of 2", "5 windows")]


def test_times_that_are_not_finite_have_no_shape():
    assert kinds([*gaussian(1, 30), float("nan")]) == []


@pytest.mark.parametrize(
    ("clocks", "details"),
    [
        ((1_980, 1_950), ["1980 MHz (original), 1950 MHz (mine)"]),
        ((1_980, 1_965), []),
        ((1_980, None), []),
    ],
)
def test_median_clocks_further_than_1_percent_apart(clocks, details):
    sides = [
        (name, [measured([10_000.0] * 3, sm_clock_mhz=[mhz, mhz, mhz and 1_200])])
        for name, mhz in zip(("original", "mine"), clocks, strict=True)
    ]
    assert list(of_clocks(sides)) == [Caution(Kind.CLOCKS_DIFFER, "", detail) for detail in details]


def test_drivers_and_versions_that_differ():
    newer = runs.GPU.model_copy(update={"driver": "580.0"})
    before = runs.run(environment=runs.environment(device=runs.GPU))
    after = runs.run(
        environment=runs.environment(device=newer, torch="2.14.1", packages={"mtp-bench": "0.1.0", "x": "1"})
    )
    assert list(of_environments([before, before])) == []
    assert list(of_environments([before, after])) == [
        Caution(Kind.DRIVER_DIFFERS, "", "575.1 with CUDA 12.9 and 580.0 with CUDA 12.9"),
        Caution(Kind.VERSIONS_DIFFER, "", "torch 2.13.0 and 2.14.1; x none and 1"),
    ]


def test_a_comparison_carries_the_cautions_of_its_rows_and_of_its_runs():
    slow = runs.result("original", time=runs.time(*[10_000.0 + 10 * window for window in range(40)], modelled=False))
    run = runs.run([slow, measured(gaussian(1))], environment=runs.environment(device=runs.GPU))
    (row,) = compare([("a", [("a", run)])], threshold=Threshold.parse("1ms")).rows
    assert row.cautions == ()
    (row,) = compare([("a", [("a", run)])]).rows
    assert [(caution.kind, caution.subject) for caution in row.cautions] == [(Kind.DRIFT, "original")]
    assert row.cautions[0].advice == ADVICE[Kind.DRIFT]
