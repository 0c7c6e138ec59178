"""`mtp-bench run --device cuda` end to end, on an imagined device whose kernels take 20 us."""

import json
import os
import re
import statistics
import subprocess
import sys

import pytest

import mtp_bench
from mtp_bench.compare.headline import headline

SMALL = ("hidden_size=64", "vocab_size=512", "sequences=[512, 37, 1, 100]")
B = 4
VARIANTS = ("original", "patched", "sync_free", "host_lens", "boundary_roll", "megatron")
INTERVAL = r"-?[\d,.]+ us \[-?[\d,.]+, -?[\d,.]+\]"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTCUDA_KERNEL_NS", "20000")
        patch.setenv("HOSTCUDA_GEMM_NS", "20000")
        patch.setenv("HOSTCUDA_READS", "1")
        return mtp_bench.run(
            ["packed-sft", "padded-sft"],
            VARIANTS,
            "cuda",
            set=SMALL,
            leads_ms=[1.0],
            max_seconds=8,
            out=tmp_path_factory.mktemp("run"),
        )


def results(run, workload):
    return {result.variant: result for result in run.results if result.workload == workload}


def test_every_variant_has_a_result(run):
    assert [(r.workload, r.variant, r.status, r.error) for r in run.results] == [
        (workload, variant, "ok", None) for workload in ("packed-sft", "padded-sft") for variant in VARIANTS
    ]


def test_syncs_by_variant(run):
    packed = {name: result.syncs.count for name, result in results(run, "packed-sft").items()}
    padded = {name: result.syncs.count for name, result in results(run, "padded-sft").items()}
    rolls = 8 * B
    assert packed == dict(zip(VARIANTS, (rolls, rolls + 1, rolls, 0, 0, rolls), strict=True))
    assert padded == dict(zip(VARIANTS, (0, 1, 0, 0, 0, 0), strict=True))


def test_the_same_lines_as_on_sim(run):
    """In this build of PyTorch too, sim runs beside cuda, in processes of their own."""
    modelled = mtp_bench.run(["packed-sft"], VARIANTS, "sim", set=SMALL, leads_ms=[1.0], values="shape")

    def places(result):
        return [(site.file, site.line, site.function, site.kind, site.range, site.count) for site in result.syncs.sites]

    found = {name: places(result) for name, result in results(run, "packed-sft").items()}
    assert found == {name: places(result) for name, result in results(modelled, "packed-sft").items()}


def test_times_are_measured(run):
    for result in run.results:
        time = result.time
        assert time.modelled is False
        assert len(time.step_ns) >= 20
        assert time.stop_reason in ("noise", "time")
        assert all(step > 0 for step in time.step_ns)
        assert statistics.median(time.lead_ns) > 0.9e6
        assert time.sm_clock_mhz == [None] * len(time.step_ns)


def test_a_step_is_not_faster_than_its_kernels(run):
    # The padded step of sync_free launches some 60 kernels and products of 20 us each.
    assert statistics.median(results(run, "padded-sft")["sync_free"].time.step_ns) > 50 * 20_000


def test_graphs(run):
    possible = {name for name, result in results(run, "packed-sft").items() if result.graph_capture.possible}
    assert possible == {"host_lens", "boundary_roll"}
    site = results(run, "padded-sft")["patched"].graph_capture.site
    assert site.file.endswith("patched.py")


def test_peak_memory_is_that_of_the_workload_not_of_the_order(run):
    peaks = [result.memory.peak_bytes for result in run.results if result.workload == "packed-sft"]
    assert max(peaks) < 1.1 * min(peaks)


def test_the_costs_come_out_with_intervals(run):
    sentence = headline(run)
    assert re.search(
        rf"^The `num_tokens > 0` guard costs {INTERVAL} a step, packed rolls cost {INTERVAL} "
        rf"\(of which syncs {INTERVAL}\) on packed-sft at 1 ms lead, 98 % intervals\.",
        sentence,
    ), sentence


def test_packed_rolls_that_wait_cost_the_host_its_time(run):
    """Not the step's: bounds are read as 1 here, and the rolls of nothing between them launch fewer kernels."""
    host = {name: statistics.median(r.time.host_ns) for name, r in results(run, "packed-sft").items()}
    assert host["sync_free"] > host["host_lens"] * 1.1


def command(*arguments, **environment):
    env = {**os.environ, "HOSTCUDA_READS": "1", **environment}
    return subprocess.run(
        [sys.executable, "-m", "mtp_bench", *arguments], capture_output=True, text=True, check=False, env=env
    )


def test_the_command_line(tmp_path):
    overrides = [part for key in SMALL for part in ("--set", key)]
    done = command(
        *("run", "--device", "cuda", "--profile", "empty-shard", "--variant", "sync_free", "--variant", "nothing:here"),
        *("--lead", "0", *overrides, "--out", str(tmp_path), "--json"),
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "nothing" in done.stderr

    done = command(
        *("run", "--device", "cuda", "--profile", "empty-shard", "--variant", "sync_free", "--lead", "0"),
        *(*overrides, "--out", str(tmp_path), "--json"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["environment"]["device"]["kind"] == "cuda"
    assert found["results"][0]["syncs"]["count"] == 0
    assert json.loads((tmp_path / "run.json").read_text())["results"] == found["results"]


def test_a_gpu_that_is_not_there_is_one_line():
    done = command("run", "--device", "cuda:3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --device cuda:3: no such GPU; PyTorch sees cuda:0\n"
