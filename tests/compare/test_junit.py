"""``compare --format junit``: XML that any parser reads, whose counts are those of its cases."""

import re
from xml.etree import ElementTree

import pytest

from mtp_bench.compare import compare
from mtp_bench.compare.summary import summary
from mtp_bench.report.junit import comparison_report
from tests import runs
from tests.compare.sides import alone, both, mine

HOSTILE = [
    "<b>&\"'</b>]]>",
    "\x00\x01\x1b[31mred\x7f\x9b",
    "\ufffe\uffff\U0001fffe",
    "\ud800",
    "a\nb\tc\r",
    "\u202eabc\u2066",
    "x" * 10_000,
    "\u05e9\u05dc\u05d5\u05dd",
]


def parsed(found):
    text = comparison_report(found)
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites')
    assert text.endswith("</testsuites>\n")
    return ElementTree.fromstring(text.encode())  # what is no XML 1.0 raises here


def cases(root):
    """(suite, case, outcome, message) of every case."""
    return [
        (suite.get("name"), case.get("name"), outcome.tag if outcome is not None else "passed", message)
        for suite in root
        for case in suite.iter("testcase")
        for outcome in [next(iter(case), None)]
        for message in [outcome.get("message") if outcome is not None else None]
    ]


def test_a_row_is_a_case_and_a_workload_a_suite():
    root = parsed(alone(runs.modelled_run([1.0]), baseline="sync_free"))
    assert [(suite.get("name"), suite.get("tests")) for suite in root] == [
        ("padded-sft, scope loss", "4"),
        ("packed-sft, scope loss", "4"),
    ]
    patched = root[1].findall("testcase")[1]
    assert (list(patched), patched.attrib) == (
        [],
        {"name": "patched against sync_free, lead 1 ms", "classname": "mtp-bench.packed-sft.loss", "time": "0"},
    )
    lines = root[1].find("system-out").text.splitlines()
    place = lines.index("patched against sync_free, lead 1 ms:")
    assert lines[place + 1 : place + 3] == [
        "same: the modelled difference lies within the threshold of 51.2 us",
        "difference us, modelled +16.5; % +0.2; syncs a step 32 > 33; values close; "
        "step, us, modelled 10,240.0 > 10,256.5",
    ]


def test_the_document_has_what_the_schemas_of_ant_and_jenkins_require():
    root = parsed(both(runs.run([mine(1.0)]), runs.run([mine(90.0), mine(1.0, variant="new")]), fail_on=["slower"]))
    assert (root.tag, root.attrib) == ("testsuites", {})
    (suite,) = root
    assert suite.attrib == {
        "id": "0",
        "name": "packed-sft, scope loss",
        "package": "mtp-bench",
        "hostname": "localhost",
        "timestamp": "2026-12-01T00:00:00",
        "tests": "2",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
        "time": "0",
    }
    assert [part.tag for part in suite] == ["properties", "testcase", "testcase", "system-out", "system-err"]
    for case, tag in zip(suite.findall("testcase"), ("error", "failure"), strict=True):
        assert set(case.attrib) == {"name", "classname", "time"}
        assert [(outcome.tag, set(outcome.attrib), list(outcome)) for outcome in case] == [
            (tag, {"message", "type"}, [])
        ]


def test_the_time_is_that_of_the_last_run_in_utc():
    first, last = (
        runs.run([mine(1.0)], created_at=at) for at in ("2026-12-01T23:00:00+00:00", "2026-12-02T01:30:00+02:00")
    )
    assert parsed(both(first, last))[0].get("timestamp") == "2026-12-01T23:30:00"

    def of_a_run_made(at):
        return parsed(both(first, runs.run([mine(1.0)], created_at=at)))[0].get("timestamp")

    assert of_a_run_made("no time") == of_a_run_made("0001-01-01T00:00:00+23:59") == "1970-01-01T00:00:00"
    assert of_a_run_made("0099-01-01T00:00:00+00:00") == "0099-01-01T00:00:00"


def test_every_case_of_a_suite_has_a_name_of_its_own():
    first = runs.run([mine(1.0, lead_ms=lead) for lead in (0.0, 1.0)])
    second = runs.run([mine(1.0, lead_ms=lead) for lead in (1.0, 5.0)])
    assert [name for _, name, _, _ in cases(parsed(both(first, second)))] == [
        "b against a: b has no lead of 0 ms",
        "b against a: a has no lead of 5 ms",
        "mine (b) against mine (a), lead 1 ms",
    ]


