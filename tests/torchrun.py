"""Child processes that are the ranks of one job, started as users start them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.megatron.versions import INSTALLED, environment_with


def torchrun(
    processes: int, script: Path, *arguments: object, version: str = INSTALLED, timeout_s: float = 200, **more: str
) -> str:
    """Run ``script`` in that many processes with megatron-core ``version``; return what they print."""
    launcher = ["-W", "ignore", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [sys.executable, *launcher, str(script), *map(str, arguments)],
        env={**environment_with(version), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
