"""Comparing: differences that are true, verdicts that follow from them, and no number where none is allowed."""

import itertools
import json
import math
import re

import pytest

from mtp_bench.compare import compare, to_json
from mtp_bench.differences import Difference, difference, verdict
from mtp_bench.errors import InputError
from mtp_bench.results import Cpu, DeviceInfo
from tests import runs


def one(found, **where):
    rows = [row for row in found.rows if all(getattr(row, key) == value for key, value in where.items())]
    assert len(rows) == 1
    return rows[0]


def both(first, second, **options):
    return compare([("a", first), ("b", second)], **options)


def test_variants_of_a_run_are_compared_with_original_at_the_same_lead():
    found = compare([("a", runs.modelled_run())])
    assert len(found.rows) == 2 * 3 * 4
    row = one(found, workload="packed-sft", candidate="host_lens", lead_ms=1.0)
    assert (row.baseline, row.verdict, row.modelled) == ("original", "faster", True)
    assert row.difference.ns == pytest.approx(-140_000)
    assert (row.difference.low, row.difference.high) == (None, None)
    assert row.difference.ratio == pytest.approx(10_100 / 10_240)
    assert [(change.line, change.count) for change in row.removed] == [(300, -32)]
    assert row.added == ()


def test_another_variant_can_be_the_baseline():
    found = compare([("a", runs.modelled_run([0.0]))], baseline="sync_free")
    assert {row.candidate for row in found.rows} == {"original", "patched", "host_lens", "boundary_roll"}
    assert one(found, workload="padded-sft", candidate="patched").difference.ns == pytest.approx(16_500)


def test_a_baseline_that_was_not_run_is_named_with_the_nearest():
    with pytest.raises(InputError, match="--baseline 'patchd': no such variant in this run; did you mean 'patched'"):
        compare([("a", runs.modelled_run())], baseline="patchd")


def test_the_first_variant_is_the_baseline_where_original_was_not_run():
    found = compare([("a", runs.run([runs.result("patched"), runs.result("sync_free")]))])
    assert [(row.baseline, row.candidate) for row in found.rows] == [("patched", "sync_free")]


def test_samples_of_one_run_are_paired_by_round():
    """Steps of 10 ms drift by 40 us and the guard costs 30: paired by round, the interval does not see the drift."""
    row = one(compare([("a", runs.measured_run())], baseline="sync_free"), candidate="patched")
    assert row.difference.ns == pytest.approx(30_000)
    assert (row.difference.low, row.difference.high) == (pytest.approx(30_000), pytest.approx(30_000))
    assert row.verdict == "slower"


def test_rounds_count_not_positions():
    base = runs.time(1.0, 2.0, 3.0, modelled=False, round=[0, 1, 2])
    cand = runs.time(13.0, 11.0, 12.0, modelled=False, round=[2, 0, 1])
    found = difference(base, cand, paired=True)
    assert (found.ns, found.low, found.high) == (10_000, 10_000, 10_000)


def test_throttled_windows_are_left_out_and_counted():
    base = runs.time(10.0, 10.0, 10.0, 90.0, modelled=False, throttled=[False, False, False, True])
    cand = runs.time(12.0, 12.0, 12.0, 12.0, modelled=False)
    found = difference(base, cand, paired=True)
    assert (found.ns, found.high, found.dropped) == (2_000, 2_000, 1)


@pytest.mark.parametrize(
    ("low_us", "high_us", "baseline_us", "expected"),
    [
        (-9, 9, 1_000, "same"),
        (2, 9, 1_000, "same"),
        (20, 40, 1_000, "slower"),
        (1, 40, 1_000, "slower"),
        (-40, -1, 1_000, "faster"),
        (-40, 40, 1_000, "unclear"),
        (-40, 40, 10_000, "same"),
        (20, 40, 10_000, "slower"),
    ],
)
def test_interval_and_threshold_alone_decide(low_us, high_us, baseline_us, expected):
    middle = (low_us + high_us) / 2
    found = Difference(middle * 1e3, low_us * 1e3, high_us * 1e3, 1.0, None, None)
    assert verdict(found, baseline_us * 1e3, modelled=False)[0] == expected


