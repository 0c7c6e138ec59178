"""Cases across ranks: what each variant does to counts and targets that several ranks have together.

All variants run in one launch of four processes, but for those that end a process: another launch goes on after them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mtp_bench.conformance import all_cases, rank_runner, rank_worker
from mtp_bench.conformance.model import Case, Inputs, Observation, Ranks
from mtp_bench.conformance.rank_runner import run_on_ranks
from mtp_bench.conformance.shares import share, together
from mtp_bench.errors import RunError

CASES = [case for case in all_cases() if case.ranks is not None]

_DP_COUNTS = {"dp-counts", "dp-counts-4", "cp-dp-counts"}
_CP_COUNTS = {"cp-counts", "cp-counts-4", "cp-lost-target", "cp-mean", "cp-dp-counts", "cp-packed-counts"}
_PADDING = {"cp-packed-padding"}
_SPLIT = {"cp-contiguous"}
_SYNCS = {"cp-packed-syncs"}
_EMPTY = {"dp-empty-shard", "log-empty-rank"}

FAILING = {
    "exact": set(),
    "rank_mutants:counts_of_one_data_parallel_rank": _DP_COUNTS,
    # In cp-dp-counts each half of the sequences has 3 tokens and 2 targets.
    "rank_mutants:counts_of_one_context_parallel_rank": _CP_COUNTS - {"cp-dp-counts"},
    "rank_mutants:means_not_multiplied_by_cp_size": {"cp-mean"},
    "rank_mutants:zigzag_whatever_is_said": _SPLIT,
    "rank_mutants:over_padding": _PADDING,
    "rank_mutants:asking_the_host": _SYNCS,
    "boundary_roll": _DP_COUNTS | _CP_COUNTS | _PADDING | _SPLIT,
    "patched": _DP_COUNTS | _CP_COUNTS | _PADDING | _SPLIT | _SYNCS | {"cp-packed-empty"},
    # Without rescaling no target is lost on a rank without tokens, and none has the right weight.
    "original": _DP_COUNTS
    | _CP_COUNTS - {"cp-lost-target"}
    | _PADDING
    | _SPLIT
    | _SYNCS
    | _EMPTY
    | {"cp-packed-empty"},
}
DYING = ["rank_mutants:raising_on_one_rank", "rank_mutants:ending_one_rank"]


@pytest.fixture(scope="module")
def outcomes():
    with pytest.MonkeyPatch.context() as patches:
        patches.syspath_prepend(Path(__file__).parent)
        return run_on_ranks([*FAILING, "rank_mutants:targets_of_one_rank"], CASES, "sim")


@pytest.fixture(scope="module")
def after_dying():
    """A case of variants that leave the other rank behind, and then of one that is right."""
    cases = [case for case in CASES if case.id == "cp-counts"]
    with pytest.MonkeyPatch.context() as patches:
        patches.syspath_prepend(Path(__file__).parent)
        return run_on_ranks([*DYING, "exact"], cases, "sim")


@pytest.mark.parametrize("variant", FAILING)
def test_what_is_missing_shows_in_its_cases_alone(variant, outcomes):
    failed = {case.id for case in CASES if outcomes[variant, case.id].status == "failed"}
    assert failed == FAILING[variant]


def test_targets_that_stay_on_a_rank_are_wrong_wherever_sequences_are_cut(outcomes):
    variant = "rank_mutants:targets_of_one_rank"
    assert {case: outcomes[variant, case].status for case in ("dp-counts", "cp-depths", "cp-packed")} == {
        "dp-counts": "passed",
        "cp-depths": "failed",
        "cp-packed": "failed",
    }


def test_what_was_observed_is_shown_as_one_row_of_all_ranks(outcomes):
    assert outcomes["patched", "cp-counts"].observed == {"coefficients": [[[2.0, 1.0, 1.0, 0.0]]]}
    assert outcomes["patched", "dp-counts"].observed == {
        "coefficients": [[[1.33333, 1.33333, 1.33333, 0.0], [2.0, 0.0, 0.0, 0.0]]]
    }
    assert outcomes["original", "cp-counts"].observed == {"coefficients": [[[1.0, 1.0, 1.0, 0.0]]]}
    assert outcomes["patched", "cp-lost-target"].observed["coefficients"] == [[[0.0, 0.0, 0.0, 0.0]]]


def test_whose_average_is_logged_is_a_definition(outcomes):
    def followed(variant):
        found = [outcomes[variant, case] for case in ("dp-mean", "log-average", "log-empty-rank", "cp-log")]
        return [one.detail.partition(":")[0] for one in found]

    assert followed("exact") == ["ranks", "targets", "targets", "targets"]
    assert followed("patched") == ["ranks", "ranks", "ranks", "ranks"]
    assert outcomes["original", "log-empty-rank"].observed == {"interval_average": ["nan"]}


def test_a_variant_that_leaves_a_rank_behind_fails_and_the_next_one_is_judged_as_ever(after_dying):
    raised = after_dying["rank_mutants:raising_on_one_rank", "cp-counts"]
    assert raised.status == "failed"
    assert "ValueError: not on this rank at rank_mutants.py" in raised.detail
    ended = after_dying["rank_mutants:ending_one_rank", "cp-counts"]
    assert (ended.status, ended.detail.partition(";")[0]) == ("failed", "rank 1 of 2 ended with exit code 9")
    assert after_dying["exact", "cp-counts"].status == "passed"


def test_what_follows_of_a_variant_that_ended_its_ranks_is_not_run(monkeypatch):
    asked = []

    def launch(target, job, *, ranks, time_limit_s):
        asked.append(job["cases"])
        Path(job["folder"], "found.0").write_text(json.dumps({"begun": job["cases"][0]}) + "\n")
        raise RunError("rank 1 of 2 was killed by SIGKILL")

    monkeypatch.setattr(rank_runner, "launch", launch)
    cases = [case for case in CASES if case.id in ("dp-counts", "dp-mean", "cp-counts")]
    found = run_on_ranks(["first", "second"], cases, "sim")
    killed, not_run = "rank 1 of 2 was killed by SIGKILL", "not run: it ended the ranks in dp-counts"
    assert {pair: (one.status, one.detail) for pair, one in found.items()} == {
        (name, case.id): ("failed", killed if case.id == "dp-counts" else not_run)
        for name in ("first", "second")
        for case in cases
    }
    assert [[name for name, _ in pairs] for pairs in asked] == [["first"] * 3 + ["second"] * 3, ["second"] * 3]


def test_a_rank_that_hangs_ends_before_the_others_give_up_and_after_those_who_wait_for_it():
    assert 2 * rank_worker._EXCHANGE_SECONDS < rank_runner.CASE_SECONDS < rank_worker._AGREE_SECONDS


_CASE = Case(
    id="test",
    title="",
    fault="",
    property="values",
    arithmetic="",
    inputs=Inputs(labels=[[1, 2, 3, 4], [5, 6, 7, 8]], loss_mask=[[1, 1, 1, 0], [0, 1, 1, 1]]),
    ranks=Ranks(data_parallel=2, context_parallel=2),
)


def test_ranks_share_rows_and_tokens():
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [share(_CASE, place).labels for place in places] == [[[1, 4]], [[2, 3]], [[5, 8]], [[6, 7]]]
    assert [share(_CASE, place).loss_mask for place in places] == [[[1, 0]], [[1, 1]], [[0, 1]], [[1, 1]]]


def test_packed_sequences_are_shared_one_by_one_and_contiguous_ones_by_the_row():
    inputs = Inputs(labels=[[1, 2, 3, 4, 11, 12, 13, 14]], loss_mask=[[1] * 8], cu_seqlens=[0, 4, 8])
    case = replace(_CASE, inputs=inputs, ranks=Ranks(context_parallel=2))
    assert [share(case, (0, rank)).labels for rank in (0, 1)] == [[[1, 4, 11, 14]], [[2, 3, 12, 13]]]
    contiguous = replace(case, ranks=Ranks(context_parallel=2, split="contiguous"))
    assert [share(contiguous, (0, rank)).labels for rank in (0, 1)] == [[[1, 2, 3, 4]], [[11, 12, 13, 14]]]


def test_what_ranks_saw_is_put_back_where_it_belongs():
    found = {
        (0, 0): Observation(coefficients=[[[1.0, 4.0]]], labels=[[[1, 4]]], syncs=["a"], interval_average=[2.0]),
        (0, 1): Observation(coefficients=[[[2.0, 3.0]]], labels=[[[2, 3]]], syncs=["b"], interval_average=[2.0]),
        (1, 0): Observation(coefficients=[[[5.0, 8.0]]], labels=[[[5, 8]]], syncs=["a"], interval_average=[2.0]),
        (1, 1): Observation(coefficients=[[[6.0, 7.0]]], labels=[[[6, 7]]], interval_average=[2.0]),
    }
    whole = together(_CASE, found)
    assert whole.coefficients == [[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]]
    assert whole.labels == [[[1, 2, 3, 4], [5, 6, 7, 8]]]
    assert (whole.syncs, whole.interval_average) == (["a", "b"], [2.0])
