"""Which results are compared with which, several runs a side, and what forbids to compare their times."""

import pytest

from mtp_bench.results import DeviceInfo
from tests import runs
from tests.compare.sides import alone, both, gpu_run, measured, mine, pooled, verdicts

STEADY = [10_000.0 + window % 5 for window in range(20)]
SAME = "the interval lies within the threshold of 50.0 us"


def cpu(name, affinity=8):
    return runs.Cpu(model=name, count=8, affinity=affinity)


def on(machine, *step_us, **environment):
    """A measured run of one variant on a machine of this name."""
    return gpu_run(measured(*(step_us or STEADY)), cpu=cpu(machine), **environment)


def rows(found):
    return [(row.workload, row.lead_ms, row.baseline, row.candidate, row.reason) for row in found.rows]


def test_a_variant_of_one_side_only_is_one_row():
    found = both(runs.run([mine(1.0), mine(1.0, variant="gone")]), runs.run([mine(1.0), mine(1.0, variant="new")]))
    assert [(row.lead_ms, row.baseline, row.candidate, row.reason) for row in found.rows if not row.difference] == [
        (None, "gone (a)", "gone (b)", "not in b"),
        (None, "new (a)", "new (b)", "not in a"),
    ]
    assert found.exit_code == 3


def test_a_workload_of_one_side_only_is_one_row_named_as_the_sides_are():
    found = both(runs.run([mine(1.0, workload="padded-sft")]), runs.run([mine(1.0)]))
    assert rows(found) == [
        ("padded-sft", None, "a", "b", "b has no padded-sft in scope loss"),
        ("packed-sft", None, "a", "b", "a has no packed-sft in scope loss"),
    ]
    assert {row.variant for row in found.rows} == {""}


def test_a_scope_of_one_side_only_is_one_row():
    found = both(runs.run([mine(1.0)]), runs.run([mine(1.0, scope="step")]))
    assert [row.reason for row in found.rows] == [
        "b has no packed-sft in scope loss",
        "a has no packed-sft in scope step",
    ]


def test_leads_of_one_side_only_are_one_row_a_side():
    first, second = (runs.run([mine(1.0, lead_ms=lead) for lead in leads]) for leads in ((0.0, 1.0, 10.0), (1.0, 5.0)))
    assert rows(both(first, second)) == [
        ("packed-sft", None, "a", "b", "b has no lead of 0 or 10 ms"),
        ("packed-sft", None, "a", "b", "a has no lead of 5 ms"),
        ("packed-sft", 1.0, "mine (a)", "mine (b)", "the modelled difference lies within the threshold of 10.0 us"),
    ]


def test_what_an_interrupted_run_did_not_reach_is_incomparable():
    whole = runs.run([mine(1.0, variant=name, lead_ms=lead) for name in ("x", "y") for lead in (0.0, 1.0)])
    found = both(whole, runs.run(whole.results[:3]))
    assert [row for row in verdicts(found) if row[1] == "incomparable"] == [
        ("y (b)", "incomparable", "y (b) was not run at this lead")
    ]
    within = alone(runs.run(whole.results[:3]), baseline="x")
    assert [(row.lead_ms, row.verdict, row.reason) for row in within.rows][-1] == (
        1.0,
        "incomparable",
        "y was not run at this lead",
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": runs.GPU.model_copy(update={"name": "NVIDIA A100"})}, "different device"),
        ({"device": runs.GPU, "packages": {"mtp-bench": "0.2.0"}}, "different mtp-bench version"),
        ({"device": runs.GPU, "cpu": cpu("Another CPU")}, "different CPU"),
        ({"device": runs.GPU, "cpu": cpu("Example CPU", affinity=2)}, "different affinity"),
        ({"device": runs.GPU, "cpu": cpu("Another CPU", affinity=2)}, "different CPU, affinity"),
        *(
            ({"device": runs.GPU, "cuda_env": {name: "1"}}, f"different {name}")
            for name in (
                "CUDA_DEVICE_MAX_CONNECTIONS",
                "CUDA_LAUNCH_BLOCKING",
                "PYTORCH_ALLOC_CONF",
                "PYTORCH_CUDA_ALLOC_CONF",
            )
        ),
    ],
)
def test_what_makes_two_measured_runs_incomparable(changes, reason):
    other = gpu_run(measured(*STEADY)).model_copy(update={"environment": runs.environment(**changes)})
    found = both(gpu_run(measured(*STEADY)), other)
    assert verdicts(found) == [("mine (b)", "incomparable", reason)]
    assert (found.rows[0].difference, found.exit_code) == (None, 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"torch": "2.14.1"},
        {"megatron_core": "0.19.2"},
        {"python": "3.12.1"},
        {"device": runs.GPU.model_copy(update={"driver": "580.1"})},
        {"cuda_env": {"CUDA_VISIBLE_DEVICES": "1"}},
    ],
)
def test_what_may_differ_between_two_measured_runs_since_it_is_said(changes):
    found = both(gpu_run(measured(*STEADY)), gpu_run(measured(*STEADY), **changes))
    assert verdicts(found) == [("mine (b)", "same", SAME)]
    assert len(found.environment_differences) == 1