def test_one_measured_window_says_nothing():
    slow, fast = (runs.result(v, time=runs.time(us, modelled=False)) for v, us in (("original", 2.0), ("mine", 1.0)))
    row = compare([("a", runs.run([slow, fast], environment=runs.environment(device=runs.GPU)))]).rows[0]
    assert (row.verdict, row.reason) == ("unclear", "fewer than 2 windows")


def test_two_runs_are_compared_variant_by_variant():
    found = both(runs.modelled_run([0.0]), runs.modelled_run([0.0]))
    assert len(found.rows) == 10
    assert {row.verdict for row in found.rows} == {"same"}
    assert (found.rows[0].baseline, found.rows[0].candidate) == ("original (a)", "original (b)")
    assert found.environment_differences == ()
    assert found.exit_code == 0


def test_what_differs_between_the_environments_is_listed():
    other = runs.modelled_run([0.0]).model_copy(
        update={"environment": runs.environment(megatron_core="0.19.2", torch="2.14.1")}
    )
    found = both(runs.modelled_run([0.0]), other)
    assert found.environment_differences == ("torch: 2.13.0 (a), 2.14.1 (b)", "megatron_core: 0.16.1 (a), 0.19.2 (b)")
    assert found.exit_code == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": runs.GPU.model_copy(update={"name": "NVIDIA A100"})}, "different device"),
        ({"device": DeviceInfo(kind="sim", name="h100", modelled=True)}, "different device"),
        ({"device": runs.GPU, "packages": {"mtp-bench": "0.2.0"}}, "different mtp-bench version"),
        ({"device": runs.GPU, "cpu": Cpu(model="Another CPU", count=8, affinity=8)}, "different CPU"),
        ({"device": runs.GPU, "cpu": Cpu(model="Example CPU", count=8, affinity=2)}, "different affinity"),
        (
            {"device": runs.GPU, "cuda_env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}},
            "different CUDA_DEVICE_MAX_CONNECTIONS",
        ),
    ],
)
def test_what_cannot_be_compared_has_no_number_and_exit_code_3(changes, reason):
    other = runs.measured_run().model_copy(update={"environment": runs.environment(**changes)})
    found = both(runs.measured_run(), other)
    assert {(row.verdict, row.reason, row.difference) for row in found.rows} == {("incomparable", reason, None)}
    assert found.exit_code == 3


def test_the_machine_under_a_model_does_not_matter():
    other = runs.modelled_run([0.0]).model_copy(
        update={"environment": runs.environment(cpu=Cpu(model="Another CPU", count=1, affinity=1))}
    )
    assert both(runs.modelled_run([0.0]), other).exit_code == 0


def test_another_workload_of_the_same_name_is_incomparable_and_says_which_key():
    other = runs.modelled_run([0.0])
    other.workloads["packed-sft"] = {**other.workloads["packed-sft"], "hidden_size": 64, "title": "another title"}
    row = one(both(runs.modelled_run([0.0]), other), workload="packed-sft", candidate="patched (b)")
    assert (row.verdict, row.reason) == ("incomparable", "different workload: hidden_size")
    assert row.difference is None
    assert row.candidate_result.syncs.count == 33


def test_a_variant_of_one_side_only_or_failed_is_incomparable_with_its_reason():
    first = runs.run([runs.result("original"), runs.result("mine")])
    second = runs.run([runs.result("original"), runs.result("mine", status="failed", time=None), runs.result("new")])
    found = both(first, second)
    assert {(row.candidate, row.verdict, row.reason) for row in found.rows} == {
        ("original (b)", "same", "within 10 us"),
        ("mine (b)", "incomparable", "mine (b) failed"),
        ("new (b)", "incomparable", "not in a"),
    }
    assert found.exit_code == 3


def skipped(variant, **where):
    return runs.result(variant, status="skipped", time=None, **where)