def test_what_concerns_all_rows_is_the_output_of_the_first_suite():
    found = both(runs.run([mine(1.0)]), runs.run([mine(1.0)], environment=runs.environment(torch="2.14.1")))
    lines = parsed(found)[0].find("system-out").text.splitlines()
    assert lines[0] == summary(found)
    assert lines[1] == "torch: 2.13.0 (a), 2.14.1 (b)"
    assert "a: mtp-bench run --device sim" in lines
    after = lines.index("mine (b) against mine (a), lead 1 ms:")
    assert lines[after - 1].endswith("threshold 10 us or 0.5 % of the baseline's step, whichever is larger.")


def test_outcomes_are_what_the_gates_say_row_by_row():
    first = runs.run(
        [
            mine(10_000.0, variant="good"),
            mine(10_000.0, variant="slow"),
            mine(10_000.0, variant="unknown", numerics=None),
            runs.result("broken", status="failed", error="boom", time=None),
        ]
    )
    second = runs.run(
        [
            mine(10_000.0, variant="good"),
            mine(10_100.0, variant="slow", numerics=runs.numerics("nan")),
            mine(10_000.0, variant="unknown"),
            mine(10_000.0, variant="broken"),
        ]
    )
    found = both(first, second, fail_on=["slower", "values"])
    root = parsed(found)
    where = "packed-sft at lead 1 ms"
    assert cases(root) == [
        ("packed-sft, scope loss", "good (b) against good (a), lead 1 ms", "passed", None),
        (
            "packed-sft, scope loss",
            "slow (b) against slow (a), lead 1 ms",
            "failure",
            f"slower: slow (b) on {where}: slower than slow (a) by 100.0 us a step (+1.0 %)",
        ),
        (
            "packed-sft, scope loss",
            "unknown (b) against unknown (a), lead 1 ms",
            "error",
            f"values: unknown (b) on {where}: no values of unknown (a)",
        ),
        (
            "packed-sft, scope loss",
            "broken (b) against broken (a), lead 1 ms",
            "error",
            f"slower: broken (b) on {where}: broken (a) failed",
        ),
    ]
    (suite,) = root
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "2",
        "skipped": "0",
    }
    _, slow, _, broken = suite.findall("testcase")
    assert slow.find("failure").text.splitlines()[:2] == list(found.judgement.failures)
    assert "broken (a): failed: boom" in broken.find("error").text.splitlines()


def test_incomparable_is_skipped_where_no_gate_asked():
    root = parsed(both(runs.run([mine(1.0)]), runs.run([mine(1.0, variant="new")])))
    assert cases(root) == [
        ("packed-sft, scope loss", "mine (b) against mine (a)", "skipped", "not in b"),
        ("packed-sft, scope loss", "new (b) against new (a)", "skipped", "not in a"),
    ]
    assert root[0].get("skipped") == "2"


def test_what_a_gate_passes_is_no_skipped_case_though_its_times_are_incomparable():
    first, second = (runs.run([mine(1.0)], environment=runs.environment(packages={"mtp-bench": v})) for v in "12")
    found = both(first, second, fail_on=["syncs"])
    assert [
        (row.verdict, outcome) for row, (_, _, outcome, _) in zip(found.rows, cases(parsed(found)), strict=True)
    ] == [("incomparable", "passed")]


@pytest.mark.parametrize(("fail_on", "outcome"), [([], "skipped"), (["syncs"], "error")])
def test_nothing_to_compare_is_a_case_too_since_a_file_without_cases_passes(fail_on, outcome):
    root = parsed(both(runs.run(), runs.run(), fail_on=fail_on))
    assert cases(root) == [("comparison", "comparison", outcome, "nothing to compare")]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_and_errors_are_text(text):
    hostile = [runs.result(text, text, time=runs.time(us), error=text) for us in (1.0, 90.0)]
    root = parsed(both(*[runs.run([found]) for found in hostile], fail_on=["slower"]))
    ((_, name, outcome, message),) = cases(root)
    assert outcome == "failure"
    for shown in (name, message, root[0].get("name")):
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202e\u2066\ufffe\uffff\ud800]", shown)
    assert {element.tag for element in root.iter()} == {
        *("testsuites", "testsuite", "properties", "testcase", "failure", "system-out", "system-err"),
    }


def test_hostile_labels_of_runs_are_text():
    label = "<x>\x1b\ufffe"
    found = compare([(label, [(label, runs.run([mine(1.0)]))]), ("b", [("b", runs.run([mine(1.0)]))])])
    assert cases(parsed(found))[0][1] == "mine (b) against mine (<x>\\x1b\\ufffe), lead 1 ms"
