"""Gates: what fails, what passes, and what nobody can tell, which is neither."""

import pytest

from mtp_bench.compare.gates import Gate, parse
from mtp_bench.compare.verdicts import Threshold
from mtp_bench.errors import InputError
from tests import runs
from tests.compare.sides import alone, both, gpu_run, measured, mine

WHERE = "mine (b) on packed-sft at lead 1 ms"
NOISY = [10_000.0, 12_000.0] * 10


def judged(first, second, *fail_on, **options):
    """(exit code, failures, undecided) of two runs."""
    found = both(first, second, fail_on=fail_on, **options)
    assert found.judgement.passed == (found.exit_code == 0)
    return found.exit_code, found.judgement.failures, found.judgement.undecided


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("slower", Gate("slower", "slower")),
        ("slower>2%", Gate("slower", "slower>2%", Threshold(0.0, 0.02))),
        ("slower > 50us", Gate("slower", "slower > 50us", Threshold(50_000.0, 0.0))),
        ("slower>0", Gate("slower", "slower>0", Threshold(0.0, 0.0))),
        ("syncs", Gate("syncs", "syncs")),
        ("syncs>0", Gate("syncs", "syncs>0")),
        (" syncs>2 ", Gate("syncs", "syncs>2", allowed=2)),
        ("values", Gate("values", "values")),
        ("unclear", Gate("unclear", "unclear")),
    ],
)
def test_what_a_gate_is_written_as(text, gate):
    assert Gate.parse(text) == gate


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slow", "--fail-on 'slow': no such gate; did you mean 'slower'?"),
        ("Syncs", "--fail-on 'Syncs': no such gate; did you mean 'syncs'?"),
        ("memory", "--fail-on 'memory': no such gate"),
        ("", "--fail-on '': no such gate"),
        ("slower>", "--fail-on slower>: '': expected a time, a percentage or both, as in 10us, 0.5% or 20us,1%"),
        ("slower>2", "--fail-on slower>2: '2': expected a time, a percentage or both"),
        ("slower>-2%", "--fail-on slower>-2%: '-2%': expected a time"),
        ("slower>nan%", "--fail-on slower>nan%: 'nan%': expected a time"),
        ("slower>=2%", "--fail-on slower>=2%: '=2%': expected a time"),
        ("syncs>2%", "--fail-on 'syncs>2%': expected a number of syncs a step, as in syncs>2"),
        ("syncs>-1", "--fail-on 'syncs>-1': expected a number of syncs a step, as in syncs>2"),
        ("syncs>", "--fail-on 'syncs>': expected a number of syncs a step, as in syncs>2"),
        ("values>1", "--fail-on 'values>1': expected values alone, it has no limit"),
        ("unclear>3", "--fail-on 'unclear>3': expected unclear alone, it has no limit"),
    ],
)
def test_what_is_no_gate_is_one_line_that_says_what_would_be(text, message):
    with pytest.raises(InputError) as error:
        Gate.parse(text)
    assert str(error.value).startswith(message)


def test_a_size_after_a_comma_belongs_to_the_gate_before_it():
    assert parse(["slower>20us", "1%", "syncs"]) == (
        Gate("slower", "slower>20us,1%", Threshold(20_000.0, 0.01)),
        Gate("syncs", "syncs"),
    )


def test_a_size_after_a_gate_without_a_limit_is_an_error():
    with pytest.raises(InputError, match="--fail-on '1%': no such gate"):
        parse(["slower", "1%"])


def test_a_gate_that_is_asked_for_twice_judges_once():
    assert [gate.text for gate in parse(["slower", "syncs", "slower", "slower>2%"])] == ["slower", "syncs", "slower>2%"]


def test_slower_fails_on_the_verdict_and_says_by_how_much():
    first, second = runs.run([mine(10_000.0)]), runs.run([mine(10_100.0)])
    failure = f"slower: {WHERE}: slower than mine (a) by 100.0 us a step (+1.0 %)"
    assert judged(first, second, "slower") == (1, (failure,), ())
    assert judged(second, first, "slower") == (0, (), ())
    assert judged(first, first, "slower") == (0, (), ())


@pytest.mark.parametrize(
    ("limit", "code"), [("0.9%", 1), ("1%", 0), ("2%", 0), ("99us", 1), ("100us", 0), ("99us,2%", 0), ("0", 1)]
)
def test_slower_with_a_limit_of_its_own(limit, code):
    """The step becomes 100 us slower, which is 1 %."""
    assert judged(runs.run([mine(10_000.0)]), runs.run([mine(10_100.0)]), f"slower>{limit}")[0] == code


