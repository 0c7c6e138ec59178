"""``run --set cp_size=2``: real ranks, values of all of them together, and what each of them saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mtp_bench
from mtp_bench.errors import InputError
from mtp_bench.ranks.merge import merge_passes, merge_times
from mtp_bench.results import load_run
from mtp_bench.workloads import Workload

KEYS = {
    "sequences": [13, 6, 9],
    "packed": True,
    "mask": "prompt:0.3",
    "mtp_num_layers": 2,
    "calculate_per_token_loss": True,
    "hidden_size": 16,
    "vocab_size": 32,
    "num_attention_heads": 1,
    "params_dtype": "fp32",
    "cp_size": 2,
}
MEAN = {"packed": False, "calculate_per_token_loss": False}


@pytest.fixture(autouse=True, scope="module")
def _variants_of_a_user():
    with pytest.MonkeyPatch.context() as patches:
        patches.syspath_prepend(Path(__file__).parent)
        yield


def run(*variants, workloads=(("packed", {}), ("mean", MEAN)), out=None):
    chosen = [Workload.from_dict(name, KEYS | keys) for name, keys in workloads]
    found = mtp_bench.run(chosen, list(variants), device="sim", leads_ms=[0], out=out)
    return {(result.workload, result.variant): result for result in found.results}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def found(folder):
    return run("patched", "host_lens", "exact", "megatron", "rank_variants:reads_on_one", out=folder)


@pytest.mark.parametrize("workload", ["packed", "mean"])
def test_only_exact_has_the_gradient_and_the_log_of_the_unsplit_reference(workload, found):
    names = ("patched", "host_lens", "exact", "megatron")
    values = {name: found[workload, name].numerics for name in names}
    assert {name: of.status for name, of in values.items()} == {
        "patched": "differs",
        "host_lens": "differs",
        "exact": "close",
        "megatron": "differs",
    }
    assert values["exact"].grad_scale == pytest.approx(1, abs=1e-6)
    assert values["exact"].max_rel_err_grad < 1e-6
    assert values["exact"].logged_loss == pytest.approx(values["exact"].reference_loss, rel=1e-6)
    assert "the logged loss is off at depth 1, 2" in values["patched"].detail


def test_a_result_is_that_of_the_rank_where_it_is_worst_and_has_all_of_them(found):
    result = found["packed", "rank_variants:reads_on_one"]
    assert [rank.rank for rank in result.ranks] == [0, 1]
    assert [rank.syncs.count for rank in result.ranks] == [0, 2]
    assert [(site.function, site.count) for site in result.syncs.sites] == [("reads_on_one", 1), ("reads_on_one", 1)]
    assert [rank.graph_capture.possible for rank in result.ranks] == [True, False]
    assert not result.graph_capture.possible
    steps = [rank.time.step_ns[0] for rank in result.ranks]
    assert result.time.step_ns == [max(steps)]
    assert steps[1] > steps[0]
    assert [rank.numerics for rank in result.ranks] == [result.numerics] * 2


def test_exact_and_the_packed_rolls_have_no_sync_on_any_rank(found):
    for name in ("exact", "host_lens"):
        assert [rank.syncs.count for rank in found["packed", name].ranks] == [0, 0]
    loops = [rank.syncs.count for rank in found["packed", "megatron"].ranks]
    assert min(loops) >= 4 * 3 * 2 * 2  # bounds, sequences, tensors, depths


def test_run_json_keeps_every_rank_and_is_read_back(found, folder):
    kept = load_run(folder)
    assert {(result.workload, result.variant): result for result in kept.results} == found
    first = json.loads((folder / "run.json").read_text())["results"][0]
    assert set(first["ranks"][0]) == {"rank", "numerics", "syncs", "graph_capture", "ops", "memory", "time"}


def test_a_run_of_one_rank_has_no_ranks():
    alone = mtp_bench.run([Workload.from_dict("one", KEYS | {"cp_size": 1})], ["exact"], device="sim", leads_ms=[0])
    assert alone.results[0].ranks is None
    assert "ranks" not in json.loads(alone.to_json())["results"][0]


def test_a_rank_that_fails_alone_is_the_result_of_its_variant_and_the_next_one_is_measured():
    found = run("rank_variants:raises_on_one", "rank_variants:ends_one", "exact", workloads=[("packed", {})])
    errors = {name: (result.status, result.error) for (_, name), result in found.items()}
    status, error = errors["rank_variants:raises_on_one"]
    assert (status, error.partition(" at ")[0]) == (
        "failed",
        "during values: rank 1 of 2: ValueError: not on this rank",
    )
    status, error = errors["rank_variants:ends_one"]
    assert (status, error.partition(";")[0]) == ("failed", "during values: rank 1 of 2 ended with exit code 3")
    assert found["packed", "exact"].status == "ok"


@pytest.mark.parametrize(
    ("sizes", "scope", "message"),
    [
        ([2], "step", "cp_size = 2: context parallelism runs with --scope loss, not with step"),
        ([2, 1], "loss", "cp_size = 1, 2: run workloads of one cp_size at a time"),
    ],
)
def test_what_cannot_run_on_ranks_is_an_input_error(sizes, scope, message):
    chosen = [Workload.from_dict(f"w{size}", KEYS | {"cp_size": size}) for size in sizes]
    with pytest.raises(InputError) as error:
        mtp_bench.run(chosen, ["exact"], device="sim", scope=scope)
    assert str(error.value) == message


def found_on_a_rank(status, syncs, blocked_ns, possible, peak_bytes):
    return {
        "numerics": {"status": status},
        "syncs": {"0.0": {"count": syncs, "blocked_ns": blocked_ns}},
        "graph_capture": {"possible": possible},
        "ops": 10 * syncs,
        "memory": {"peak_bytes": peak_bytes},
        "warnings": [f"{syncs} syncs"],
        "variant_info": {"version": "1"},
    }


def test_each_part_is_merged_by_itself():
    ranks = [
        found_on_a_rank("nan", 1, 500, True, 70),
        found_on_a_rank("close", 3, 100, False, 50),
        found_on_a_rank("equal", 3, 200, True, None),
    ]
    merged = merge_passes(ranks)
    assert [one["rank"] for one in merged.pop("ranks")] == [0, 1, 2]
    assert merged == {
        "numerics": {"status": "nan"},
        "syncs": {"0.0": {"count": 3, "blocked_ns": 200}},
        "graph_capture": {"possible": False},
        "ops": 30,
        "memory": {"peak_bytes": 70},
        "warnings": ["1 syncs", "3 syncs"],
        "variant_info": {"version": "1"},
    }


def test_the_time_is_that_of_the_rank_with_the_slowest_median():
    quick, slow = {"step_ns": [1.0, 2.0, 90.0]}, {"step_ns": [3.0, 3.0, 3.0]}
    assert merge_times([quick, slow]) == {**slow, "ranks": [quick, slow]}