def test_a_variant_skipped_on_both_sides_is_no_row():
    found = both(*[runs.run([runs.result("original"), skipped("mine")])] * 2)
    assert [row.candidate for row in found.rows] == ["original (b)"]
    assert found.notes == ("left out, since skipped on both sides: mine (b) on packed-sft",)
    assert found.exit_code == 0


def test_a_variant_skipped_as_its_baseline_is_no_row_within_a_run_and_said_once():
    at = [
        found
        for lead_ms in (0.0, 1.0)
        for found in (skipped("original", lead_ms=lead_ms), skipped("patched", lead_ms=lead_ms))
    ]
    found = compare([("a", runs.run(at))])
    assert found.rows == ()
    assert found.notes == ("left out, since skipped on both sides: patched on packed-sft",)
    assert found.exit_code == 0


def test_a_variant_whose_baseline_alone_is_skipped_is_incomparable():
    found = compare([("a", runs.run([skipped("original"), runs.result("mine")]))])
    assert [(row.verdict, row.reason) for row in found.rows] == [("incomparable", "original skipped")]
    assert found.exit_code == 3


def lacking(found):
    return [
        (row.workload, row.lead_ms, row.baseline, row.candidate, row.verdict, row.reason)
        for row in found.rows
        if row.baseline_result is None or row.candidate_result is None
    ]


def test_a_workload_of_one_run_only_is_one_row():
    padded, packed = (
        runs.run([found for found in runs.modelled_run().results if found.workload == name])
        for name in ("padded-sft", "packed-sft")
    )
    found = both(padded, packed)
    assert found.rows == tuple(row for row in found.rows if row.difference is None)
    assert lacking(found) == [
        ("padded-sft", None, "a", "b", "incomparable", "b has no padded-sft in scope loss"),
        ("packed-sft", None, "a", "b", "incomparable", "a has no packed-sft in scope loss"),
    ]
    assert found.exit_code == 3


def test_variants_and_leads_of_one_run_only_are_one_row_each():
    first = runs.run([runs.result(name, lead_ms=lead) for name in ("mine", "gone") for lead in (0.0, 1.0, 10.0)])
    second = runs.run([runs.result(name, lead_ms=lead) for name in ("mine", "new") for lead in (1.0, 5.0)])
    found = both(first, second)
    assert lacking(found) == [
        ("packed-sft", None, "gone (a)", "gone (b)", "incomparable", "not in b"),
        ("packed-sft", None, "a", "b", "incomparable", "b has no lead of 0 or 10 ms"),
        ("packed-sft", None, "new (a)", "new (b)", "incomparable", "not in a"),
        ("packed-sft", None, "a", "b", "incomparable", "a has no lead of 5 ms"),
    ]
    assert [(row.candidate, row.lead_ms) for row in found.rows if row.difference] == [("mine (b)", 1.0)]


def test_what_an_interrupted_run_did_not_reach_is_incomparable():
    whole = runs.run([runs.result(name, lead_ms=lead) for name in ("mine", "yours") for lead in (0.0, 1.0)])
    found = both(whole, runs.run(whole.results[:3]))
    assert lacking(found) == [
        ("packed-sft", 1.0, "yours (a)", "yours (b)", "incomparable", "yours (b) is not in the run")
    ]


def test_runs_on_sim_with_other_constants_are_incomparable():
    def on(profile):
        device = DeviceInfo(kind="sim", name="NVIDIA H100", modelled=True, profile=profile)
        return runs.run([runs.result("mine")], environment=runs.environment(device=device))

    assert both(on("h100 0123abcd"), on("h100 0123abcd")).exit_code == 0
    found = both(on("h100 0123abcd"), on("h100 4567cdef"))
    assert [(row.verdict, row.reason) for row in found.rows] == [("incomparable", "different device profile")]
    assert found.exit_code == 3


