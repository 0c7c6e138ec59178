"""``compare --format json``: every name that scripts rely on, with its value."""

import json
import math

import pytest

from mtp_bench.compare.summary import summary
from mtp_bench.report.document import comparison_document
from mtp_bench.results import Memory
from tests import runs
from tests.compare.sides import alone, both, gpu_run, measured, mine, pooled

STEADY = [10_000.0 + window % 5 for window in range(20)]


def document(found):
    """The document as a script reads it: through JSON, where no number is infinite or not a number."""
    return json.loads(json.dumps(comparison_document(found), allow_nan=False))


def full(step_us, line, count, ops, peak, **changes):
    return mine(
        step_us,
        syncs=runs.syncs(runs.site(count), runs.site(8, line=line, code="x[a:b]")),
        ops=ops,
        memory=Memory(peak_bytes=peak),
        **changes,
    )


def test_a_document_as_a_literal():
    """A contract: a name that goes or changes here is a new schema_version."""
    first = runs.run([full(10_000.0, 50, 2, 300, 1_024)])
    second = runs.run(
        [full(10_100.0, 55, 3, 301, 2_048, numerics=runs.numerics("nan"), warnings=["counts vary"])],
        environment=runs.environment(torch="2.14.1"),
    )
    found = both(first, second, fail_on=["syncs", "slower>5%"], command="mtp-bench compare a b")
    site = {
        "file": "mtp_bench/variants/patched.py",
        "line": 40,
        "code": "if num_tokens > 0:",
        "op": "aten::_local_scalar_dense",
        "kind": "item",
    }
    assert document(found) == {
        "schema_version": 1,
        "summary": summary(found),
        "command": "mtp-bench compare a b",
        "threshold": {"us": 10.0, "percent": 0.5},
        "sides": [{"label": "a", "runs": ["a"]}, {"label": "b", "runs": ["b"]}],
        "rows": [
            {
                "workload": "packed-sft",
                "scope": "loss",
                "variant": "mine",
                "lead_ms": 1.0,
                "rank": None,
                "baseline": "mine (a)",
                "candidate": "mine (b)",
                "modelled": True,
                "difference_us": 100.0,
                "difference_ci_us": None,
                "ratio": 1.01,
                "ci": None,
                "threshold_us": 50.0,
                "step_us": {"baseline": 10_000.0, "candidate": 10_100.0},
                "windows": {"baseline": 1, "candidate": 1},
                "runs": {"baseline": 1, "candidate": 1},
                "p": None,
                "p_holm": None,
                "verdict": "slower",
                "reason": "the modelled difference passes the threshold of 50.0 us",
                "windows_to_decide": None,
                "runs_to_decide": None,
                "syncs": {
                    "baseline": 10,
                    "candidate": 11,
                    "added": [{**site, "count": 1, "before": 2, "after": 3}],
                    "removed": [],
                    "moved": [
                        {**site, "line": 55, "code": "x[a:b]", "count": 0, "before": 8, "after": 8, "moved_from": 50}
                    ],
                },
                "values": {"baseline": "close", "candidate": "nan"},
                "entry_lead_us": {"baseline": None, "candidate": None},
                "loss_us": {"baseline": None, "candidate": None},
                "ops": {"baseline": 300, "candidate": 301},
                "memory": {"peak_bytes": {"baseline": 1_024, "candidate": 2_048}},
                "warnings": [],
                "notes": ["mine (b): counts vary"],
            }
        ],
        "environment_differences": ["torch: 2.13.0 (a), 2.14.1 (b)"],
        "warnings": [
            {
                "kind": "different versions",
                "subject": "",
                "detail": "torch 2.13.0 and 2.14.1",
                "advice": "the difference is that of all of these together: change one at a time",
            }
        ],
        "notes": [],
        "gate": {
            "passed": False,
            "gates": ["syncs", "slower>5%"],
            "failures": ["syncs: mine (b) on packed-sft at lead 1 ms: 11 syncs a step, mine (a) has 10"],
            "undecided": [],
        },
    }


def test_measured_rows_have_intervals_in_microseconds_and_as_ratios():
    found = document(alone(runs.measured_run(), baseline="sync_free"))
    row = found["rows"][0]
    assert row["candidate"] == "patched"
    assert (row["modelled"], row["difference_us"], row["difference_ci_us"]) == (False, 30.0, [30.0, 30.0])
    assert row["windows"] == {"baseline": 20, "candidate": 20}
    assert row["ci"][0] <= row["ratio"] <= row["ci"][1]
    assert 0 < row["p"] <= row["p_holm"] < 1e-3


