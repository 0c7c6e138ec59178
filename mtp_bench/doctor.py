"""What of mtp-bench works on this machine, what does not, and why."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mtp_bench import __version__
from mtp_bench.environment import version
from mtp_bench.errors import InputError, RunError
from mtp_bench.megatron import versions as megatron_core
from mtp_bench.nsight import tool
from mtp_bench.nsight.trial import require_ranges

_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_SAMPLING = re.compile(r"CPU Profiling Environment \(process-tree\): *(\S.*)")

# PyTorch registers one device for good, so this is tried in a process of its own.
_SIM_TRIAL = """
import sys
from mtp_bench.devices import resolve
from mtp_bench.errors import InputError
try:
    device = resolve("sim")
    with device.session():
        import torch
        ones = torch.ones(4, device=device.torch_device)
        with device.record_syncs() as syncs:
            total = ones.sum().item()
    assert (total, len(syncs)) == (4.0, 1), f"4 ones add up to {total}, with {len(syncs)} syncs instead of 1"
except InputError as error:
    sys.exit(str(error))
"""
_TRIAL_SECONDS = 60
_IMPORT_TRITON = (0, 18)  # megatron-core from here on imports triton, which is not part of a CPU build of torch


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``state`` is about this machine, never about a fault of the user."""

    name: str
    state: Literal["works", "limited", "missing"]
    text: str


def examine() -> Iterator[Finding]:
    """Look at everything that a run, a profile or a comparison may need."""
    yield Finding("mtp-bench", "works", f"{__version__}, {Path(__file__).resolve().parent}")
    yield Finding("Python", "works", f"{platform.python_version()}, {sys.executable}")
    yield from (_guarded(*check) for check in _CHECKS)


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    """What a broken package raises is what there is to say about it."""
    try:
        return check()
    except (InputError, RunError) as error:
        return Finding(name, "missing", " ".join(str(error).split()))
    except Exception as error:
        return Finding(name, "missing", f"{type(error).__name__}: {' '.join(str(error).split())}")


def _torch() -> Finding:
    import torch

    cuda = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU build"
    return Finding("torch", "works", f"{torch.__version__}, {cuda}, {Path(torch.__file__).parent}")


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        why = "this PyTorch is a CPU build" if torch.version.cuda is None else "PyTorch sees none; check nvidia-smi"
        return Finding("GPU", "missing", f"none ({why}): --device cuda cannot run, --device sim can")
    names = [f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(torch.cuda.device_count())]
    return Finding("GPU", "works", ", ".join(names))


def _sim() -> Finding:
    from mtp_bench.profiles import profile_names

    profiles = ", ".join(profile_names("devices"))
    path = [str(Path(__file__).resolve().parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SIM_TRIAL],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TRIAL_SECONDS,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        )
    except subprocess.TimeoutExpired:
        return Finding("sim", "missing", f"one operation on it took more than {_TRIAL_SECONDS} s")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return Finding("sim", "missing", lines[-1] if lines else f"its trial ended with exit code {done.returncode}")
    return Finding("sim", "works", f"registered, and 1 operation waited as on a GPU; profiles: {profiles}")


def _megatron() -> Finding:
    found = megatron_core.version()
    if not found:
        return Finding("megatron-core", "missing", "not installed: pip install megatron-core")
    path = "process_mtp_loss" if megatron_core.has_process_mtp_loss() else "GPTModel._postprocess"
    text = f"{found}, MTP loss in {path}, {megatron_core.folder()}"
    if tool.numbers(found)[:2] >= _IMPORT_TRITON and importlib.util.find_spec("triton") is None:
        missing = "it imports triton, which is not installed: pip install triton"
        return Finding("megatron-core", "limited", f"{text}; no variant can run: {missing}")
    reason = megatron_core.packed_unsupported()
    return Finding("megatron-core", "limited" if reason else "works", f"{text}; {reason}" if reason else text)


def _verl() -> Finding:
    from mtp_bench.variants import verl

    folder = verl.package()
    if folder is None:
        return Finding("verl", "missing", "not installed: the variant verl is not listed")
    text = f"{verl.version(folder) or 'unknown version'}, {folder}"
    if megatron_core.has_process_mtp_loss():
        return Finding("verl", "limited", f"{text}; its MTP loss is inactive here: verl dispatches to megatron-core")
    return Finding("verl", "works", f"{text}; its MTP loss is active with this megatron-core")


def _transformer_engine() -> Finding:
    found = version("transformer-engine") or version("transformer_engine_torch")
    if not found:
        return Finding("Transformer Engine", "missing", "not installed: scope step uses Megatron's local layers")
    return Finding("Transformer Engine", "works", f"{found}: scope step uses its layers on CUDA")


def _nsys() -> Finding:
    if tool.find() is None:
        return Finding("nsys", "missing", f"not on PATH nor in the usual folders, so no profiles: {tool.INSTALL}")
    nsys = tool.installed()
    return Finding("nsys", "works", f"{tool.numbered(nsys.version) or 'unknown version'}, {nsys.path}")


def _nvtx() -> Finding:
    found = version("nvtx")
    if not found:
        return Finding("nvtx", "missing", tool.why_ranges_are_lost(found, ()))
    try:
        nsys = tool.installed().version
    except (InputError, RunError):
        nsys = ()
    why = tool.why_ranges_are_lost(found, nsys)
    return Finding("nvtx", "limited", why) if why else Finding("nvtx", "works", found)


def _of_nsys(name: str, check: Callable[[], Finding]) -> Callable[[], Finding]:
    def of_nsys() -> Finding:
        try:
            tool.installed()
        except (InputError, RunError):  # the line of nsys says why
            return Finding(name, "missing", "no nsys that runs")
        return check()

    return of_nsys


def _nsys_options() -> Finding:
    known = tool.installed().profile_options
    if not known:
        return Finding(
            "nsys options", "limited", "its help does not list them; those that all versions have are passed"
        )
    text = f"{len(known)} of nsys profile"
    if "python-backtrace" not in known:
        return Finding("nsys options", "limited", f"{text}; without --python-backtrace, so no Python backtraces")
    return Finding("nsys options", "works", text)


def _nsys_ranges() -> Finding:
    started = time.monotonic()
    require_ranges(tool.installed())
    seconds = time.monotonic() - started
    return Finding("nsys ranges", "works", f"those of a trial came back from a capture, in {seconds:.1f} s")


def _perf() -> Finding:
    """CPU sampling, without which nsys records no Python backtraces; a capture of ranges and CUDA needs no rights."""
    found = _SAMPLING.search(tool.installed().ask("status", "--environment").stdout)
    level = _PARANOID.read_text(encoding="ascii").strip() if _PARANOID.is_file() else "unknown"
    text = f"perf_event_paranoid is {level}"
    if found and found[1].strip() == "OK":
        return Finding("perf", "works", f"{text}: CPU sampling is allowed, which Python backtraces need")
    return Finding(
        "perf",
        "limited",
        f"{text}: no CPU sampling, so no Python backtraces; it must be 2 or less, and perf_event_open allowed",
    )


_CHECKS: tuple[tuple[str, Callable[[], Finding]], ...] = (
    ("torch", _torch),
    ("GPU", _gpu),
    ("sim", _sim),
    ("megatron-core", _megatron),
    ("verl", _verl),
    ("Transformer Engine", _transformer_engine),
    ("nsys", _nsys),
    ("nvtx", _nvtx),
    ("nsys options", _of_nsys("nsys options", _nsys_options)),
    ("nsys ranges", _of_nsys("nsys ranges", _nsys_ranges)),
    ("perf", _of_nsys("perf", _perf)),
)
