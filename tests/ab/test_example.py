"""The example trains on the simulated device, and an experiment in it changes no loss and no weight by a bit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from mtp_bench.results import load_run
from tests.megatron.versions import ROOT
from tests.torchrun import torchrun

EXAMPLE = ROOT / "examples" / "megatron_ab.py"
ITERATIONS, WINDOW = 7, 2
CASES = {
    "one process": (1, [], ["patched", "boundary_roll"]),
    "data parallel": (2, ["--dtype", "fp32"], ["sync_free", "patched"]),
    "context parallel": (2, ["--packed", "--context-parallel", "2"], ["patched", "boundary_roll"]),
}


def trained(case, into, *more):
    """What a run prints, and its final weights."""
    processes, options, _ = CASES[case]
    weights = into / "weights.pt"
    printed = torchrun(
        processes,
        EXAMPLE,
        *("--device", "sim", "--iterations", ITERATIONS, "--microbatches", 2, "--save-weights", weights),
        *options,
        *more,
    )
    return printed.splitlines(), torch.load(weights)


@pytest.mark.parametrize("case", CASES)
def test_an_experiment_changes_no_loss_and_no_weight(case, tmp_path):
    processes, _, names = CASES[case]
    steps = len(names) * WINDOW
    losses, weights = trained(case, tmp_path)
    out = tmp_path / "out"
    with_ab = trained(case, tmp_path, "--ab", ",".join(names), "--steps", steps, "--window", WINDOW, "--out", out)

    assert [line.split(" | ")[0] for line in losses] == [f"iteration {number:4}" for number in range(1, ITERATIONS + 1)]
    assert float(losses[-1].rpartition(" ")[2]) < float(losses[0].rpartition(" ")[2]) - 0.02  # it learns
    assert with_ab[0] == losses
    assert with_ab[1].keys() == weights.keys()
    assert [name for name in weights if not torch.equal(weights[name], with_ab[1][name])] == []
    assert any(weights[name].any() for name in weights if ".mtp." in name)

    runs = [load_run(out / f"rank-{rank}") for rank in range(processes)]
    for run in runs:
        assert (run.job.ended, run.job.windows, run.job.windows_lost) == ("done", len(names), 0)
        assert {result.variant: result.gradients.status for result in run.results} == dict.fromkeys(names, "equal")
        assert [result.time.modelled for result in run.results] == [True] * len(names)
    assert len({run.job.id for run in runs}) == 1


def test_without_torchrun_it_says_how_to_start_it():
    environment = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].endswith(
        "error: start it with torchrun, as in: torchrun --standalone --nproc-per-node=1 examples/megatron_ab.py"
    )