def test_lines_that_moved_are_added_and_removed():
    before = runs.run([runs.result("patched", syncs=runs.syncs(runs.site(1, line=40), runs.site(8, line=50)))])
    after = runs.run([runs.result("patched", syncs=runs.syncs(runs.site(2, line=40), runs.site(8, line=55)))])
    row = both(before, after).rows[0]
    assert [(change.line, change.count) for change in row.added] == [(40, 1), (55, 8)]
    assert [(change.line, change.count) for change in row.removed] == [(50, -8)]


def test_gates():
    first = runs.run([runs.result("mine", time=runs.time(10_000.0))])
    worse = runs.run(
        [runs.result("mine", time=runs.time(10_100.0), syncs=runs.syncs(runs.site(3)), numerics=runs.numerics("nan"))]
    )
    assert both(first, worse).exit_code == 0
    found = both(first, worse, gates=["slower", "syncs", "values"])
    assert found.exit_code == 1
    assert found.failures == (
        "mine (b) on packed-sft at lead 1 ms: slower than mine (a) by 100.0 us a step",
        "mine (b) on packed-sft at lead 1 ms: 3 syncs a step, mine (a) has 0",
        "mine (b) on packed-sft at lead 1 ms: values nan, those of mine (a) close",
    )
    assert both(worse, first, gates=["slower", "syncs", "values"]).exit_code == 0


def test_equal_to_close_is_no_regression_of_values():
    equal, close = (runs.run([runs.result("mine", numerics=runs.numerics(status))]) for status in ("equal", "close"))
    assert both(equal, close, gates=["values"]).exit_code == 0


def test_a_gate_on_time_that_cannot_tell_is_3_not_0():
    noisy = [10_000.0, 12_000.0] * 10
    runs_ = [
        runs.run(
            [runs.result("mine", time=runs.time(*us, modelled=False))], environment=runs.environment(device=runs.GPU)
        )
        for us in (noisy, noisy[::-1])
    ]
    assert both(*runs_).rows[0].verdict == "unclear"
    assert both(*runs_, gates=["slower"]).exit_code == 3
    assert both(*runs_, gates=["syncs"]).exit_code == 0


@pytest.mark.parametrize(("gate", "lacks"), [("values", "numerics"), ("syncs", "syncs")])
def test_a_gate_on_what_one_side_lacks_is_3_and_says_why(gate, lacks):
    full, less = runs.run([runs.result("mine")]), runs.run([runs.result("mine", **{lacks: None})])
    found = both(full, less, gates=[gate])
    assert (found.exit_code, found.passed) == (3, False)
    assert found.undecided == (f"--fail-on {gate}: no {gate} of mine (b)",)
    assert both(full, less).exit_code == 0
    assert both(full, less, gates=["slower"]).exit_code == 0


def test_a_failed_gate_is_1_whatever_another_gate_lacks():
    first = runs.run([runs.result("mine", numerics=None)])
    worse = runs.run([runs.result("mine", syncs=runs.syncs(runs.site(3)))])
    assert both(first, worse, gates=["syncs", "values"]).exit_code == 1


def test_gates_with_nothing_to_compare_are_3_and_say_so():
    for found in (
        compare([("a", runs.run([runs.result("mine")]))], gates=["slower", "syncs"]),
        both(runs.run(), runs.run(), gates=["slower", "syncs"]),
    ):
        assert (found.rows, found.exit_code, found.passed) == ((), 3, False)
        assert found.undecided == ("--fail-on slower,syncs: nothing to compare",)
    assert compare([("a", runs.run([runs.result("mine")]))]).exit_code == 0


