"""What a report of a comparison shows, before any layout: everything once, each with whom it concerns."""

import math

import pytest

from mtp_bench import __version__
from mtp_bench.compare import compare
from mtp_bench.compare.cautions import Kind
from mtp_bench.compare.summary import summary
from mtp_bench.report.comparison_view import ComparisonView, ForestEntry, regressed
from mtp_bench.report.sites_view import SiteOutcome
from mtp_bench.results import Memory
from tests import runs
from tests.report.reading import compared

ROLL = runs.site(32, line=300, file="megatron/roll.py", function="_roll", code="x[a:b]")
GUARD = runs.site(1)


def view_of(*sides, **options):
    return ComparisonView.of(compared(*sides, **options))


def measured(*results, **changes):
    return runs.run(results, environment=runs.environment(device=runs.GPU, **changes))


def steady(us, windows=20, **changes):
    """Windows around ``us`` without a trend."""
    return runs.time(*[us + (7 * window) % 5 for window in range(windows)], modelled=False, **changes)


def test_the_verdict_is_the_summary_and_gates_say_what_they_found():
    comparison = compared(
        runs.run([runs.result("original", numerics=None), runs.result("mine", syncs=runs.syncs(GUARD))]),
        fail_on=["syncs", "values"],
    )
    view = ComparisonView.of(comparison)
    assert view.verdict == summary(comparison)
    assert view.failures == ("syncs: mine on packed-sft at lead 1 ms: 1 sync a step, original has 0",)
    assert view.undecided == ("values: mine on packed-sft at lead 1 ms: no values of original",)


def test_a_caution_is_said_once_with_its_advice_and_whom_it_concerns():
    hot = {("mine", 1.0): [True] + [False] * 19}
    run = measured(
        *(
            runs.result(
                variant,
                workload,
                lead_ms=lead,
                time=steady(100.0, windows, throttled=hot.get((variant, lead), [False] * 20)[:windows]),
            )
            for workload, windows in (("padded-sft", 6), ("packed-sft", 20))
            for lead in (0.0, 1.0)
            for variant in ("original", "mine", "yours")
        )
    )
    assert [(caution.kind, caution.found) for caution in view_of(run).cautions] == [
        (
            Kind.TOO_FEW_SAMPLES,
            (
                ("6 windows", "original, yours; mine at 0 ms lead on padded-sft"),
                ("5 windows", "mine at 1 ms lead on padded-sft"),
                ("19 windows", "mine at 1 ms lead on packed-sft"),
            ),
        ),
        (
            Kind.THROTTLED,
            (
                ("1 of 6 windows", "mine at 1 ms lead on padded-sft"),
                ("1 of 20 windows", "mine at 1 ms lead on packed-sft"),
            ),
        ),
    ]
    assert view_of(run).cautions[0].advice == "measure at least 20 windows a variant"


def test_a_caution_that_concerns_every_variant_says_all():
    run = measured(*(runs.result(name, time=steady(100.0, 6)) for name in ("original", "mine", "yours")))
    assert view_of(run).cautions[0].found == (("6 windows", "all on packed-sft"),)


def test_cautions_about_the_runs_concern_all():
    before, after = (
        measured(runs.result("original", time=steady(100.0)), torch=torch) for torch in ("2.13.0", "2.14.1")
    )
    view = view_of(before, after)
    assert [(caution.kind, caution.found) for caution in view.cautions] == [
        (Kind.VERSIONS_DIFFER, (("torch 2.13.0 and 2.14.1", ""),))
    ]
    assert view.environment_differences == ("torch: 2.13.0 (a), 2.14.1 (b)",)


def test_runs_of_one_side_are_told_apart():
    few = measured(runs.result("original", time=steady(100.0)), runs.result("mine", time=steady(90.0, 5)))
    many = measured(runs.result("original", time=steady(100.0)), runs.result("mine", time=steady(90.0)))
    view = ComparisonView.of(compare([("a", [("one", few), ("two", many)])]))
    assert view.cautions[0].found == (("5 windows", "mine, run 1 of 2 on packed-sft"),)
    assert [lane.label for lane in view.lanes] == ["original, one", "original, two", "mine, one", "mine, two"]
    assert [(run.side, run.label) for run in view.runs] == [("a", "one"), ("a", "two")]


def test_a_group_has_a_table_a_lead_and_leads_with_the_same_modelled_figures_share_one():
    def at(lead, us):
        return [runs.result("original", lead_ms=lead), runs.result("mine", lead_ms=lead, time=runs.time(us))]

    (group,) = view_of(runs.run([*at(0.0, 100.0), *at(1.0, 100.04), *at(10.0, 90.0)])).groups
    assert (group.workload, group.scope, group.harness, group.baseline) == ("packed-sft", "loss", "", "original")
    assert [(table.heading, table.leads_ms, [row.candidate for row in table.rows]) for table in group.tables] == [
        ("packed-sft, scope loss, leads 0 and 1 ms, baseline original", (0.0, 1.0), ["mine"]),
        ("packed-sft, scope loss, lead 10 ms, baseline original", (10.0,), ["mine"]),
    ]


