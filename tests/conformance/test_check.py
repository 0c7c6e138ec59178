"""``mtp_bench.check``: cases and variants in a process of their own, whatever the variants do to it."""

from __future__ import annotations

import pytest

import mtp_bench
from mtp_bench import variants
from mtp_bench.conformance import runner
from mtp_bench.conformance.expectations import Expectations, Line
from mtp_bench.conformance.model import Outcome
from mtp_bench.errors import InputError

LOSSES = "tests.conformance.losses"


@pytest.fixture(scope="module")
def report():
    """Three cases of losses that kill the process, hang, and change Megatron, and of one that comes after them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_CASE_SECONDS", 8)
        names = [f"{LOSSES}:{name}" for name in ("aborts", "hangs", "replaces_roll", "right")]
        return mtp_bench.check([*names, "sync_free"], ["empty-shard", "no-sync-packed", "process-*"], "sim")


def results(report, variant):
    return {result.case.id: (result.status, result.detail) for result in report.of(variant)}


def test_a_loss_that_kills_the_process_fails_and_the_rest_goes_on(report):
    assert results(report, f"{LOSSES}:aborts") == {
        "empty-shard": ("failed", "it ended the process: killed by SIGABRT"),
        "process-unchanged": ("failed", "not run: it ended the process in empty-shard"),
        "no-sync-packed": ("failed", "not run: it ended the process in empty-shard"),
    }
    assert results(report, f"{LOSSES}:right") == dict.fromkeys(
        ("empty-shard", "process-unchanged", "no-sync-packed"), ("passed", "")
    )


def test_a_loss_that_never_returns_is_ended(report):
    found = results(report, f"{LOSSES}:hangs")
    assert found["empty-shard"] == ("failed", "it ended the process: it took more than 8 s")


def test_what_a_loss_does_to_megatron_is_its_failure_and_undone(report):
    found = {result.case.id: result for result in report.of(f"{LOSSES}:replaces_roll")}
    assert found["process-unchanged"].observed == {
        "process_changed": ["megatron.core.transformer.multi_token_prediction.roll_tensor"]
    }
    # sync_free rolls by Megatron's own loop: its syncs are there only if that roll is back.
    of_megatrons_roll = next(result for result in report.of("sync_free") if result.case.id == "no-sync-packed")
    assert of_megatrons_roll.status == "failed"


def test_results_come_in_the_order_of_variants_and_cases(report):
    assert report.variants == [
        *(f"{LOSSES}:{name}" for name in ("aborts", "hangs", "replaces_roll", "right")),
        "sync_free",
    ]
    assert [case.id for case in report.cases] == ["empty-shard", "process-unchanged", "no-sync-packed"]
    assert report.device == "sim:h100"
    assert report.passed is False


class Silent:
    """A worker that has found its device, passes every case, and takes no time."""

    spec = "sim:h100"

    def __init__(self, device, module):
        assert (device, module) == ("auto", "mtp_bench.conformance.worker")
        self.events = []

    def send(self, job):
        for variant, cases in job["left"].items():
            self.events.append({"event": "loaded", "variant": variant, "version": ""})
            for case in cases:
                self.events.append({"event": "stage", "variant": variant, "case": case})
                self.events.append({"event": "outcome", "variant": variant, "case": case, **vars(Outcome("passed"))})
        self.events.append({"event": "done"})

    def receive(self):
        return self.events.pop(0)

    def close(self):
        pass


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(runner, "WorkerProcess", Silent)


def test_all_variants_and_all_cases_of_one_rank_by_default(silent):
    found = mtp_bench.check(ranks=False)
    assert found.variants == list(variants.available_names())
    assert [case.id for case in found.cases] == [case.id for case in runner.all_cases() if case.ranks is None]
    assert found.passed


def test_cases_are_chosen_by_id_and_by_pattern(silent):
    found = mtp_bench.check(["patched"], ["no-sync*", "empty-shard"])
    assert [case.id for case in found.cases] == ["empty-shard", "no-sync", "no-sync-empty", "no-sync-packed"]


def test_progress_is_told(silent):
    told = []
    mtp_bench.check(["patched"], ["no-sync*"], progress=lambda *what: told.append(what))
    assert told == [(0, 3, "patched no-sync"), (1, 3, "patched no-sync-empty"), (2, 3, "patched no-sync-packed")]


def test_what_should_fail_and_passes_is_no_pass(silent):
    expected = Expectations((Line("patched", "no-*", "file:1"),))
    found = mtp_bench.check(["patched"], ["no-sync", "empty-shard"], expect_fail=expected)
    assert [(result.case.id, result.unexpected) for result in found.results] == [
        ("empty-shard", False),
        ("no-sync", True),
    ]
    assert found.passed is False


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"cases": ["empty-shart"]}, "--case empty-shart: no such case; did you mean 'empty-shard'?"),
        ({"variants": ["pached"]}, "--variant pached: no such variant; did you mean 'patched'?"),
        (
            {"variants": "patched"},
            "variants = 'patched': expected a list of names, as in ['patched', 'my_pkg.loss:fn']",
        ),
        (
            {"cases": "no-sync"},
            "cases = 'no-sync': expected a list of ids or patterns, as in ['no-sync*', 'log-mean']",
        ),
        ({"cases": []}, "cases = []: expected a list of ids or patterns, as in ['no-sync*', 'log-mean']"),
    ],
)
def test_bad_input_is_told_before_anything_runs(asked, message, silent):
    with pytest.raises(InputError) as raised:
        mtp_bench.check(**asked)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("# all is well\n\n", []),
        ("original empty-shard  # verl #6464\nmine:loss  no-*\n", [("original", "empty-shard"), ("mine:loss", "no-*")]),
    ],
)
def test_a_file_of_known_failures(text, lines, tmp_path):
    file = tmp_path / "known.txt"
    file.write_text(text)
    found = Expectations.read(file)
    assert [(line.variant, line.cases) for line in found.lines] == lines


def test_a_pattern_of_known_failures_is_of_its_variant_alone():
    found = Expectations((Line("original", "empty-*", "x:1"),))
    assert found.names("original", "empty-shard")
    assert not found.names("original", "no-sync")
    assert not found.names("patched", "empty-shard")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("original", "known.txt:1: 'original': expected variant and case, as in `original empty-*`"),
        ("a b c\n", "known.txt:1: 'a b c': expected variant and case, as in `original empty-*`"),
        ("\noriginal emty-shard", "known.txt:2: no such case 'emty-shard'; did you mean 'empty-shard'?"),
        ("original empty-x*", "known.txt:1: no such case 'empty-x*'; did you mean 'empty-shard'?"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "known.txt").write_text(text)
    with pytest.raises(InputError) as raised:
        Expectations.read((tmp_path / "known.txt").relative_to(tmp_path))
    assert str(raised.value) == message


def test_a_variant_in_the_file_that_does_not_exist_is_named(silent):
    with pytest.raises(InputError) as raised:
        mtp_bench.check(["patched"], expect_fail=Expectations((Line("orginal", "empty-shard", "known.txt:3"),)))
    assert str(raised.value) == "known.txt:3: no such variant 'orginal'; did you mean 'original'?"


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"--expect-fail .*none.txt: cannot be read: .*No such file"):
        Expectations.read(tmp_path / "none.txt")
