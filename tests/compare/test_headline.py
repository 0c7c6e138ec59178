"""The first printed sentence: what the guard costs, what packed rolls cost, or why that cannot be told."""

from mtp_bench.compare.headline import headline
from tests import runs

GUARD = "The `num_tokens > 0` guard"


def without(run, *variants):
    return run.model_copy(update={"results": [r for r in run.results if r.variant not in variants]})


def test_modelled_costs_say_so_and_have_no_interval():
    assert headline(runs.modelled_run()) == (
        f"{GUARD} costs 16.5 us a step, packed rolls cost 240.0 us (of which syncs 140.0 us) "
        "on packed-sft at 1 ms lead, modelled. "
        f"{GUARD} costs 16.5 us a step on padded-sft at 1 ms lead, modelled."
    )


def test_measured_costs_have_intervals_paired_by_round():
    assert headline(runs.measured_run()) == (
        f"{GUARD} costs 30.0 us [30.0, 30.0] a step, packed rolls cost 250.0 us [250.0, 250.0] "
        "(of which syncs 100.0 us [100.0, 100.0]) on packed-sft at 1 ms lead, 98 % intervals."
    )


def test_another_lead_is_taken_where_there_is_none_of_1_ms():
    assert "at 0 ms lead" in headline(runs.modelled_run([0.0]))
    assert "at 10 ms lead" in headline(runs.modelled_run([10.0]))


def test_a_variant_that_was_not_run_is_named():
    found = headline(without(runs.modelled_run(), "patched"))
    assert found.startswith(
        "What the `num_tokens > 0` guard costs cannot be told: variant patched was not run; "
        "packed rolls cost 240.0 us a step (of which syncs 140.0 us) on packed-sft"
    )
    found = headline(without(runs.modelled_run(), "boundary_roll"))
    assert found.startswith(
        f"{GUARD} costs 16.5 us a step; what packed rolls cost cannot be told: variant boundary_roll was not run"
    )
    found = headline(without(runs.modelled_run(), "host_lens"))
    assert "packed rolls cost 240.0 us (what of it are syncs cannot be told: variant host_lens was not run)" in found


def test_a_failed_variant_is_named():
    run = runs.run([runs.result("patched", status="failed", time=None), runs.result("sync_free")])
    assert headline(run).startswith(
        "What the `num_tokens > 0` guard and packed rolls cost cannot be told: variant patched failed; "
        "variant boundary_roll was not run on packed-sft"
    )


def test_without_a_packed_workload_only_the_guard_is_told():
    run = runs.run(
        [runs.result(v, "padded-sft", time=runs.time(us)) for v, us in (("patched", 5.0), ("sync_free", 3.0))]
    )
    assert headline(run) == (
        f"{GUARD} costs 2.0 us a step on padded-sft at 1 ms lead, modelled. "
        "No packed workload was run, so what packed rolls cost cannot be told."
    )


def test_a_run_without_results_says_nothing_was_run():
    assert headline(runs.run()) == "No packed workload was run, so what packed rolls cost cannot be told."


def test_times_that_are_not_finite_have_no_cost():
    found = runs.run(
        [runs.result(name, time=runs.time(us)) for name, us in (("patched", float("nan")), ("sync_free", 1.0))]
    )
    assert "cannot be told: variant patched has step times that are not finite" in headline(found)
