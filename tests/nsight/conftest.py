"""The installed nsys, and one small real capture for the tests that need any."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mtp_bench.nsight import tool
from mtp_bench.nsight.command import command_line, find_output, program_environment
from mtp_bench.nsight.tool import Nsys

PROGRAM = """
from mtp_bench import ranges
with ranges.open_range("run"):
    for k in range(3):
        with ranges.open_range(f"depth:{k}"):
            pass
"""


@pytest.fixture(scope="session")
def nsys() -> Nsys:
    """The installed nsys. Where there is none the test is skipped, except under CI: there it fails."""
    if tool.find() is None:
        message = f"nsys is missing: {tool.INSTALL}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return tool.installed()


@pytest.fixture(scope="session")
def captured(nsys, tmp_path_factory) -> Path:
    """What nsys writes for a program with one range ``run`` and three in it."""
    output = tmp_path_factory.mktemp("captured") / "real"
    done = tool.run_quietly(
        command_line(nsys, [sys.executable, "-c", PROGRAM], output), environment=program_environment()
    )
    assert done.returncode == 0, done.stderr
    found = find_output(output)
    assert found is not None, done.stdout
    return found
