"""Comparing: which rows there are, what each of them says, and no number where none is allowed."""

import itertools
import math

import pytest

from mtp_bench.compare import Threshold, compare
from mtp_bench.errors import InputError
from mtp_bench.results import Memory
from tests import runs
from tests.compare.sides import alone, both, gpu_run, measured, mine, verdicts

STEADY = [10_000.0 + window % 5 for window in range(20)]
NOISY = [10_000.0, 12_000.0] * 10


def one(found, **where):
    (row,) = [row for row in found.rows if all(getattr(row, key) == value for key, value in where.items())]
    return row


def test_variants_of_a_run_are_compared_with_original_at_the_same_lead():
    found = alone(runs.modelled_run())
    assert len(found.rows) == 2 * 3 * 4
    row = one(found, workload="packed-sft", candidate="host_lens", lead_ms=1.0)
    assert (row.baseline, row.variant, row.verdict, row.modelled) == ("original", "host_lens", "faster", True)
    assert (row.difference.ns, row.difference.low, row.difference.high) == (-140_000, None, None)
    assert row.difference.ratio == pytest.approx(10_100 / 10_240)
    assert [(change.line, change.count) for change in row.removed] == [(300, -32)]
    assert row.added == ()


def test_another_variant_can_be_the_baseline():
    found = alone(runs.modelled_run([0.0]), baseline="sync_free")
    assert {row.candidate for row in found.rows} == {"original", "patched", "host_lens", "boundary_roll"}
    assert one(found, workload="padded-sft", candidate="patched").difference.ns == 16_500


def test_the_first_variant_is_the_baseline_where_original_was_not_run():
    found = alone(runs.run([mine(1.0, variant="patched"), mine(1.0, variant="sync_free")]))
    assert [(row.baseline, row.candidate) for row in found.rows] == [("patched", "sync_free")]


def test_a_baseline_that_was_not_run_is_named_with_the_nearest():
    with pytest.raises(InputError, match=r"^--baseline 'patchd': no such variant in this run; did you mean 'patched'"):
        alone(runs.modelled_run(), baseline="patchd")


def test_a_workload_that_the_baseline_was_not_run_on_is_one_row_that_says_so():
    on_both = [mine(1.0, variant=variant, workload="padded-sft") for variant in ("patched", "mine")]
    found = alone(runs.run([*on_both, mine(1.0)]), baseline="patched")
    assert [(row.workload, row.verdict, row.reason) for row in found.rows] == [
        ("padded-sft", "same", "the modelled difference lies within the threshold of 10.0 us"),
        ("packed-sft", "incomparable", "patched was not run on it"),
    ]


def test_two_runs_are_compared_variant_by_variant():
    found = both(runs.modelled_run([0.0]), runs.modelled_run([0.0]))
    assert len(found.rows) == 10
    assert {row.verdict for row in found.rows} == {"same"}
    assert (found.rows[0].baseline, found.rows[0].candidate) == ("original (a)", "original (b)")
    assert (found.environment_differences, found.cautions, found.notes) == ((), (), ())
    assert found.exit_code == 0


def test_of_three_runs_each_is_compared_with_the_first():
    sides = [(label, [(label, runs.run([mine(us)]))]) for label, us in (("a", 100.0), ("b", 150.0), ("c", 50.0))]
    assert [(row.baseline, row.candidate, row.verdict) for row in compare(sides).rows] == [
        ("mine (a)", "mine (b)", "slower"),
        ("mine (a)", "mine (c)", "faster"),
    ]
    with_b = compare(sides, baseline="b")
    assert [side.label for side in with_b.sides] == ["b", "a", "c"]
    assert {row.baseline for row in with_b.rows} == {"mine (b)"}


def test_a_baseline_of_several_runs_is_one_of_their_labels():
    with pytest.raises(InputError, match=r"^--baseline 'original': of several runs it names one of them; known: a, b$"):
        both(runs.modelled_run(), runs.modelled_run(), baseline="original")


def test_samples_of_one_run_are_paired_by_round():
    """Steps of 10 ms drift by 40 us and the guard costs 30: paired by round, the interval does not see the drift."""
    row = one(alone(runs.measured_run(), baseline="sync_free"), candidate="patched")
    assert (row.difference.ns, row.difference.low, row.difference.high) == (30_000, 30_000, 30_000)
    assert (row.difference.paired, row.difference.windows) == (True, (20, 20))
    assert (
        alone(runs.measured_run(), baseline="sync_free", threshold=Threshold.parse("10us")).rows[0].verdict == "slower"
    )


