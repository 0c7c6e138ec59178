"""Run something with another megatron-core, in a process of its own: two cannot be imported into one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.releases import release

ROOT = Path(__file__).parents[2]
VERSIONS = ("0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.2")
INSTALLED = "0.16.1"


def environment_with(version: str) -> dict[str, str]:
    """Environment of a child process in which megatron-core ``version`` is installed."""
    folders = [ROOT]
    if version != INSTALLED:
        folders.append(release("megatron_core", version))
    if version >= "0.18":
        folders.append(release("triton", "3.8.0"))  # imported, not used
    path = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def run_with(version: str, script: Path, argument: Any, **environment: str) -> Any:
    """Run ``script`` with megatron-core ``version`` installed; it gets and prints JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), json.dumps(argument)],
        env={**environment_with(version), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