def test_the_machine_under_a_model_does_not_matter():
    other = runs.run(
        [mine(1.0)],
        environment=runs.environment(cpu=cpu("Another CPU", 1), cuda_env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
    )
    assert both(runs.run([mine(1.0)]), other).exit_code == 0


def test_runs_on_sim_with_other_constants_are_incomparable():
    def by(profile):
        device = DeviceInfo(kind="sim", name="NVIDIA H100", modelled=True, profile=profile)
        return runs.run([mine(1.0)], environment=runs.environment(device=device))

    assert both(by("h100 0123abcd"), by("h100 0123abcd")).exit_code == 0
    assert verdicts(both(by("h100 0123abcd"), by("h100 4567cdef"))) == [
        ("mine (b)", "incomparable", "different device profile")
    ]


def test_modelled_times_are_never_compared_with_measured_ones():
    why = "modelled times are not compared with measured ones"
    pairs = (runs.run([mine(1.0)]), gpu_run(measured(*STEADY)))
    for sides in (pairs, pairs[::-1]):
        assert verdicts(both(*sides)) == [("mine (b)", "incomparable", why)]
    assert verdicts(pooled(pairs, pairs)) == [("mine (b)", "incomparable", why)]


def test_times_under_a_profiler_are_never_compared_with_times_without_one():
    plain, profiled = (
        gpu_run(runs.result("mine", time=runs.time(*STEADY, modelled=False, profiled=profiled)))
        for profiled in (False, True)
    )
    why = "times under a profiler are not compared with times without one"
    for sides in ((plain, profiled), (profiled, plain)):
        assert verdicts(both(*sides)) == [("mine (b)", "incomparable", why)]
    assert verdicts(pooled([plain, profiled], [plain, plain])) == [("mine (b)", "incomparable", why)]
    assert verdicts(both(profiled, profiled)) == [("mine (b)", "same", SAME)]


def test_another_workload_of_the_same_name_is_incomparable_and_says_what_changed():
    first, other = runs.run([mine(1.0)]), runs.run([mine(1.0, syncs=runs.syncs(runs.site(3)))])
    other.workloads["packed-sft"] = {**other.workloads["packed-sft"], "hidden_size": 64, "title": "another title"}
    found = both(first, other)
    assert verdicts(found) == [("mine (b)", "incomparable", "different workload: hidden_size 4096 and 64")]
    assert found.rows[0].syncs == (0, 3)


def test_another_title_of_a_workload_changes_nothing():
    first, other = runs.run([mine(1.0)]), runs.run([mine(1.0)])
    other.workloads["packed-sft"] = {**other.workloads["packed-sft"], "title": "new", "source": "x", "stand_in": ""}
    assert both(first, other).exit_code == 0


def test_another_harness_is_incomparable():
    first, second = (runs.run([mine(1.0, scope="step", harness=harness)]) for harness in ("megatron", "verl"))
    assert verdicts(both(first, second)) == [("mine (b)", "incomparable", "different harness")]


def test_machines_that_differ_may_be_compared_where_there_are_several_on_each_side():
    """What a machine adds is then seen within the sides."""
    assert verdicts(both(on("A"), on("B"))) == [("mine (b)", "incomparable", "different CPU")]
    assert verdicts(pooled([on("A"), on("B")], [on("C"), on("D")])) == [("mine (b)", "same", SAME)]
    assert verdicts(pooled([on("A"), on("B")], [on("A"), on("B")])) == [("mine (b)", "same", SAME)]


def test_a_machine_on_both_sides_of_several_runs_is_enough():
    assert verdicts(pooled([on("A"), on("A")], [on("A"), on("B")])) == [("mine (b)", "same", SAME)]


@pytest.mark.parametrize(
    ("first", "second"), [("AA", "BB"), ("A", "BC"), ("A", "AB"), ("AB", "C"), ("AB", "CC")], ids="-".join
)
def test_machines_that_cannot_be_told_from_the_effect_are_incomparable(first, second):
    sides = ([on(machine) for machine in side] for side in (first, second))
    assert verdicts(pooled(*sides)) == [("mine (b)", "incomparable", "different CPU")]


def test_variants_of_runs_on_several_machines_are_compared_since_each_run_has_both():
    found = pooled([gpu_run(measured(*STEADY, variant="original"), measured(*STEADY), cpu=cpu(name)) for name in "AB"])
    assert verdicts(found) == [("mine", "same", SAME)]
    assert (found.rows[0].difference.paired, found.rows[0].difference.runs) == (True, (2, 2))


def test_runs_of_one_side_that_cannot_be_pooled_are_incomparable():
    other_gpu = runs.GPU.model_copy(update={"name": "NVIDIA A100"})
    assert verdicts(pooled([on("A"), on("A", device=other_gpu)], [on("A"), on("A")])) == [
        ("mine (b)", "incomparable", "different device among the runs of one side")
    ]
    assert pooled([on("A"), on("A", device=other_gpu)]).rows == ()


def test_several_runs_a_side_are_a_level_of_their_own():
    """Within a run 5 us apart, from run to run 400: a difference of 300 us is then no effect."""
    fast, slow = ([on("A", *[us + more for us in STEADY]) for more in side] for side in ((0, 400), (300, 700)))
    (row,) = pooled(fast, slow).rows
    assert row.difference.ns == pytest.approx(300_000)
    assert (row.verdict, row.difference.runs, row.difference.windows) == ("unclear", (2, 2), (40, 40))
    assert row.finding.runs_to_decide > 2
    assert row.finding.windows_to_decide is None
    assert both(fast[0], slow[0]).rows[0].verdict == "slower"


def test_runs_of_a_side_in_another_order_give_the_same_row():
    sides = [[on("A", *[us + more for us in STEADY]) for more in side] for side in ((0, 4, 9), (3, 7, 1))]
    (row,), (again,) = (pooled(*[side[::step] for side in sides]).rows for step in (1, -1))
    assert row.difference == again.difference


def test_of_several_runs_the_worst_counts_and_what_one_does_not_know_is_not_known():
    good = mine(1.0, syncs=runs.syncs(), numerics=runs.numerics("equal"))
    bad = mine(1.0, syncs=runs.syncs(runs.site(2)), numerics=runs.numerics("nan"))
    bare = mine(1.0, syncs=None, numerics=None)
    (row,) = pooled(*[[runs.run([found]) for found in side] for side in ((good, bad), (good, bare))]).rows
    assert (row.syncs, row.values) == ((2, None), ("nan", None))


def test_runs_that_lack_a_variant_are_left_out_and_said():
    x, y = mine(1.0, variant="x"), mine(1.0, variant="y")
    found = pooled([runs.run([x, y]), runs.run([x])], [runs.run([x, y], seed=1), runs.run([x, y], seed=2)])
    assert [(row.candidate, row.difference.runs) for row in found.rows] == [("x (b)", (2, 2)), ("y (b)", (1, 2))]
    assert found.notes == ("not in 1 of 2 runs of a (a2): y on packed-sft",)


def test_runs_that_lack_a_lead_or_a_workload_are_left_out_and_said():
    full = runs.run([mine(1.0), mine(1.0, lead_ms=5.0), mine(1.0, workload="padded-sft")])
    found = pooled([full, runs.run([mine(1.0)])], [full, runs.run(full.results, seed=1)])
    assert found.notes == (
        "not in 1 of 2 runs of a (a2): mine on packed-sft at 5 ms lead, padded-sft in scope loss",
        "on both sides, a and b: b1",
    )


def test_within_runs_only_those_that_have_both_take_part():
    base, cand = mine(1.0, variant="original"), mine(2.0)
    found = pooled([runs.run([base, cand]), runs.run([base]), runs.run([cand])])
    assert [(row.candidate, row.difference.runs) for row in found.rows] == [("mine", (1, 1))]
    assert found.notes == (
        "not in 1 of 3 runs of a (a3): original on packed-sft",
        "not in 1 of 3 runs of a (a2): mine on packed-sft",
    )
    apart = pooled([runs.run([base]), runs.run([cand])])
    assert verdicts(apart) == [("mine", "incomparable", "no run has both original and mine at this lead")]


def test_one_failed_run_of_several_is_incomparable_and_says_how_many():
    failed = runs.run([runs.result("mine", status="failed", time=None)])
    found = pooled([runs.run([mine(1.0)]), failed], [runs.run([mine(1.0)]), runs.run([mine(1.0)], seed=1)])
    assert verdicts(found) == [("mine (b)", "incomparable", "mine (a) failed in 1 of 2 runs")]


def test_copies_of_a_run_are_said_since_they_agree_too_well():
    found = pooled([runs.run([mine(1.0)])] * 2, [runs.run([mine(1.0)], seed=1), runs.run([mine(1.0)], seed=2)])
    assert found.notes == ("a: a2 is a copy of a1, and both count: give one of them",)


def test_a_run_on_both_sides_is_said_where_sides_are_pooled():
    shared, other, another = (runs.run([mine(1.0)], seed=seed) for seed in (1, 2, 3))
    assert pooled([shared, other], [shared, another]).notes == ("on both sides, a and b: b1",)
    assert pooled([shared], [shared]).notes == ()  # one run with itself is asked for


def test_what_the_runs_of_a_side_do_not_agree_on_is_said():
    first = mine(1.0, syncs=runs.syncs(runs.site(1)), ops=10, numerics=runs.numerics("equal"))
    second = mine(1.0, syncs=runs.syncs(runs.site(2)), ops=11, numerics=runs.numerics("nan"))
    third = mine(1.0, syncs=runs.syncs(runs.site(2, line=41)), ops=11, numerics=runs.numerics("nan"))
    side = [runs.run([first]), runs.run([second])]
    other = [runs.run([second], seed=1), runs.run([third], seed=1)]
    assert pooled(side, other).notes == (
        "mine (a) on packed-sft: its runs have 1 and 2 syncs a step",
        "mine (a) on packed-sft: its runs have 10 and 11 operations a step",
        "mine (a) on packed-sft: its runs have values equal and nan",
        "mine (b) on packed-sft: its runs have their syncs on different lines",
    )


def test_a_workload_that_an_interrupted_run_did_not_reach_is_said():
    cut = runs.run([mine(1.0)])
    cut.workloads["padded-sft"] = runs.WORKLOADS["padded-sft"]
    assert both(runs.run([mine(1.0)]), cut).notes == ("without results in b: padded-sft",)


def test_of_many_values_of_an_environment_some_are_named():
    found = pooled([on(f"CPU {number}") for number in range(8)])
    assert found.environment_differences == (
        "cpu.model: CPU 0 (a: a1), CPU 1 (a: a2), CPU 2 (a: a3), CPU 3 (a: a4), CPU 4 (a: a5), CPU 5 (a: a6) "
        "and 2 more",
    )