def test_a_limit_stands_instead_of_the_threshold_whichever_is_smaller():
    first, second = runs.run([mine(10_000.0)]), runs.run([mine(10_020.0)])
    assert both(first, second).rows[0].verdict == "same"
    assert judged(first, second, "slower")[0] == 0
    assert judged(first, second, "slower>15us")[0] == 1
    assert judged(first, second, "slower", threshold=Threshold.parse("0"))[0] == 1
    assert judged(first, second, "slower>25us", threshold=Threshold.parse("0"))[0] == 0


def test_slower_of_measured_times_needs_the_interval_to_exclude_0():
    steady = [10_000.0 + window % 5 for window in range(20)]
    first, second = gpu_run(measured(*steady)), gpu_run(measured(*[us + 300 for us in steady]))
    assert judged(first, second, "slower>4%") == (0, (), ())
    failure = f"slower>2%: {WHERE}: slower than mine (a) by 300.0 us a step (+3.0 %)"
    assert judged(first, second, "slower>2%", "slower>4%") == (1, (failure,), ())


def test_slower_cannot_tell_of_an_unclear_row():
    first, second = gpu_run(measured(*NOISY)), gpu_run(measured(*NOISY[::-1]))
    (row,) = both(first, second).rows
    assert row.verdict == "unclear"
    assert judged(first, second, "slower") == (3, (), (f"slower: {WHERE}: {row.reason}",))


def test_slower_passes_where_the_interval_rules_a_slowdown_out_whatever_else_is_unclear():
    """Between 2,000 us faster and not slower: too noisy to say how much faster, sure enough for a gate."""
    first, second = gpu_run(measured(*NOISY)), gpu_run(measured(*[us - 2_000 for us in NOISY]))
    (row,) = both(first, second).rows
    assert row.difference.high <= 50_000
    assert row.verdict == "unclear"
    assert judged(first, second, "slower") == (0, (), ())


def test_slower_cannot_tell_of_windows_too_few_for_an_interval():
    first, second = (gpu_run(measured(*us)) for us in ((5_000.0, 5_010.0, 4_990.0), (5_001.0, 5_002.0, 5_013.0)))
    assert judged(first, second, "slower") == (3, (), (f"slower: {WHERE}: fewer than 6 windows a side",))


def test_unclear_fails_on_what_slower_cannot_tell():
    first, second = gpu_run(measured(*NOISY)), gpu_run(measured(*NOISY[::-1]))
    reason = both(first, second).rows[0].reason
    assert judged(first, second, "unclear") == (1, (f"unclear: {WHERE}: {reason}",), ())
    assert judged(first, first, "unclear", threshold=Threshold.parse("50%")) == (0, (), ())


@pytest.mark.parametrize("gate", ["slower", "slower>2%", "unclear"])
def test_gates_on_time_cannot_tell_of_an_incomparable_row(gate):
    first, second = gpu_run(measured(1.0, 1.0)), runs.run([mine(1.0)])
    why = "modelled times are not compared with measured ones"
    assert judged(first, second, gate) == (3, (), (f"{gate}: {WHERE}: {why}",))


@pytest.mark.parametrize(("gate", "code"), [("syncs", 1), ("syncs>0", 1), ("syncs>1", 1), ("syncs>2", 0)])
def test_syncs_may_rise_by_as_many_as_the_gate_allows(gate, code):
    first, second = (runs.run([mine(1.0, syncs=runs.syncs(runs.site(count)))]) for count in (5, 7))
    failures = (f"{gate}: {WHERE}: 7 syncs a step, mine (a) has 5",) if code else ()
    assert judged(first, second, gate) == (code, failures, ())
    assert judged(second, first, gate) == (0, (), ())


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("equal", "close", 0),
        ("close", "equal", 0),
        ("equal", "differs", 1),
        ("close", "differs", 1),
        ("close", "nan", 1),
        ("differs", "nan", 1),
        ("differs", "differs", 0),
        ("nan", "nan", 0),
        ("nan", "differs", 0),
    ],
)
def test_values_fail_where_they_got_worse_and_are_wrong(before, after, code):
    first, second = (runs.run([mine(1.0, numerics=runs.numerics(status))]) for status in (before, after))
    failures = (f"values: {WHERE}: values {after}, those of mine (a) {before}",) if code else ()
    assert judged(first, second, "values") == (code, failures, ())


@pytest.mark.parametrize(("gate", "lacks"), [("values", "numerics"), ("syncs", "syncs")])
def test_a_gate_on_what_a_side_lacks_cannot_tell_and_says_whose(gate, lacks):
    full, less = runs.run([mine(1.0)]), runs.run([mine(1.0, **{lacks: None})])
    assert judged(full, less, gate) == (3, (), (f"{gate}: {WHERE}: no {gate} of mine (b)",))
    assert judged(less, full, gate) == (3, (), (f"{gate}: {WHERE}: no {gate} of mine (a)",))
    assert judged(less, less, gate) == (3, (), (f"{gate}: {WHERE}: no {gate} of mine (a) and mine (b)",))
    assert judged(full, less, "slower") == (0, (), ())