@pytest.mark.parametrize("modelled", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_times_that_are_not_finite_are_incomparable(bad, modelled):
    one_bad, fine = (runs.run([runs.result("mine", time=runs.time(us, 2.0, modelled=modelled))]) for us in (bad, 1.0))
    for found in (both(one_bad, fine), both(fine, one_bad)):
        (row,) = found.rows
        assert (row.verdict, row.difference, found.exit_code) == ("incomparable", None, 3)
        assert re.fullmatch(r"mine \([ab]\) has step times that are not finite", row.reason)
        json.dumps(to_json(found), allow_nan=False)


def test_a_ratio_to_nothing_is_the_text_nan_in_json():
    base, cand = (runs.run([runs.result("mine", time=runs.time(us))]) for us in (0.0, 1.0))
    (row,) = to_json(both(base, cand))["rows"]
    assert (row["ratio"], row["difference_us"], row["verdict"]) == ("nan", 1.0, "same")


def test_an_unknown_gate_and_a_baseline_of_two_runs_are_refused():
    with pytest.raises(InputError, match="--fail-on 'slow': use slower, syncs, values"):
        compare([("a", runs.modelled_run())], gates=["slow"])
    with pytest.raises(InputError, match="of several runs the first is the baseline"):
        both(runs.modelled_run(), runs.modelled_run(), baseline="original")


def test_json_has_the_names_that_scripts_rely_on_and_no_nan():
    found = to_json(compare([("a", runs.modelled_run([0.0]))]))
    json.dumps(found, allow_nan=False)
    assert list(found) == ["schema_version", "rows", "environment_differences", "notes", "gate"]
    row = next(row for row in found["rows"] if (row["workload"], row["candidate"]) == ("padded-sft", "patched"))
    (guard,) = row["syncs"]["added"]
    assert set(guard) == {"file", "line", "code", "op", "kind", "count"}
    row["syncs"]["added"] = []
    assert row == {
        "workload": "padded-sft",
        "scope": "loss",
        "lead_ms": 0.0,
        "baseline": "original",
        "candidate": "patched",
        "modelled": True,
        "difference_us": 16.5,
        "difference_ci_us": None,
        "ratio": pytest.approx(10_256.5 / 10_240),
        "ci": None,
        "p": None,
        "verdict": "slower",
        "reason": "",
        "syncs": {"baseline": 0, "candidate": 1, "added": [], "removed": []},
        "values": {"baseline": "close", "candidate": "close"},
    }
    assert found["gate"] == {"passed": True, "failures": [], "undecided": []}


def test_json_of_a_row_without_results_has_the_same_names():
    rows = to_json(both(runs.run([runs.result("mine")]), runs.run([runs.result("new")])))["rows"]
    assert {tuple(row) for row in rows} == {tuple(to_json(compare([("a", runs.modelled_run())]))["rows"][0])}
    assert {(row["lead_ms"], row["difference_us"], row["verdict"]) for row in rows} == {(None, None, "incomparable")}


def test_the_interval_of_the_difference_is_in_microseconds_too():
    rows = to_json(compare([("a", runs.measured_run())], baseline="sync_free"))["rows"]
    row = next(row for row in rows if row["candidate"] == "patched")
    assert row["difference_us"] == pytest.approx(30)
    assert row["difference_ci_us"] == [pytest.approx(30), pytest.approx(30)]


def test_a_gate_that_nobody_asked_for_has_passed():
    apart = both(runs.run([runs.result("mine")]), runs.run([runs.result("new")]))
    assert (apart.exit_code, to_json(apart)["gate"]) == (3, {"passed": True, "failures": [], "undecided": []})
    asked = both(runs.run([runs.result("mine")]), runs.run([runs.result("new")]), gates=["syncs"])
    assert (asked.exit_code, to_json(asked)["gate"]) == (3, {"passed": False, "failures": [], "undecided": []})


def test_the_interval_of_the_ratio_holds_the_ratio():
    found = to_json(compare([("a", runs.measured_run())], baseline="sync_free"))
    for row in found["rows"]:
        assert row["ci"][0] <= row["ratio"] <= row["ci"][1]


def test_the_order_of_samples_of_two_runs_does_not_change_the_verdict():
    us = [10_000.0 + 7 * (i % 6) for i in range(12)]
    environment = runs.environment(device=runs.GPU)
    sides = [
        runs.run([runs.result("mine", time=runs.time(*values, modelled=False))], environment=environment)
        for values in (us, us[::-1])
    ]
    verdicts = {both(*pair).rows[0].verdict for pair in itertools.permutations(sides, 2)}
    assert verdicts == {"same"}
