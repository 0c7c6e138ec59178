"""``--select`` and ``--sort``: which rows are wanted, and in which order."""

import math

import pytest

from mtp_bench.compare.selection import ORDERS, Selection
from mtp_bench.errors import InputError
from tests import runs
from tests.compare.sides import alone, both, gpu_run, measured, mine

STEADY = [10_000.0 + window % 5 for window in range(20)]


def selected(*texts):
    """{(workload, variant, lead)} of what is left of the variants of a run."""
    found = alone(runs.modelled_run(), select=texts)
    return {(row.workload, row.variant, row.lead_ms) for row in found.rows}


PACKED = {
    ("packed-sft", name, lead) for name in ("patched", "sync_free", "host_lens", "boundary_roll") for lead in (0, 1, 10)
}


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["workload=packed-sft"], PACKED),
        (["workload=packed-*"], PACKED),
        ([" workload = packed-sft "], PACKED),
        (["workload=packed-sft", "lead=1"], {row for row in PACKED if row[2] == 1}),
        (["workload=packed-sft", "lead=0,10"], {row for row in PACKED if row[2] != 1}),
        (["workload=packed-sft", "lead=0", "lead=10"], {row for row in PACKED if row[2] != 1}),
        (["workload=packed-sft", "lead=1.0"], {row for row in PACKED if row[2] == 1}),
        (["workload=packed-sft", "lead=1?"], {row for row in PACKED if row[2] == 10}),
        (["workload=packed-sft", "variant=*sync*,h*"], {row for row in PACKED if row[1] in ("sync_free", "host_lens")}),
        (["workload=p?cked-sft", "variant=[ab]*", "lead=1"], {("packed-sft", "boundary_roll", 1)}),
        (["scope=loss", "workload=packed-sft"], PACKED),
    ],
)
def test_a_row_is_wanted_where_one_glob_of_each_key_matches(texts, wanted):
    assert selected(*texts) == wanted


def test_without_a_selection_all_are_wanted():
    assert len(selected()) == 24


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workload", "--select 'workload': expected KEY=GLOB with a key of workload, scope, variant, lead"),
        ("workload=", "--select 'workload=': expected KEY=GLOB"),
        ("workload=a,,b", "--select 'workload=a,,b': expected KEY=GLOB"),
        ("=x", "--select '=x': expected KEY=GLOB"),
        ("varaint=x", "--select 'varaint=x': expected KEY=GLOB with a key of workload, scope, variant, lead; "
         "did you mean 'variant'?"),
        ("variant=sync_fre", "--select variant=sync_fre: nothing matches; did you mean 'sync_free'?"),
        ("variant=Patched", "--select variant=Patched: nothing matches; did you mean 'patched'?"),
        ("variant=patched,nothing", "--select variant=nothing: nothing matches; known: "),
        ("workload=glm-*", "--select workload=glm-*: nothing matches; known: packed-sft, padded-sft"),
        ("lead=2", "--select lead=2: nothing matches; known: 0, 1, 10"),
        ("scope=step", "--select scope=step: nothing matches; known: loss"),
        ("variant=original", "--select variant=original: nothing matches"),
    ],
)  # fmt: skip
def test_what_selects_nothing_is_an_error_since_a_gate_would_pass_for_ever(text, message):
    with pytest.raises(InputError) as error:
        selected(text)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("text", ["variant", "variant=", " lead = "])
def test_a_key_that_is_right_is_not_guessed_at(text):
    with pytest.raises(InputError) as error:
        selected(text)
    assert str(error.value) == (f"--select {text!r}: expected KEY=GLOB with a key of workload, scope, variant, lead")


def test_globs_that_match_nothing_together_are_an_error():
    run = runs.run([mine(1.0, workload="padded-sft", variant="x"), mine(1.0, variant="y")])
    with pytest.raises(
        InputError, match=r"^--select workload=padded-sft variant=y: nothing matches all of them together"
    ):
        both(run, run, select=["workload=padded-sft", "variant=y"])


def test_an_error_of_a_selection_comes_before_those_of_runs_without_results():
    with pytest.raises(InputError, match="expected KEY=GLOB"):
        both(runs.run(), runs.run(), select=["variant"])
    assert both(runs.run(), runs.run(), select=["variant=x"]).rows == ()


