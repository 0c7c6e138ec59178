"""The sentence that a comparison comes to, as it is read aloud in a review."""

import math

import pytest

from mtp_bench.compare import Threshold
from mtp_bench.compare.summary import summary
from mtp_bench.results import DeviceInfo
from tests import runs
from tests.compare.sides import alone, both, gpu_run, measured, mine, pooled

STEADY = [1_000.0 + window % 5 for window in range(20)]
NOISY = [10_000.0, 12_000.0] * 10
GUARD = runs.syncs(runs.site(1))


def slower_by(us):
    return [step + us for step in STEADY]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (
            mine(110.0),
            "mine (b) on packed-sft at lead 1 ms is slower than mine (a) by 10.0 us a step (+10.0 %), modelled. "
            "Syncs a step: unchanged; values: unchanged.",
        ),
        (
            mine(90.0, syncs=GUARD, numerics=runs.numerics("nan")),
            "mine (b) on packed-sft at lead 1 ms is faster than mine (a) by 10.0 us a step (-10.0 %), modelled. "
            "Syncs a step: 1 instead of 0; values: nan instead of close.",
        ),
        (
            mine(100.0, numerics=None),
            "mine (b) on packed-sft at lead 1 ms takes as long as mine (a), to within 5.0 us a step, modelled. "
            "Syncs a step: unchanged; values: not known.",
        ),
        (
            runs.result("mine", status="failed", time=None, syncs=None, numerics=None),
            "mine (b) on packed-sft at lead 1 ms and mine (a) are incomparable: mine (b) failed.",
        ),
    ],
    ids=["slower", "faster", "same", "incomparable"],
)
def test_one_row_is_told_whole(after, said):
    found = both(runs.run([mine(100.0)]), runs.run([after]), threshold=Threshold(ns=5_000.0, fraction=0.0))
    assert summary(found) == said


def test_a_measured_difference_has_its_interval():
    found = alone(gpu_run(measured(*STEADY, variant="original"), measured(*slower_by(30))))
    assert summary(found) == (
        "mine on packed-sft at lead 1 ms is slower than original by 30.0 us [30.0, 30.0] a step (+3.0 %). "
        "Syncs a step: unchanged; values: unchanged."
    )


def test_a_faster_one_has_the_ends_of_its_interval_in_order_without_signs():
    found = both(gpu_run(measured(*STEADY)), gpu_run(measured(*[us - 100 - us % 3 for us in STEADY])))
    low, high = summary(found).split("[")[1].split("]")[0].split(", ")
    assert 0 < float(low) < float(high)


def test_what_is_unclear_says_what_would_decide():
    found = both(gpu_run(measured(*NOISY)), gpu_run(measured(*NOISY[::-1])))
    (row,) = found.rows
    assert summary(found).startswith(
        f"Whether mine (b) on packed-sft at lead 1 ms is faster or slower than mine (a) is unclear: "
        f"about {row.finding.windows_to_decide:,} windows a side would decide. "
    )


def test_of_several_runs_it_is_runs_that_decide():
    several = [gpu_run(measured(*[us + shift for us in STEADY])) for shift in (0.0, 30.0)]
    found = pooled(several, several[::-1])
    assert f"is unclear: about {found.rows[0].finding.runs_to_decide:,} runs a side would decide." in summary(found)


def test_many_rows_are_counted_and_the_largest_named():
    assert summary(alone(runs.modelled_run())) == (
        "24 comparisons with original, modelled: 12 faster, 12 same; "
        "largest gain: boundary_roll on padded-sft by 240.0 us a step (-2.3 %). "
        "Syncs a step: more in 6, fewer in 6; values: unchanged."
    )


def test_the_lead_is_named_where_it_matters():
    def at(lead, us):
        return [mine(1_000.0, variant="original", lead_ms=lead), mine(us, lead_ms=lead)]

    differing = runs.run([*at(0.0, 1_100.0), *at(10.0, 1_200.0)])
    assert "largest slowdown: mine on packed-sft at lead 10 ms by 200.0 us a step" in summary(alone(differing))
    alike = runs.run([*at(0.0, 1_100.0), *at(10.0, 1_100.0)])
    assert "largest slowdown: mine on packed-sft by 100.0 us a step" in summary(alone(alike))


def test_scope_step_is_named():
    run = runs.run([mine(us, variant=name, scope="step") for name, us in (("original", 1.0), ("mine", 100.0))])
    assert summary(alone(run)).startswith("mine on packed-sft in scope step at lead 1 ms is slower than original by")


def test_three_sides_are_compared_with_the_first():
    found = pooled(*[[runs.run([mine(us)])] for us in (1_000.0, 1_100.0, 1_200.0)])
    assert summary(found) == (
        "2 comparisons with a, modelled: all slower; "
        "largest slowdown: mine (c) on packed-sft by 200.0 us a step (+20.0 %). "
        "Syncs a step: unchanged; values: unchanged."
    )


def test_one_reason_that_all_incomparable_rows_share_is_said():
    first = runs.run([mine(1.0, variant=name) for name in ("mine", "yours")])
    elsewhere = DeviceInfo(kind="sim", name="a100", modelled=True)
    other = runs.run(first.results, environment=runs.environment(device=elsewhere))
    assert summary(both(first, other)) == (
        "2 comparisons with a: all incomparable: different device. Syncs a step: unchanged; values: unchanged."
    )


def test_one_reason_of_some_rows_is_said_after_the_others():
    first = runs.run([mine(1.0), mine(1.0, variant="gone")])
    assert "with a, modelled: 1 same, 1 incomparable; incomparable: not in b." in summary(
        both(first, runs.run([mine(1.0)]))
    )


def test_a_ratio_to_nothing_has_no_percent():
    assert "by 20.0 us a step, modelled." in summary(both(runs.run([mine(0.0)]), runs.run([mine(20.0)])))
    assert "%" not in summary(both(runs.run([mine(0.0)]), runs.run([mine(20.0)])))


def test_gates_come_first_with_their_answer():
    good, bad = runs.run([mine(1_000.0)]), runs.run([mine(1_000.0, syncs=GUARD)])
    lacking = runs.run([mine(math.nan)])
    assert summary(both(good, bad, fail_on=["slower", "syncs>0"])).startswith("Gate slower, syncs>0: failed. mine (b)")
    assert summary(both(good, good, fail_on=["slower"])).startswith("Gate slower: passed. mine (b)")
    assert summary(both(good, lacking, fail_on=["slower"])).startswith("Gate slower: cannot tell. mine (b)")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (alone(runs.run()), "there are no results"),
        (both(runs.run(), runs.run()), "there are no results"),
        (alone(runs.run([mine(1.0)])), "mine alone was run"),
        (
            both(*[runs.run([runs.result("mine", status="skipped", time=None)])] * 2),
            "all that both sides have was skipped",
        ),
    ],
    ids=["empty", "both empty", "one variant", "skipped"],
)
def test_nothing_to_compare_says_why(found, why):
    assert summary(found) == f"Nothing to compare: {why}."