def test_measured_leads_never_share_a_table():
    run = measured(
        *(
            runs.result(variant, lead_ms=lead, time=steady(100.0))
            for lead in (0.0, 1.0)
            for variant in ("original", "mine")
        )
    )
    assert [table.leads_ms for table in view_of(run).groups[0].tables] == [(0.0,), (1.0,)]


def test_a_group_of_scope_step_names_its_harness():
    step = runs.run([runs.result(name, scope="step", harness="verl") for name in ("original", "mine")])
    (group,) = view_of(step).groups
    assert group.heading == "packed-sft, scope step, harness verl, baseline original"


def test_every_verdict_has_its_reason_and_what_is_so_everywhere_is_said_once():
    run = runs.run(
        [
            runs.result(name, lead_ms=lead, time=runs.time(us), warnings=warnings)
            for lead in (0.0, 1.0)
            for name, us, warnings in (
                ("original", 10_000.0, ["syncs vary"]),
                ("mine", 9_000.0, ["syncs vary"] if lead else []),
                ("yours", 9_000.0, []),
            )
        ]
    )
    assert view_of(run).groups[0].notes == (
        "original; mine at 1 ms lead: syncs vary",
        "all: faster: the modelled difference passes the threshold of 50.0 us",
    )


def test_a_failed_variant_says_why_it_failed():
    failed = runs.result("mine", status="failed", error="ValueError: no at my.py:3", time=None, syncs=None)
    assert view_of(runs.run([runs.result("original"), failed])).groups[0].notes == (
        "mine: failed: ValueError: no at my.py:3",
        "mine: incomparable: mine failed",
    )


def test_what_one_side_lacks_is_a_note_and_no_table():
    both = runs.run([runs.result("original", "padded-sft"), runs.result("original", "packed-sft")])
    view = view_of(both, runs.run([runs.result("original", "packed-sft")]))
    lacking, _ = view.groups
    assert (lacking.heading, lacking.tables) == ("padded-sft, scope loss, baseline a", ())
    assert lacking.notes == ("b: incomparable: b has no padded-sft in scope loss",)


def test_a_forest_entry_has_a_ratio_with_its_interval_and_the_threshold_as_a_fraction():
    run = measured(
        runs.result("original", time=runs.time(*[1_000.0] * 20, modelled=False)),
        runs.result("mine", time=runs.time(*[1_100.0] * 20, modelled=False)),
        runs.result("broken", time=runs.time(math.nan, modelled=False)),
    )
    group = "packed-sft, scope loss, lead 1 ms, baseline original"
    assert view_of(run).forest == (
        ForestEntry(group, "mine", "slower", False, 1.1, 1.1, 1.1, 0.01),
        ForestEntry(group, "broken", "incomparable", False, None, None, None, 0.0),
    )


@pytest.mark.parametrize(
    "baseline",
    [runs.time(5e-324), runs.time(0.0), runs.time(*[0.0] * 9, *[1.0] * 11, modelled=False)],
    ids=["next to none", "none", "none in some resamples"],
)
def test_steps_that_take_no_time_have_no_place_in_the_forest(baseline):
    mine = runs.time(*[1.0] * len(baseline.step_ns), modelled=baseline.modelled)
    view = view_of(runs.run([runs.result("original", time=baseline), runs.result("mine", time=mine)]))
    assert [(entry.label, entry.ratio, entry.low, entry.high) for entry in view.forest] == [("mine", None, None, None)]


def test_modelled_ratios_have_no_interval_and_no_samples():
    view = view_of(runs.run([runs.result("original"), runs.result("mine", time=runs.time(9_000.0))]))
    (entry,) = view.forest
    assert (entry.modelled, entry.ratio, entry.low, entry.high) == (True, 0.9, None, None)
    assert view.lanes == ()


def test_a_lane_holds_every_window_in_order_and_the_quartiles_of_those_that_count():
    times = runs.time(
        *(50.0, 10.0, 20.0, 30.0, 40.0),
        modelled=False,
        throttled=[True, False, False, False, False],
        sm_clock_mhz=[1_200, 1_980, None, 1_755, 1_980],
    )
    view = view_of(measured(runs.result("original", time=steady(100.0)), runs.result("mine", time=times)))
    baseline, mine = view.lanes
    assert (baseline.label, baseline.baseline, baseline.reference_ns, baseline.clock_range_mhz) == (
        "original",
        True,
        102_500.0,
        None,
    )
    assert (mine.label, mine.baseline, mine.reference_ns) == ("mine", False, 102_500.0)
    assert mine.step_ns == (50_000.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0)
    assert mine.quartiles_ns == (10_000.0, 17_500.0, 25_000.0, 32_500.0, 40_000.0)
    assert mine.clock_mhz == (1_200, 1_980, None, 1_755, 1_980)
    assert mine.clock_range_mhz == (1_200, 1_980)


def test_a_baseline_that_candidates_share_is_one_lane_and_times_that_are_not_finite_are_none():
    nan = runs.time(math.nan, 1.0, modelled=False)
    run = measured(
        *(runs.result(name, time=steady(9.0)) for name in ("original", "a", "b")), runs.result("c", time=nan)
    )
    assert [lane.label for lane in view_of(run).lanes] == ["original", "a", "b"]


