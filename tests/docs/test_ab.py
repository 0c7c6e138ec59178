"""docs/ab.md: its commands run, its two lines belong where the released sources have them, the SLURM script works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_examples import blocks
from tests.megatron.versions import ROOT
from tests.releases import release

DOCUMENT = ROOT / "docs" / "ab.md"
VERL_ENGINE = Path("verl", "workers", "engine", "megatron", "transformer_impl.py")
STUBS = {
    "torchrun": '{python} -W ignore -m torch.distributed.run "$@"',
    "mtp-bench": '{python} -m mtp_bench "$@"',
    "srun": '"$@"',
    "scontrol": "echo localhost; echo another",
}


@pytest.fixture
def shell(tmp_path):
    """Run a script in a checkout of its own, with ``torchrun`` and the like on the PATH."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, line in STUBS.items():
        (commands / name).write_text(f"#!/bin/bash\n{line.format(python=sys.executable)}\n")
        (commands / name).chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").write_text(f'export PATH="{commands}:$PATH"\n')

    def run(*command, **environment):
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{commands}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "PYTHONWARNINGS": "ignore",
                "OMP_NUM_THREADS": "1",
                "COLUMNS": "120",
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_example_runs_as_it_stands_and_its_comparison_is_the_one_shown(shell):
    (code,) = (code for _, code in blocks(DOCUMENT, "bash") if "torchrun" in code)
    done = shell("bash", "-euc", code)
    assert done.returncode == 0, done.stderr
    shown = next(block for _, block in blocks(DOCUMENT, "text"))
    assert without_times(shown) in without_times(done.stdout)


def without_times(text):
    """Its words and counts; modelled times change with every operation that is added to a step."""
    return "".join(re.sub(r"[\d,]+\.\d+", "N", text).split())


def test_the_slurm_script_trains_and_compares(shell, tmp_path):
    job = str(os.getpid())
    done = shell(
        "bash",
        "examples/megatron_ab.slurm",
        *("--device", "sim", "--iterations", "7", "--steps", "4", "--window", "2", "--microbatches", "1"),
        SLURM_SUBMIT_DIR=str(tmp_path),
        SLURM_JOB_ID=job,
        SLURM_JOB_NODELIST="localhost,another",
        SLURM_NNODES="1",
        SLURM_GPUS_ON_NODE="1",
    )
    assert done.returncode == 0, done.stderr
    assert "iteration    7 | lm loss" in done.stdout
    assert "job, scope job, baseline patched" in done.stdout
    assert (tmp_path / "ab" / job / "rank-0" / "run.json").is_file()


def test_the_slurm_script_says_how_the_job_ended(shell, tmp_path):
    """A job without one measured window: nothing to compare, and its own exit code is not lost in that."""
    job = str(os.getpid())
    done = shell(
        "bash",
        "examples/megatron_ab.slurm",
        "--context-parallel",
        "2",
        SLURM_SUBMIT_DIR=str(tmp_path),
        SLURM_JOB_ID=job,
        SLURM_JOB_NODELIST="localhost",
        SLURM_NNODES="1",
        SLURM_GPUS_ON_NODE="1",
    )
    assert done.returncode != 0
    assert "--context-parallel needs --packed" in done.stderr


@pytest.mark.parametrize("version", ["0.8.0", "0.9.1"])
def test_the_two_lines_for_verl_fit_its_released_engine(version):
    (patch,) = (patch for _, patch in blocks(DOCUMENT, "diff") if "self.module" in patch)
    context = "".join(line[1:] for line in patch.splitlines(keepends=True) if line.startswith(" "))
    source = (release("verl", version) / VERL_ENGINE).read_text()
    assert source.count(context) == 1
    initialize = source.partition("    def initialize(self):\n")[2].partition("\n    def ")[0]
    assert context in initialize
    assert initialize.index("if self.engine_config.forward_only:") < initialize.index(context)
    assert initialize.index(context) < initialize.rindex("self.to(")


def test_its_python_lines_are_python():
    for line, patch in blocks(DOCUMENT, "diff"):
        added = [text[1:] for text in patch.splitlines() if text.startswith("+")]
        indent = len(added[0]) - len(added[0].lstrip())
        compile("\n".join(text[indent:] for text in added), f"ab.md:{line}", "exec")
