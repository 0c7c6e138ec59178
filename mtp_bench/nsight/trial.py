"""One real capture of a second: whether the ranges of this Python reach this nsys, before any time is spent.

Ranges are lost without a word where the nvtx package asks the tool a question that an old nsys does not answer, and a
run would end with an empty capture. What is known of versions is said first; everything else a trial finds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from mtp_bench.environment import version
from mtp_bench.errors import InputError, RunError
from mtp_bench.nsight import tool
from mtp_bench.nsight.command import command_line, find_output, program_environment
from mtp_bench.nsight.convert import to_sqlite
from mtp_bench.nsight.tool import Nsys

_PROGRAM = """
from mtp_bench import ranges
with ranges.open_range("run"), ranges.open_range("workload:trial"):
    pass
"""
_PATHS = {("run",), ("run", "workload:trial")}
_TRIAL_SECONDS = 60


def require_ranges(nsys: Nsys, *, python_backtrace: bool = False) -> None:
    """Return where ranges of domain ``mtp_bench`` arrive in a capture of ``nsys`` that can be read back here.

    Raises InputError that says why they do not, and what to do, and RunError where nsys or its importer fails.
    """
    found = version("nvtx")
    known = tool.why_ranges_are_lost(found, nsys.version)
    if known:
        raise InputError(f"nvtx {known}")
    with tempfile.TemporaryDirectory(prefix="mtp-bench-") as folder:
        output = Path(folder) / "trial"
        command = command_line(nsys, [sys.executable, "-c", _PROGRAM], output, python_backtrace=python_backtrace)
        done = tool.run_quietly(command, _TRIAL_SECONDS, program_environment())
        if done.returncode != 0:  # nsys 2022.4.2 did once in some 30 trials, in its ProcessWaiter; not the next time
            done = tool.run_quietly(command, _TRIAL_SECONDS, program_environment())
        if done.returncode != 0:
            raise RunError(f"{nsys.name} cannot capture here: {tool.said(done)}")
        capture = find_output(output)
        arrived = _paths_in(to_sqlite(capture, nsys)) if capture is not None else set()
    if not arrived >= _PATHS:
        held = "holds none of them" if capture else f"is empty ({tool.said(done)})"
        raise InputError(
            f"the ranges of nvtx {found} do not reach {nsys.name}: the capture of a trial {held}; "
            "use nsys 2024 or later, or nvtx 0.2.11"
        )


def _paths_in(path: Path) -> set[tuple[str, ...]]:
    from mtp_bench.nsight import read_capture

    return {found.path for found in read_capture(path).ranges}