def test_windows_that_were_all_throttled_all_count():
    hot = runs.time(10.0, 20.0, modelled=False, throttled=[True, True])
    view = view_of(measured(runs.result("original", time=hot), runs.result("mine", time=hot)))
    assert view.lanes[0].kept_ns == (10_000.0, 20_000.0)


def test_sites_say_what_came_went_moved_and_stayed_and_for_whom():
    moved = ROLL.model_copy(update={"line": 310})
    run = runs.run(
        [
            runs.result(name, lead_ms=lead, syncs=runs.syncs(*sites))
            for lead in (0.0, 1.0)
            for name, sites in (
                ("original", [ROLL]),
                ("patched", [ROLL, GUARD]),
                ("moved", [moved]),
                ("none", []),
                ("same", [ROLL, GUARD] if lead else [ROLL]),
            )
        ]
    )
    item = "item", "aten::_local_scalar_dense", "packed-sft"
    assert [(site.place, site.function, site.code, site.changed, site.outcomes) for site in view_of(run).sites] == [
        (
            "mtp_bench/variants/patched.py:40",
            "patched",
            "if num_tokens > 0:",
            True,
            (SiteOutcome("came", *item, "patched; same at 1 ms lead", 0, 1, None),),
        ),
        (
            "megatron/roll.py:300",
            "_roll",
            "x[a:b]",
            True,
            (
                SiteOutcome("went", *item, "none", 32, 0, None),
                SiteOutcome("unchanged", *item, "patched, same", 32, 32, None),
            ),
        ),
        ("megatron/roll.py:310", "_roll", "x[a:b]", True, (SiteOutcome("moved", *item, "moved", 32, 32, 300),)),
    ]


def test_a_line_with_more_or_fewer_syncs_than_before_says_so():
    run = runs.run(
        [
            runs.result(name, syncs=runs.syncs(runs.site(count)))
            for name, count in (("original", 4), ("more", 6), ("fewer", 2), ("same", 4))
        ]
    )
    (site,) = view_of(run).sites
    assert [(outcome.change, outcome.before, outcome.after, outcome.who) for outcome in site.outcomes] == [
        ("more", 4, 6, "more"),
        ("fewer", 4, 2, "fewer"),
        ("unchanged", 4, 4, "same"),
    ]


def test_values_are_told_once_where_all_leads_agree_baselines_first():
    run = runs.run(
        [
            runs.result(name, lead_ms=lead, numerics=runs.numerics(status))
            for lead in (0.0, 1.0)
            for name, status in (
                ("mine", "close"),
                ("original", "differs"),
                ("yours", "close" if lead else "nan"),
            )
        ]
    )
    found = [(value.who, value.baseline, value.numerics.status) for value in view_of(run).values]
    assert found == [
        ("original", True, "differs"),
        ("mine", False, "close"),
        ("yours at 0 ms lead", False, "nan"),
        ("yours at 1 ms lead", False, "close"),
    ]


def test_values_of_several_runs_are_told_apart_only_where_they_differ():
    def run_with(status):
        return runs.run([runs.result("original"), runs.result("mine", numerics=runs.numerics(status))])

    comparison = compare([("a", [("one", run_with("close")), ("two", run_with("nan"))])])
    assert [(value.who, value.numerics.status) for value in ComparisonView.of(comparison).values] == [
        ("original", "close"),
        ("mine, one", "close"),
        ("mine, two", "nan"),
    ]


def test_a_reader_can_make_it_again():
    environment = runs.environment(device=runs.GPU, cuda_env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
    view = view_of(runs.run([runs.result("original")], environment=environment))
    (run,) = view.runs
    assert (run.command, run.created_at, run.seed, run.version) == (
        "mtp-bench run --device sim",
        "2026-12-01T00:00:00+00:00",
        0,
        "0.1.0",
    )
    assert run.environment == (
        "NVIDIA H100 80GB HBM3 (measured), Python 3.11.7, torch 2.13.0, megatron-core 0.16.1, CUDA 12.9, driver 575.1, "
        "Example CPU, 8 of 8 CPUs, seed 0, CUDA_DEVICE_MAX_CONNECTIONS=1"
    )
    assert (view.threshold, view.version) == ("10 us or 0.5 %", __version__)


def test_a_row_is_worse_by_time_syncs_or_values_and_not_by_memory():
    base = runs.result("original", time=runs.time(1_000.0), memory=Memory(peak_bytes=1))
    changes = {
        "slow": {"time": runs.time(1_100.0)},
        "syncs": {"syncs": runs.syncs(GUARD)},
        "values": {"numerics": runs.numerics("nan")},
        "unknown": {"numerics": None, "syncs": None, "time": None},
        "memory": {"memory": Memory(peak_bytes=2)},
        "fast": {"time": runs.time(900.0)},
    }
    results = [runs.result(name, **{"time": runs.time(1_000.0), **change}) for name, change in changes.items()]
    rows = compared(runs.run([base, *results])).rows
    assert [row.candidate for row in rows if regressed(row)] == ["slow", "syncs", "values"]
