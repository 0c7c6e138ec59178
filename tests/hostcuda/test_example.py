"""The example trains on the CUDA build of PyTorch, over NCCL, with and without an experiment in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtp_bench.results import load_run

ROOT = Path(__file__).parents[2]
ITERATIONS = 7


def train(*options):
    """Run the example on the one device; return the iterations that it prints."""
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"),
            *(str(Path(__file__).with_name("example.py")), "--iterations", str(ITERATIONS), *options),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.split(" | ")[0] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("options", [(), ("--packed", "--dtype", "fp32")], ids=["padded bf16", "packed fp32"])
def test_trains_with_and_without_an_experiment(options, tmp_path):
    names = ["patched", "boundary_roll"]
    iterations = [f"iteration {number:4}" for number in range(1, ITERATIONS + 1)]
    assert train(*options) == iterations
    experiment = ("--ab", ",".join(names), "--steps", "4", "--window", "2", "--out", str(tmp_path / "out"))
    assert train(*options, *experiment) == iterations
    run = load_run(tmp_path / "out" / "rank-0")
    assert (run.job.ended, run.job.windows) == ("done", 2)
    assert [(result.variant, result.device.partition(":")[0], result.time.modelled) for result in run.results] == [
        (name, "cuda", False) for name in names
    ]