def test_samples_of_two_runs_are_not_paired():
    (row,) = both(gpu_run(measured(*STEADY)), gpu_run(measured(*STEADY))).rows
    assert row.difference.paired is False
    assert row.difference.low < 0 < row.difference.high


def test_a_threshold_decides_what_a_difference_is():
    first, second = runs.run([mine(10_000.0)]), runs.run([mine(10_100.0)])
    verdict = {
        text: both(first, second, threshold=Threshold.parse(text)).rows[0].verdict for text in ("0", "99us", "1%")
    }
    assert verdict == {"0": "slower", "99us": "slower", "1%": "same"}
    assert both(first, second).threshold == Threshold(10_000.0, 0.005)


def test_too_few_measured_windows_say_nothing():
    (row,) = both(gpu_run(measured(1.0)), gpu_run(measured(2.0))).rows
    assert (row.verdict, row.reason) == ("unclear", "fewer than 6 windows a side")
    assert (row.difference.ns, row.difference.low, row.p) == (1_000, None, None)


def test_one_modelled_window_says_all():
    (row,) = both(runs.run([mine(100.0)]), runs.run([mine(200.0)])).rows
    assert (row.verdict, row.difference.ns, row.p, row.p_holm) == ("slower", 100_000, None, None)


def test_windows_left_out_are_counted_in_the_reason():
    hot = runs.result("mine", time=runs.time(*STEADY, modelled=False, throttled=[True] + [False] * 19))
    (row,) = both(gpu_run(hot), gpu_run(measured(*STEADY))).rows
    assert row.reason == "the interval lies within the threshold of 50.0 us; 1 throttled windows left out"
    odd = runs.result("mine", time=runs.time(*STEADY, modelled=False, round=list(range(1, 21))))
    (row,) = alone(gpu_run(measured(*STEADY, variant="original"), odd)).rows
    assert row.reason.endswith("; 2 windows of rounds that one side lacks left out")
    assert row.difference.windows == (19, 19)


def test_the_order_of_samples_and_of_sides_of_two_runs_does_not_change_the_verdict():
    sides = [gpu_run(measured(*windows)) for windows in (STEADY, STEADY[::-1])]
    assert {both(*pair).rows[0].verdict for pair in itertools.permutations(sides, 2)} == {"same"}


def test_p_is_shown_and_adjusted_for_all_rows_and_decides_nothing():
    """20 windows that are all 1 us slower: p is tiny, and nobody would change code for it."""
    first, second = (
        gpu_run(*(measured(*[us + more for us in STEADY], variant=name) for name in ("x", "y"))) for more in (0.0, 10.0)
    )
    rows = both(first, second).rows
    assert {row.verdict for row in rows} == {"same"}
    assert all(row.p < 1e-6 for row in rows)
    assert [row.p_holm for row in rows] == [pytest.approx(2 * rows[0].p)] * 2


