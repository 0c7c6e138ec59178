"""A check as it is read: the matrix, and each failing case as a report of a bug, in four formats."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from rich.console import Console

from mtp_bench.conformance.model import Affected, Case, Definition, Inputs, Ranks, Reference
from mtp_bench.conformance.results import Report, Result
from mtp_bench.report import conformance_junit, conformance_markdown, conformance_terminal
from mtp_bench.report.conformance_view import CheckView, call, given, value
from tests.report.reading import HOSTILE, shown_text

EMPTY = Case(
    id="empty-shard",
    title="no target",
    fault="The log is NaN.",
    property="values",
    inputs=Inputs(labels=[[5, 6]], loss_mask=[[1, 0]], per_token=False),
    expected={"coefficients": [[[0.0, 0.0]]], "logged": [0.0]},
    arithmetic="0 over 0 is 0.",
    references=(Reference("verl", 6464),),
    affected=(Affected("verl", until="0.8.0"),),
)
SYNC = Case(
    id="no-sync",
    title="no host read",
    fault="The host waits.",
    property="syncs",
    inputs=Inputs(labels=[[5, 6]], loss_mask=[[1, 1]]),
    expected={"syncs": []},
    arithmetic="Counts stay on the device.",
)
TAIL = Case(
    id="packed-tail",
    title="a tail",
    fault="What is behind the end?",
    property="values",
    inputs=Inputs(labels=[[1, 2, 3]], loss_mask=[[1, 1, 1]], cu_seqlens=[0, 2]),
    definitions=(
        Definition("kept", "it stays", {"targets": [[[2, 0, 3]]]}),
        Definition("masked", "it is left out", {"targets": [[[2, 0, 0]]]}),
    ),
    arithmetic="The sequence is [1, 2].",
)
NAN = {"coefficients": [[["nan", "nan"]]], "logged": ["nan"]}
ZERO = {"coefficients": [[[0.0, 0.0]]], "logged": [0.0]}
GUARD = {"syncs": ["1 x loss.py:3 in loss (item): if num_tokens > 0:"]}

RESULTS = [
    Result(EMPTY, "original", "0.1.0", "failed", NAN, ZERO, EMPTY.fault),
    Result(SYNC, "original", "0.1.0", "passed", {"syncs": []}, {"syncs": []}),
    Result(TAIL, "original", "0.1.0", "follows", {"targets": [[[2, 0, 3]]]}, {}, "kept: it stays"),
    Result(EMPTY, "mine:loss", "1", "passed", ZERO, ZERO, expected_failure=True),
    Result(SYNC, "mine:loss", "1", "failed", GUARD, {"syncs": []}, SYNC.fault, expected_failure=True),
    Result(TAIL, "mine:loss", "1", "not_applicable", detail="it takes no packed_seq_params"),
]
REPORT = Report(RESULTS, "sim:h100", {"mtp_bench": "0.1.0", "torch": "2.13.0", "megatron_core": "0.16.1", "verl": ""})


def terminal(report=REPORT, width=80):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(conformance_terminal.check_report(CheckView(report), width), crop=False)
    return console.file.getvalue()


def test_the_terminal_in_80_columns():
    assert terminal().splitlines() == [
        "mtp-bench 0.1.0 check on sim:h100, torch 2.13.0, megatron-core 0.16.1",
        "1 failure and 1 unexpectedly passed in 3 cases of 2 variants",
        "",
        "original 0.1.0: 1 passed, 1 failed, 1 following a definition",
        "mine:loss 1: 1 passed, 1 failed, 1 not applicable (1 of the failures expected)",
        "",
        "case         original  mine:loss",
        "────────────────────────────────",
        "empty-shard  FAIL      FIXED",
        "no-sync      ok        known",
        "packed-tail  def       -",
        "",
        "ok: passes. FAIL: fails. known: fails as expected. FIXED: passes unexpectedly. def: follows a definition, "
        "see below. -: does not apply.",
        "",
        "empty-shard: no target",
        "fails: original",
        "The log is NaN.",
        "  given labels 5, 6; loss_mask 1, 0; lambda 1; calculate_per_token_loss=False",
        "  seen  losses multiplied by nan, nan; logged loss nan",
        "  right losses multiplied by 0, 0; logged loss 0. 0 over 0 is 0.",
        "  see   verl #6464: https://github.com/verl-project/verl/issues/6464",
        "  in    verl up to 0.8.0",
        "",
        "no-sync: no host read",
        "fails: mine:loss",
        "The host waits.",
        "  given labels 5, 6; loss_mask 1, 1; lambda 1; calculate_per_token_loss=True",
        "  seen  1 x loss.py:3 in loss (item): if num_tokens > 0:",
        "  right syncs none. Counts stay on the device.",
        "",
        "passed, although --expect-fail names them: take them out of the file",
        "mine:loss empty-shard",
        "",
        "where people disagree: the definition that is followed",
        "packed-tail: original: kept: it stays",
        "",
        "does not apply",
        "packed-tail: mine:loss: it takes no packed_seq_params",
    ]


def test_the_passed_cases_of_one_variant_are_listed_and_there_is_no_matrix():
    lines = terminal(Report(RESULTS[:3], "sim", {})).splitlines()
    assert lines[-2:] == ["passed", "no-sync"]
    assert not any(line.startswith("case ") for line in lines)


def test_variants_stand_under_numbers_where_names_do_not_fit():
    lines = terminal(width=30).splitlines()
    assert lines[6:12] == [
        "1 original, 2 mine:loss",
        "",
        "case         1     2",
        "────────────────────────",
        "empty-shard  FAIL  FIXED",
        "no-sync      ok    known",
    ]


@pytest.mark.parametrize("width", [40, 80, 140])
def test_no_table_is_wider_than_the_terminal(width):
    many = [
        Result(EMPTY, f"my_package.losses:variant_{number}", "1", "failed", NAN, ZERO, EMPTY.fault)
        for number in range(20)
    ]
    lines = terminal(Report(many, "sim", {}), width).splitlines()
    of_table = [line for line in lines if line.startswith(("case", "empty-shard  "))]
    assert len(of_table) >= 2
    assert max(map(len, of_table)) <= width
    assert sum(line.count("FAIL") for line in of_table) == 20


def test_variants_in_which_the_same_was_seen_stand_together():
    other = {"coefficients": [[[1.0, 0.0]]], "logged": [0.0]}
    seen = [("a", NAN), ("b", other), ("c", NAN)]
    results = [Result(EMPTY, name, "1", "failed", observed, ZERO, EMPTY.fault) for name, observed in seen]
    lines = terminal(Report(results, "sim", {})).splitlines()
    assert [line for line in lines if "seen" in line] == [
        "  seen  losses multiplied by nan, nan; logged loss nan (a, c)",
        "  seen  losses multiplied by 1, 0; logged loss 0 (b)",
    ]
    in_markdown = conformance_markdown.check_report(CheckView(Report(results, "sim", {}))).splitlines()
    assert [line for line in in_markdown if "seen" in line] == [
        "- seen of `a`, `c`: losses multiplied by nan, nan; logged loss nan",
        "- seen of `b`: losses multiplied by 1, 0; logged loss 0",
    ]


def test_what_ended_a_case_stands_where_nothing_was_seen():
    died = Result(EMPTY, "a", "1", "failed", None, None, "it ended the process: killed by SIGABRT")
    assert "  seen  it ended the process: killed by SIGABRT\n" in terminal(Report([died], "sim", {}))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_a_report(name):
    hostile = Report([Result(EMPTY, name, name, "failed", None, None, name)], name, {})
    assert "\x1b" not in terminal(hostile)
    assert "empty-shard" in shown_text(conformance_markdown.check_report(CheckView(hostile)))
    ElementTree.fromstring(conformance_junit.check_report(CheckView(hostile)).encode())
    json.loads(hostile.to_json())


def test_markdown():
    assert conformance_markdown.check_report(CheckView(REPORT)).splitlines() == [
        "# mtp-bench check",
        "",
        "mtp-bench 0.1.0 check on sim:h100, torch 2.13.0, megatron-core 0.16.1",
        "",
        "**1 failure and 1 unexpectedly passed in 3 cases of 2 variants**",
        "",
        "- original 0.1.0: 1 passed, 1 failed, 1 following a definition",
        "- mine:loss 1: 1 passed, 1 failed, 1 not applicable (1 of the failures expected)",
        "",
        "## Cases",
        "",
        "ok: passes. FAIL: fails. known: fails as expected. FIXED: passes unexpectedly. def: follows a definition, "
        "see below. -: does not apply.",
        "",
        "| case | original | mine:loss |",
        "|---|---|---|",
        "| `empty-shard` | FAIL | FIXED |",
        "| `no-sync` | ok | known |",
        "| `packed-tail` | def | - |",
        "",
        "## Failures",
        "",
        "### `empty-shard`: no target",
        "",
        "Fails: `original`. The log is NaN.",
        "",
        "- given: labels 5, 6; `loss_mask` 1, 0; lambda 1; `calculate_per_token_loss=False`",
        "- seen: losses multiplied by nan, nan; logged loss nan",
        "- right: losses multiplied by 0, 0; logged loss 0. 0 over 0 is 0.",
        "- reported in [verl #6464](https://github.com/verl-project/verl/issues/6464)",
        "- in verl up to 0.8.0",
        "",
        "### `no-sync`: no host read",
        "",
        "Fails: `mine:loss`. The host waits.",
        "",
        "- given: labels 5, 6; `loss_mask` 1, 1; lambda 1; `calculate_per_token_loss=True`",
        "- seen: 1 x loss.py:3 in loss (item): if `num_tokens` > 0:",
        "- right: syncs none. Counts stay on the device.",
        "",
        "",
        "## Passed, although `--expect-fail` names them",
        "",
        "- mine:loss empty-shard",
        "",
        "<details><summary>Where people disagree: the definition that is followed</summary>",
        "",
        "- packed-tail: original: kept: it stays",
        "",
        "</details>",
        "",
        "<details><summary>Does not apply</summary>",
        "",
        "- packed-tail: `mine:loss`: it takes no `packed_seq_params`",
        "",
        "</details>",
    ]


def test_markdown_is_cut_to_fit_a_review():
    cases = [replace(EMPTY, id=f"case-{number}") for number in range(30)]
    many = [Result(case, "mine", "1", "failed", NAN, ZERO, case.fault) for case in cases]
    text = conformance_markdown.check_report(CheckView(Report(many, "sim", {})), limit=4_000)
    assert len(text) < 4_000
    assert "of 30 failing cases left out here to fit a review; `mtp-bench check` prints everything." in text


def junit(report=REPORT):
    return ElementTree.fromstring(conformance_junit.check_report(CheckView(report)).encode())


def test_junit_has_a_suite_a_variant_and_a_test_a_case():
    root = junit()
    counts = ("name", "tests", "failures", "errors", "skipped")
    assert [tuple(suite.get(key) for key in counts) for suite in root] == [
        ("original", "3", "1", "0", "0"),
        ("mine:loss", "3", "1", "0", "2"),
    ]
    outcomes = [
        (
            case.get("classname"),
            case.get("name"),
            one.tag if one is not None else "passed",
            one.get("type") if one is not None else "",
        )
        for case in root.iter("testcase")
        for one in [next(iter(case), None)]
    ]
    assert outcomes == [
        ("mtp-bench.check.original", "empty-shard", "failure", "case failed"),
        ("mtp-bench.check.original", "no-sync", "passed", ""),
        ("mtp-bench.check.original", "packed-tail", "passed", ""),
        ("mtp-bench.check.mine:loss", "empty-shard", "failure", "unexpectedly passed"),
        ("mtp-bench.check.mine:loss", "no-sync", "skipped", "expected failure"),
        ("mtp-bench.check.mine:loss", "packed-tail", "skipped", "does not apply"),
    ]


def test_junit_tells_what_the_terminal_tells():
    root = junit()
    assert root.find(".//failure").text.splitlines() == [
        "no target: The log is NaN.",
        "given: labels 5, 6; loss_mask 1, 0; lambda 1; calculate_per_token_loss=False",
        "seen: losses multiplied by nan, nan; logged loss nan",
        "right: losses multiplied by 0, 0; logged loss 0. 0 over 0 is 0.",
        "see: verl #6464: https://github.com/verl-project/verl/issues/6464",
        "in: verl up to 0.8.0",
    ]
    assert root[0].find("system-out").text.splitlines()[-1] == "packed-tail follows kept: it stays"


def test_json_has_the_names_that_scripts_rely_on():
    document = json.loads(REPORT.to_json())
    assert {key: found for key, found in document.items() if key != "cases"} == {
        "schema_version": 1,
        "device": "sim:h100",
        "environment": {"mtp_bench": "0.1.0", "torch": "2.13.0", "megatron_core": "0.16.1", "verl": ""},
        "passed": False,
    }
    assert document["cases"][0] == {
        "id": "empty-shard",
        "variant": "original",
        "version": "0.1.0",
        "status": "failed",
        "observed": {"coefficients": [[["nan", "nan"]]], "logged": ["nan"]},
        "expected": {"coefficients": [[[0.0, 0.0]]], "logged": [0.0]},
        "detail": "The log is NaN.",
        "references": [{"project": "verl", "number": 6464, "url": "https://github.com/verl-project/verl/issues/6464"}],
        "title": "no target",
        "property": "values",
        "ranks": 1,
        "expected_failure": False,
    }


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([[[1.0, 0.0]]], "1, 0"),
        ([[[1.0, 0.0]], [[0.5, 0.0]]], "[1, 0], [0.5, 0]"),
        ([[[1, 2], [3, 4]]], "[1, 2], [3, 4]"),
        ([[[1]], [[2]]], "1, 2"),
        ([], "none"),
        (True, "yes"),
        (False, "no"),
        ([[3.0, 3.0]], "3, 3"),
        ("nan", "nan"),
    ],
)
def test_values_have_no_brackets_that_say_nothing(found, words):
    assert value(found) == words


def test_a_call_names_what_is_not_plain():
    inputs = Inputs(
        labels=None,
        loss_mask=None,
        input_ids=[[1, 2]],
        depths=2,
        scaling_factor=0.1,
        mask_dtype="bool",
        labels_dtype="int32",
        layout="expanded",
        loss="cross_entropy",
        logits_factor=2.0,
        training=False,
        loss_scale=8.0,
        microbatches=2,
        steps=10,
        config={"mtp_detach_heads": True},
    )
    assert call(inputs) == (
        "input_ids 1, 2; loss_mask None; depths 2; lambda 0.1; calculate_per_token_loss=True; mask in bool; "
        "labels in int32; expanded labels and mask; uniform logits over 4 tokens; logits times 2; is_training=False; "
        "loss scale 8; 2 microbatches; 10 steps; mtp_detach_heads=True"
    )


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (None, ""),
        (Ranks(data_parallel=2), "; 2 data-parallel ranks with a row each"),
        (Ranks(context_parallel=4), "; 4 context-parallel ranks, zigzag"),
        (
            Ranks(data_parallel=2, context_parallel=2, split="contiguous"),
            "; 2 data-parallel ranks with a row each; 2 context-parallel ranks, contiguous",
        ),
    ],
)
def test_the_ranks_of_a_case_are_part_of_what_is_given(ranks, words):
    assert given(replace(EMPTY, ranks=ranks)) == f"{call(EMPTY.inputs)}{words}"


def test_cases_are_listed_and_reports_made_without_torch():
    code = (
        "import sys; from mtp_bench.conformance import all_cases; all_cases(); "
        "import mtp_bench.conformance.runner, mtp_bench.cli.check; "
        "from mtp_bench.report import conformance_terminal, conformance_markdown, conformance_junit; "
        "print({'torch', 'megatron.core', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