def test_what_would_decide_is_a_number_of_windows_or_of_runs():
    noisy = [10_000.0, 12_000.0] * 10
    (row,) = document(both(gpu_run(measured(*noisy)), gpu_run(measured(*noisy[::-1]))))["rows"]
    assert row["windows_to_decide"] > 20
    assert row["runs_to_decide"] is None
    apart = [[gpu_run(measured(*[us + more for us in STEADY])) for more in side] for side in ((0, 400), (300, 700))]
    (row,) = document(pooled(*apart))["rows"]
    assert row["runs_to_decide"] > 2
    assert row["windows_to_decide"] is None
    assert row["runs"] == {"baseline": 2, "candidate": 2}


def test_a_row_without_results_has_the_same_names():
    (full_row,) = document(both(runs.run([mine(1.0)]), runs.run([mine(1.0)])))["rows"]
    empty, _ = document(both(runs.run([mine(1.0)]), runs.run([mine(1.0, variant="new")])))["rows"]
    assert list(empty) == list(full_row)
    nothing = {"baseline": None, "candidate": None}
    assert empty == {
        **dict.fromkeys(full_row),
        "workload": "packed-sft",
        "scope": "loss",
        "variant": "mine",
        "baseline": "mine (a)",
        "candidate": "mine (b)",
        "modelled": False,
        "verdict": "incomparable",
        "reason": "not in b",
        "syncs": {**nothing, "added": [], "removed": [], "moved": []},
        "values": nothing,
        "entry_lead_us": nothing,
        "loss_us": nothing,
        "ops": nothing,
        "memory": {"peak_bytes": nothing},
        "warnings": [],
        "notes": [],
    }


def test_a_ratio_to_nothing_is_the_text_nan():
    (row,) = document(both(runs.run([mine(0.0)]), runs.run([mine(100.0)])))["rows"]
    assert (row["ratio"], row["difference_us"], row["verdict"]) == ("nan", 100.0, "slower")


@pytest.mark.parametrize(("lead_ms", "shown"), [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (2.5, 2.5)])
def test_a_lead_that_is_not_finite_is_a_text(lead_ms, shown):
    found = document(alone(runs.run([mine(1.0, variant="original", lead_ms=lead_ms), mine(1.0, lead_ms=lead_ms)])))
    assert [row["lead_ms"] for row in found["rows"]] == [shown]


def test_why_a_variant_has_no_times_is_among_its_rows_notes():
    failed = runs.result("mine", status="failed", error="ValueError: boom", time=None)
    (row,) = document(both(runs.run([mine(1.0)]), runs.run([failed])))["rows"]
    assert (row["verdict"], row["reason"]) == ("incomparable", "mine (b) failed")
    assert row["notes"] == ["mine (b): failed: ValueError: boom"]


def test_warnings_of_a_row_have_their_advice():
    hot = runs.result("mine", time=runs.time(*STEADY, modelled=False, throttled=[True] + [False] * 19))
    (row,) = document(both(gpu_run(hot), gpu_run(measured(*STEADY[:10]))))["rows"]
    assert [(found["kind"], found["subject"], found["detail"]) for found in row["warnings"]] == [
        ("throttling", "mine (a)", "1 of 20 windows"),
        ("too few samples", "mine (a)", "19 windows"),
        ("too few samples", "mine (b)", "10 windows"),
    ]
    assert all(found["advice"] for found in row["warnings"])


def test_a_gate_that_nobody_asked_for_has_passed_and_one_that_cannot_tell_has_not():
    sides = runs.run([mine(1.0)]), runs.run([mine(1.0, syncs=None)])
    assert document(both(*sides))["gate"] == {"passed": True, "gates": [], "failures": [], "undecided": []}
    assert document(both(*sides, fail_on=["syncs"]))["gate"] == {
        "passed": False,
        "gates": ["syncs"],
        "failures": [],
        "undecided": ["syncs: mine (b) on packed-sft at lead 1 ms: no syncs of mine (b)"],
    }


def test_without_rows_the_document_has_all_its_names():
    assert set(document(both(runs.run(), runs.run()))) == {
        "schema_version", "summary", "command", "threshold", "sides", "rows", "environment_differences", "warnings",
        "notes", "gate",
    }  # fmt: skip
