"""The command line of ``nsys profile``: every option that matters, as far as the installed version knows it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mtp_bench import ranges
from mtp_bench.errors import InputError, RunError
from mtp_bench.nsight.convert import REPORT, SQLITE, STREAM
from mtp_bench.nsight.tool import Nsys

CAPTURE_RANGES = ("nvtx", "cudaProfilerApi")
_OUTERMOST = f"run@{ranges.DOMAIN}"
# nsys looks for its capture range among registered strings alone, unless this is 0.
_ANY_STRING = "NSYS_NVTX_PROFILER_REGISTER_ONLY=0"
# Without one of these a capture is not what it is taken for. The others only keep a version's defaults away.
_REQUIRED = frozenset(
    {
        *("trace", "sample", "cpuctxsw", "capture-range", "capture-range-end", "nvtx-capture", "kill"),
        *("env-var", "output", "force-overwrite"),
    }
)


def command_line(
    nsys: Nsys,
    program: Sequence[str],
    output: Path,
    *,
    capture_range: str = "nvtx",
    python_backtrace: bool = False,
) -> list[str]:
    """``nsys profile`` around ``program``, its capture written to ``output`` and a suffix.

    Captured is what lies in the range ``run`` of domain ``mtp_bench``, or with ``capture_range`` ``cudaProfilerApi``
    between cudaProfilerStart and cudaProfilerStop. The program is neither stopped nor killed when that ends.
    ``python_backtrace`` adds the Python lines of copies and synchronisations. Raises InputError where ``nsys`` cannot
    take these, and RunError where it is too old for any of this.
    """
    if python_backtrace and not _knows(nsys, "python-backtrace"):
        raise InputError(f"--python-backtrace: {nsys.name} has no such option; use nsys 2024 or later")
    lacking = sorted(name for name in _REQUIRED if not _knows(nsys, name))
    if lacking:
        raise RunError(f"{nsys.name} at {nsys.path} is too old: it has no --{lacking[0]}; use nsys 2022.4 or later")
    variables = [_ANY_STRING]
    if capture_range == "cudaProfilerApi":
        variables.append(f"{ranges.CAPTURE_VARIABLE}={capture_range}")
    options = {
        "trace": "cuda,nvtx",
        **_sampling(python_backtrace),
        "cuda-memory-usage": "false",
        "cuda-event-trace": "false",
        "capture-range": capture_range,
        **({"nvtx-capture": _OUTERMOST} if capture_range == "nvtx" else {}),
        "capture-range-end": "stop",
        "kill": "none",
        "wait": "primary",
        "export": "none",
        "stats": "false",
        "env-var": ",".join(variables),
        "force-overwrite": "true",
        "output": str(output).replace("%", "%%"),
    }
    known = [f"--{name}={value}" for name, value in options.items() if _knows(nsys, name)]
    return [nsys.path, "profile", *known, *program]


def find_output(output: Path) -> Path | None:
    """What nsys wrote for ``output``: a report, or the stream that it could not turn into one; None for nothing."""
    written = (output.with_name(output.name + suffix) for suffix in (REPORT, STREAM))
    return next((path for path in written if path.is_file()), None)


def remove_output(output: Path) -> None:
    """Remove what an earlier capture left under this name: it must not be taken for the next one's."""
    for suffix in (REPORT, STREAM, SQLITE):
        output.with_name(output.name + suffix).unlink(missing_ok=True)


def program_environment() -> dict[str, str]:
    """The environment in which a program that nsys starts imports this package, as this process does."""
    package_root = str(Path(__file__).resolve().parents[2])
    path = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def _knows(nsys: Nsys, option: str) -> bool:
    """Whether ``nsys profile`` has ``option``; where its help cannot be read, it is taken to have what all have."""
    known = nsys.profile_options
    return option in known if known else option in _REQUIRED


def _sampling(python_backtrace: bool) -> dict[str, str]:
    """CPU sampling makes a capture a hundred times as large; backtraces are not to be had without it."""
    if python_backtrace:
        return {
            "sample": "process-tree",
            "cpuctxsw": "process-tree",
            "cudabacktrace": "sync:0,memory:0",
            "python-backtrace": "cuda",
            "python-sampling": "false",
        }
    return {
        "sample": "none",
        "cpuctxsw": "none",
        "cudabacktrace": "none",
        "python-backtrace": "none",
        "python-sampling": "false",
        "resolve-symbols": "false",
    }
