"""``mtp-bench check`` from outside: what it prints where, and its exit codes."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from mtp_bench import cli
from mtp_bench.conformance import all_cases, runner
from mtp_bench.conformance.results import Report
from tests.conformance.test_reports import REPORT


@pytest.fixture
def check(monkeypatch, tmp_path):
    """Run the command in an empty folder; ``check.report`` is what is found, ``check.asked`` what was asked for."""
    monkeypatch.chdir(tmp_path)

    def found(variants, cases, device, **asked):
        call.asked = {"variants": variants, "cases": cases, "device": device, **asked}
        return call.report

    monkeypatch.setattr(runner, "check", found)

    def call(*arguments):
        return CliRunner().invoke(cli.app, ["check", *arguments], env={"COLUMNS": "80"})

    call.report, call.asked = REPORT, None
    return call


def test_what_is_asked_for(check, tmp_path):
    (tmp_path / "known.txt").write_text("original no-sync\n")
    check("--variant", "original", "--variant", "a:b", "--case", "no-*", "--no-ranks", "--expect-fail", "known.txt")
    asked = check.asked
    assert (asked["variants"], asked["cases"], asked["device"], asked["ranks"]) == (
        ["original", "a:b"],
        ["no-*"],
        "auto",
        False,
    )
    assert asked["expect_fail"].names("original", "no-sync")


def test_by_default_everything_and_on_ranks(check):
    check()
    assert (check.asked["variants"], check.asked["cases"], check.asked["ranks"]) == (None, None, True)


def test_a_failure_is_exit_code_1_and_a_line_on_standard_error(check):
    done = check()
    assert done.exit_code == 1
    assert done.stderr == "error: 1 failure and 1 unexpectedly passed in 3 cases of 2 variants\n"
    assert "empty-shard  FAIL      FIXED" in done.stdout


def test_a_pass_is_exit_code_0_without_a_word_on_standard_error(check):
    check.report = Report(REPORT.results[1:3], "sim:h100", {})
    done = check()
    assert (done.exit_code, done.stderr) == (0, "")
    assert "no unexpected result in 2 cases of 1 variant\n" in done.stdout


@pytest.mark.parametrize("asked", [["--json"], ["--format", "json"]])
def test_json_is_one_document(asked, check):
    done = check(*asked)
    assert json.loads(done.stdout)["cases"][0]["id"] == "empty-shard"
    assert done.exit_code == 1


def test_markdown_and_junit(check):
    assert check("--format", "markdown").stdout.startswith("# mtp-bench check\n")
    assert ElementTree.fromstring(check("--format", "junit").stdout.encode()).tag == "testsuites"


def test_two_formats_at_once_are_an_input_error(check):
    done = check("--json", "--format", "junit")
    assert (done.exit_code, done.stderr) == (2, "error: --json and --format junit: choose one of them\n")


def test_a_file_of_known_failures_that_is_not_there_is_an_input_error(check):
    done = check("--expect-fail", "none.txt")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: --expect-fail none.txt: cannot be read: ")


def test_every_case_is_listed_with_what_it_is_about():
    lines = CliRunner().invoke(cli.app, ["list", "checks"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [case.id for case in all_cases()]
    (empty,) = [line for line in lines if line.startswith("empty-shard ")]
    assert empty.split(maxsplit=1)[1] == (
        "a microbatch without a single target (values); Megatron-LM #3396, mcore-bridge #104, verl #6464"
    )


@pytest.fixture
def real(monkeypatch, tmp_path):
    """The command as it is, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(
        cli.app, ["check", "--device", "sim", *arguments], env={"COLUMNS": "80"}
    )


def test_known_failures_pass_and_the_same_check_without_them_fails(real, tmp_path):
    (tmp_path / "known.txt").write_text("patched no-sync*  # the guard\n")
    asked = ("--variant", "patched", "--case", "no-sync*", "--case", "empty-shard")
    known = real(*asked, "--expect-fail", "known.txt")
    assert (known.exit_code, known.stderr) == (0, "")
    assert "patched 0.1.0: 1 passed, 3 failed (3 of the failures expected)\n" in known.stdout
    assert real(*asked).exit_code == 1


def test_a_loss_with_another_signature_is_told_the_one_that_is_expected(real):
    done = real("--variant", "tests.conformance.losses:mean_loss")
    assert done.exit_code == 2
    assert done.stderr == (
        "error: --variant tests.conformance.losses:mean_loss: its argument 'logits' is none of process_mtp_loss's "
        "keyword arguments: hidden_states, labels, loss_mask, output_layer, output_weight, runtime_gather_output, "
        "is_training, compute_language_model_loss, config, cp_group, tp_group, packed_seq_params, scale_logits_fn, "
        "input_ids; wrap it in a function that takes those it needs and returns hidden_states, as in docs/check.md\n"
    )