def test_what_is_not_wanted_has_no_say_in_gates_and_exit_codes():
    first = runs.run([mine(1.0), mine(1.0, variant="gone")])
    second = runs.run([mine(1.0), mine(1.0, variant="new"), mine(1.0, lead_ms=5.0)])
    assert both(first, second).exit_code == 3
    found = both(first, second, select=["variant=mine", "lead=1"])
    assert [(row.candidate, row.lead_ms) for row in found.rows] == [("mine (b)", 1.0)]
    assert (found.exit_code, found.notes) == (0, ())


def test_a_workload_that_one_side_lacks_is_a_row_where_it_is_wanted():
    first, second = runs.run([mine(1.0)]), runs.run([mine(1.0, workload="padded-sft")])
    found = both(first, second, select=["workload=padded-*"])
    assert [(row.workload, row.reason) for row in found.rows] == [("padded-sft", "a has no padded-sft in scope loss")]


def test_p_is_adjusted_for_the_rows_that_are_wanted():
    first, second = (
        gpu_run(*(measured(*[us + more for us in STEADY], variant=name) for name in ("x", "y"))) for more in (0.0, 10.0)
    )
    (row,) = both(first, second, select=["variant=x"]).rows
    assert row.p_holm == row.p


def shown(by):
    """Variants in the order of ``by``: one of each verdict, in the run a, b, c, d, e, f."""
    found = both(
        gpu_run(
            measured(*STEADY, variant="a"),
            measured(*STEADY, variant="b"),
            measured(*STEADY, variant="c", syncs=runs.syncs(runs.site(9))),
            measured(*[10_000.0, 12_000.0] * 10, variant="d"),
            measured(*STEADY, variant="e"),
            measured(*STEADY, variant="f", syncs=None),
        ),
        gpu_run(
            measured(*STEADY, variant="a", syncs=runs.syncs(runs.site(2))),
            measured(*[us + 300 for us in STEADY], variant="b", syncs=runs.syncs(runs.site(1))),
            measured(*[us - 300 for us in STEADY], variant="c"),
            measured(*[10_001.0, 12_001.0] * 10, variant="d"),
            runs.result("e", status="failed", time=None),
            measured(*[us + 900 for us in STEADY], variant="f"),
        ),
        sort=by,
    )
    return "".join(row.variant for row in found.rows)


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("run", "abcdef"),
        ("name", "abcdef"),
        ("verdict", "fbdeac"),  # slower, unclear, incomparable, same, faster; within them by the difference
        ("difference", "fbdace"),  # what has none comes last
        ("ratio", "fbdace"),
        ("syncs", "abdecf"),
    ],
)
def test_orders_have_the_worst_first(by, order):
    assert shown(by) == order


def test_a_ratio_to_nothing_comes_last():
    first = runs.run([mine(0.0, variant="x"), mine(1.0, variant="y")])
    second = runs.run([mine(1.0, variant="x"), mine(1.0, variant="y")])
    rows = both(first, second, sort="ratio").rows
    assert [row.variant for row in rows] == ["y", "x"]
    assert math.isnan(rows[1].difference.ratio)


def test_names_are_ordered_by_workload_scope_variant_and_lead():
    run = runs.run(
        [
            mine(1.0, variant=variant, workload=workload, lead_ms=lead)
            for lead in (10.0, 1.0)
            for variant in ("y", "x")
            for workload in ("padded-sft", "packed-sft")
        ]
    )
    rows = both(run, run, sort="name").rows
    places = [(row.workload, row.variant, row.lead_ms) for row in rows]
    assert places == sorted(places)
    assert len(places) == 8


def test_an_unknown_order_is_refused():
    with pytest.raises(InputError, match=r"^--sort 'size': use run, difference, ratio, verdict, syncs, name"):
        alone(runs.modelled_run(), sort="size")


def test_the_command_line_offers_all_orders():
    from mtp_bench.cli.compare import Order

    assert {order.value for order in Order} == set(ORDERS)


def test_lead_is_matched_as_it_is_shown():
    assert Selection.parse(["lead=2.50"]).globs == {"lead": ("2.5",)}
