"""What a run depends on beside its workload: versions, CPU, variables and the source checkout. Imports no torch."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from mtp_bench import __version__
from mtp_bench.megatron import versions as megatron_core
from mtp_bench.results import Cpu, DeviceInfo, Environment, Git

# Versions beside torch, megatron-core and verl that can change what a step costs or computes.
_PACKAGES = ("numpy", "nvtx", "nvidia-ml-py", "transformer-engine", "triton", "flash-attn", "apex")
# Variables that change how the host and the device run against each other.
_VARIABLES = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "NVTE_FLASH_ATTN",
    "NVTE_FUSED_ATTN",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_NCCL_BLOCKING_WAIT",
)


def describe(device: dict[str, Any]) -> Environment:
    """Describe this machine and process; ``device`` is what the device says of itself."""
    return Environment(
        torch=version("torch") or "unknown",
        megatron_core=megatron_core.version() or None,
        verl=version("verl"),
        python=platform.python_version(),
        cpu=cpu(),
        cuda_env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
        device=DeviceInfo.model_validate(device),
        git=checkout(),
        packages={
            "mtp-bench": __version__,
            **{name: found for name in _PACKAGES if (found := version(name))},
        },
    )


def version(distribution: str) -> str | None:
    """The installed version of a distribution; None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def cpu() -> Cpu:
    """The processor's name, its CPUs and those this process may use."""
    available = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return Cpu(model=_cpu_model(), count=os.cpu_count() or 1, affinity=len(available))


def checkout() -> Git | None:
    """The commit of the source checkout that this package runs from; None for an installed wheel."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None or changes is None else Git(commit=commit, dirty=bool(changes))


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
