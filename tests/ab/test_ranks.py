"""Two ranks over Gloo, data-parallel or stages of a pipeline: they begin together, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.torchrun import torchrun

SCRIPT = Path(__file__).with_name("ranks.py")
PLANTED = "tests.ab.planted:"


@pytest.fixture
def ranks(tmp_path):
    """What both ranks say of themselves."""

    def run(how, *variants):
        printed = torchrun(2, SCRIPT, how, ",".join(variants), tmp_path / "ab")
        found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        assert [one["rank"] for one in found] == [0, 1]
        assert [(one["same"], one["restored"]) for one in found] == [(True, True)] * 2
        return found

    return run


def test_ranks_of_a_job_begin_and_end_together(ranks, tmp_path):
    found = ranks("plainly", "original", "sync_free")
    assert [one["folder"] for one in found] == [str(tmp_path / "ab" / f"rank-{rank}") for rank in (0, 1)]
    runs = [one["run"] for one in found]
    assert len({run["job"]["id"] for run in runs}) == 1
    for rank, run in enumerate(runs):
        assert (run["job"]["rank"], run["job"]["world_size"], run["job"]["parallel"]["dp"]) == (rank, 2, [rank, 2])
        assert (run["job"]["windows"], run["job"]["iterations"], run["job"]["ended"]) == (8, 18, "done")
        assert [result["time"]["round"] for result in run["results"]] == [[0, 1, 2, 3]] * 2
    assert runs[0]["workloads"] == runs[1]["workloads"]
    assert [one["said"] for one in found] == [[], []]


def test_where_one_rank_cannot_take_part_none_does(ranks):
    name = PLANTED + "raises_on_rank_1"
    found = ranks("plainly", "original", name)
    reason = f"rank 1: {name} raised ValueError: planted"
    assert [one["refusal"] for one in found] == [reason] * 2
    assert [one["said"] for one in found] == [[f"mtp_bench.ab: no experiment: {reason}"]] * 2
    assert [one["run"]["job"]["ended"] for one in found] == [f"refused: {reason}"] * 2
    assert [[result["status"] for result in one["run"]["results"]] for one in found] == [["failed"] * 2] * 2
    assert found[0]["run"]["results"][1]["gradients"]["status"] == "equal"


def test_ranks_that_were_called_with_different_arguments_do_not_begin(ranks):
    """In one window each would run another variant, and wait for messages that the other never sends."""
    found = ranks("rank 1 asks for another order", "original", "sync_free")
    asked = [
        f"variants={names}, steps=16, window=2, seed=1234"
        for names in (["original", "sync_free"], ["sync_free", "original"])
    ]
    refusals = {one["refusal"] for one in found}
    said = [f"rank {rank}: mtp_bench.ab has {asked[rank]}, another rank {asked[1 - rank]}" for rank in (0, 1)]
    assert refusals in [{f"{text}: call it alike on every rank"} for text in said]  # whichever comes second says so


def test_a_rank_that_does_not_take_part_keeps_the_others_for_a_while_and_no_more(ranks):
    called, silent = ranks("rank 1 does not call", "original", "sync_free")
    reason = (
        "not all 2 ranks had called mtp_bench.ab and come to their third iteration within 1 s of rank 0: call it on "
        "every rank"
    )
    assert (called["refusal"], called["run"]["job"]["ended"]) == (reason, f"refused: {reason}")
    assert (silent["refusal"], silent["run"], silent["said"]) == (None, None, [])


def test_a_rank_that_fails_later_ends_the_others(ranks):
    name = PLANTED + "raises_on_rank_1_in_its_third_call"
    other, failed = ranks("slowly", name)
    reason = f"{name} raised ValueError: planted"
    assert (failed["refusal"], failed["run"]["job"]["ended"]) == (reason, f"failed: {reason}")
    assert (other["refusal"], other["run"]["job"]["ended"]) == (f"rank 1: {reason}", f"failed: rank 1: {reason}")
    assert 1 <= other["run"]["job"]["windows"] < 8
    assert other["run"]["results"][0]["status"] == "ok"
    assert other["run"]["results"][0]["warnings"] == [f"rank 1: {reason}"]


def test_stages_of_a_pipeline(tmp_path):
    """The first has no loss: it reports its own step times, drawn as those of the last one."""
    printed = torchrun(2, SCRIPT.with_name("stages.py"), tmp_path)
    first, last = (json.loads(line) for line in printed.splitlines() if line.startswith("{"))
    assert (first["same"], last["same"], last["losses"]) == (True, True, 10)
    for rank, stage in enumerate((first, last)):
        assert (stage["rank"], stage["job"]["parallel"]["pp"]) == (rank, [rank, 2])
        assert (stage["job"]["windows"], stage["job"]["ended"]) == (4, "done")
    assert [stage["job"]["has_loss"] for stage in (first, last)] == [False, True]
    assert [stage["gradients"] for stage in (first, last)] == [[None, None], ["equal", "equal"]]
    assert [stage["loss_ns"] for stage in (first, last)] == [[False, False], [True, True]]
    assert first["job"]["id"] == last["job"]["id"]