@pytest.mark.parametrize("modelled", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_times_that_are_not_finite_are_incomparable(bad, modelled):
    one_bad, fine = (runs.run([runs.result("mine", time=runs.time(us, 2.0, modelled=modelled))]) for us in (bad, 1.0))
    for found, whose in ((both(one_bad, fine), "a"), (both(fine, one_bad), "b")):
        assert verdicts(found) == [
            ("mine (b)", "incomparable", f"mine ({whose}) has step times that are not finite"),
        ]
        assert (found.rows[0].difference, found.exit_code) == (None, 3)


def test_times_below_0_are_incomparable():
    assert verdicts(both(runs.run([mine(-1.0)]), runs.run([mine(1.0)]))) == [
        ("mine (b)", "incomparable", "mine (a) has step times below 0")
    ]


def test_syncs_values_operations_and_memory_are_compared_exactly():
    before, after = (
        runs.run(
            [
                mine(
                    1.0,
                    syncs=runs.syncs(*[runs.site(count)] * (count > 0)),
                    numerics=runs.numerics(values),
                    ops=ops,
                    memory=Memory(peak_bytes=peak),
                )
            ]
        )
        for count, values, ops, peak in ((0, "close", 300, 1 << 20), (2, "nan", 301, 1 << 21))
    )
    (row,) = both(before, after).rows
    assert (row.syncs, row.values, row.ops) == ((0, 2), ("close", "nan"), (300, 301))
    assert row.peak_bytes == (1 << 20, 1 << 21)
    assert row.verdict == "same"  # of the step time alone


def test_what_is_not_known_of_a_side_is_none():
    full = runs.run([mine(1.0, ops=1, memory=Memory(peak_bytes=2))])
    bare = runs.run([mine(1.0, syncs=None, numerics=None)])
    (row,) = both(full, bare).rows
    assert (row.syncs, row.values, row.ops, row.peak_bytes) == ((0, None), ("close", None), (1, None), (2, None))


def test_exact_things_are_known_where_times_are_incomparable():
    (row,) = both(gpu_run(measured(*STEADY)), runs.run([mine(1.0, syncs=runs.syncs(runs.site(3)))])).rows
    assert (row.verdict, row.difference, row.syncs) == ("incomparable", None, (0, 3))


def test_what_differs_between_the_environments_is_listed_with_who_has_it():
    other = runs.modelled_run([0.0]).model_copy(
        update={"environment": runs.environment(megatron_core="0.19.2", torch="2.14.1", verl="0.9.1")}
    )
    found = both(runs.modelled_run([0.0]), other)
    assert found.environment_differences == (
        "torch: 2.13.0 (a), 2.14.1 (b)",
        "megatron_core: 0.16.1 (a), 0.19.2 (b)",
        "verl: none (a), 0.9.1 (b)",
    )
    assert found.exit_code == 0


def skipped(variant, **where):
    return runs.result(variant, status="skipped", error="needs >= 0.17", time=None, **where)


def test_a_variant_skipped_on_both_sides_is_no_row_and_said():
    found = both(*[runs.run([mine(1.0, variant="original"), skipped("mine")])] * 2)
    assert [row.candidate for row in found.rows] == ["original (b)"]
    assert found.notes == ("left out, since skipped on both sides: mine (b) on packed-sft (needs >= 0.17)",)
    assert found.exit_code == 0


def test_a_variant_skipped_as_its_baseline_is_no_row_within_a_run_and_said_once():
    at = [skipped(variant, lead_ms=lead) for lead in (0.0, 1.0) for variant in ("original", "patched")]
    found = alone(runs.run(at))
    assert found.rows == ()
    assert found.notes == ("left out, since skipped on both sides: patched on packed-sft (needs >= 0.17)",)
    assert found.exit_code == 0


def test_a_variant_whose_baseline_alone_is_skipped_is_incomparable():
    found = alone(runs.run([skipped("original"), mine(1.0)]))
    assert verdicts(found) == [("mine", "incomparable", "original skipped")]
    assert found.exit_code == 3


def test_a_variant_that_failed_is_incomparable_with_what_is_known_of_it():
    failed = runs.result("mine", status="failed", error="boom", time=None, syncs=runs.syncs(runs.site(2)))
    found = both(runs.run([mine(1.0)]), runs.run([failed]))
    assert verdicts(found) == [("mine (b)", "incomparable", "mine (b) failed")]
    assert (found.rows[0].syncs, found.exit_code) == ((0, 2), 3)


def test_a_variant_without_times_is_incomparable():
    assert verdicts(both(runs.run([mine(1.0)]), runs.run([runs.result("mine", time=None)]))) == [
        ("mine (b)", "incomparable", "mine (b) has no times")
    ]


def test_where_nothing_was_run_but_a_baseline_there_is_no_row_and_a_note():
    found = alone(runs.run([mine(1.0)]))
    assert (found.rows, found.exit_code) == ((), 0)
    assert found.notes == ("on packed-sft in scope loss there is only mine",)


def test_runs_without_results_are_3_and_said():
    found = both(runs.run(), runs.run())
    assert (found.rows, found.exit_code) == ((), 3)
    assert found.notes == ("without results: a", "without results: b")


def test_the_command_line_is_kept_for_reports():
    assert alone(runs.modelled_run(), command="mtp-bench compare a").command == "mtp-bench compare a"