def test_gates_on_syncs_and_values_hold_where_times_are_incomparable():
    """On another GPU a step takes another time; its lines wait as often."""
    first, second = gpu_run(measured(1.0, 1.0)), runs.run([mine(1.0)])
    assert both(first, second).exit_code == 3
    assert judged(first, second, "syncs", "values") == (0, (), ())


def test_a_gate_that_fails_is_1_whatever_another_cannot_tell():
    first = runs.run([mine(1.0, numerics=None)])
    second = runs.run([mine(1.0, syncs=runs.syncs(runs.site(3)))])
    assert judged(first, second, "syncs", "values") == (
        1,
        (f"syncs: {WHERE}: 3 syncs a step, mine (a) has 0",),
        (f"values: {WHERE}: no values of mine (a)",),
    )


def test_every_gate_of_several_says_what_it_found():
    first = runs.run([mine(10_000.0)])
    second = runs.run([mine(10_100.0, syncs=runs.syncs(runs.site(3)), numerics=runs.numerics("nan"))])
    code, failures, undecided = judged(first, second, "slower", "slower>2%", "syncs", "values", "unclear")
    assert (code, undecided) == (1, ())
    assert failures == (
        f"slower: {WHERE}: slower than mine (a) by 100.0 us a step (+1.0 %)",
        f"syncs: {WHERE}: 3 syncs a step, mine (a) has 0",
        f"values: {WHERE}: values nan, those of mine (a) close",
    )


def test_within_a_run_gates_hold_its_variants_against_the_baseline():
    found = alone(runs.modelled_run([1.0]), baseline="sync_free", fail_on=["syncs"])
    assert found.judgement.failures == (
        "syncs: patched on padded-sft at lead 1 ms: 1 sync a step, sync_free has 0",
        "syncs: patched on packed-sft at lead 1 ms: 33 syncs a step, sync_free has 32",
    )


def test_what_a_gate_finds_alike_at_several_leads_is_said_once():
    found = alone(runs.modelled_run(), baseline="sync_free", fail_on=["syncs", "slower>0"])
    assert found.judgement.failures == (
        "syncs: patched on padded-sft at leads 0, 1 and 10 ms: 1 sync a step, sync_free has 0",
        "slower>0: patched on padded-sft at leads 0, 1 and 10 ms: slower than sync_free by 16.5 us a step (+0.2 %)",
        "syncs: patched on packed-sft at leads 0, 1 and 10 ms: 33 syncs a step, sync_free has 32",
        "slower>0: patched on packed-sft at leads 0, 1 and 10 ms: slower than sync_free by 16.5 us a step (+0.2 %)",
    )
    apart = [
        mine(us, variant=name, lead_ms=lead) for lead in (0.0, 1.0) for name, us in (("x", 10.0), ("y", 99 + lead))
    ]
    assert len(alone(runs.run(apart), fail_on=["slower"]).judgement.failures) == 2


@pytest.mark.parametrize("gate", ["slower", "syncs", "values", "unclear"])
def test_with_nothing_to_compare_no_gate_passes(gate):
    for found in (alone(runs.run([mine(1.0)]), fail_on=[gate]), both(runs.run(), runs.run(), fail_on=[gate])):
        assert (found.rows, found.exit_code) == ((), 3)
        assert found.judgement.undecided == ("nothing to compare",)
    assert alone(runs.run([mine(1.0)])).exit_code == 0


@pytest.mark.parametrize("gate", ["slower", "syncs", "values", "unclear"])
def test_a_variant_that_one_side_lacks_lets_no_gate_pass(gate):
    found = both(runs.run([mine(1.0)]), runs.run([mine(1.0, variant="new")]), fail_on=[gate])
    assert found.exit_code == 3
    assert len(found.judgement.undecided) == 2


def test_without_a_gate_incomparable_is_3_and_all_other_verdicts_are_0():
    slow, fast = runs.run([mine(20_000.0)]), runs.run([mine(10_000.0)])
    noisy = gpu_run(measured(*NOISY)), gpu_run(measured(*NOISY[::-1]))
    found = [both(fast, slow), both(slow, fast), both(fast, fast), both(*noisy), both(fast, noisy[0])]
    assert [(each.rows[0].verdict, each.exit_code) for each in found] == [
        ("slower", 0),
        ("faster", 0),
        ("same", 0),
        ("unclear", 0),
        ("incomparable", 3),
    ]
    assert found[-1].judgement.passed  # nobody asked
