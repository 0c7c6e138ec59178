"""What forbids to compare or to pool step times: no torch, no I/O, no rendering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mtp_bench.results import Environment, Result, Run

# Variables without which a step may take another time on the same machine.
_DECISIVE_VARIABLES = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
)
_WORDS = ("title", "source", "stand_in")  # keys of a workload that change nothing
_SHOWN = 40  # characters of a workload's value

Measured = Sequence[tuple[Run, Result]]  # one side of a row, one result a run


def obstacle(workload: str, *sides: Measured) -> str:
    """Why the times of one side of variants of the same runs, or of two sides of several runs, must not be compared.

    "" where they may be. Sides without times are for others to tell.
    """
    every = [one for side in sides for one in side]
    times = [result.time for _, result in every if result.time is not None]
    if len(times) < len(every):
        return ""
    if len({time.modelled for time in times}) > 1:
        return "modelled times are not compared with measured ones"
    if len({time.profiled for time in times}) > 1:
        return "times under a profiler are not compared with times without one"
    for side in sides:
        different = _different(workload, side)
        if different:
            return f"different {', '.join(different)} among the runs of one side"
    different = _different(workload, every) + _machines([[run.environment for run, _ in side] for side in sides])
    return f"different {', '.join(different)}" if different else ""


def _different(workload: str, runs: Measured) -> list[str]:
    """What runs must have alike, and have not, wherever they ran."""
    changed = _changed([run.workloads.get(workload, {}) for run, _ in runs])
    must_agree = [_must_agree(run.environment) | {"harness": result.harness} for run, result in runs]
    different = [name for name in must_agree[0] if any(found[name] != must_agree[0][name] for found in must_agree)]
    return [*([f"workload: {', '.join(changed)}"] if changed else []), *different]


def _must_agree(environment: Environment) -> dict[str, Any]:
    """What must be the same for two times to be comparable, on whatever machines. A model depends on no variable."""
    device = environment.device
    always = {
        "device": (device.kind, device.name),
        "device profile": device.profile,
        "mtp-bench version": environment.packages.get("mtp-bench"),
    }
    return always | {name: None if device.modelled else environment.cuda_env.get(name) for name in _DECISIVE_VARIABLES}


def _machines(sides: Sequence[Sequence[Environment]]) -> list[str]:
    """In what the machines of two sides differ, if what that adds cannot be told from the effect looked for.

    Variants of the same runs share their machines, and a model depends on none. Of several runs a side it can be told
    where a machine is on both sides, or several are on each: what they add is then among what its runs differ by.
    """
    if len(sides) < 2 or sides[0][0].device.modelled:
        return []
    machines = [{(*_processor(run), run.cpu.affinity) for run in side} for side in sides]
    several = min(map(len, sides)) > 1
    if several and (machines[0] & machines[1] or min(map(len, machines)) > 1):
        return []
    if not several and len(machines[0] | machines[1]) == 1:
        return []
    processors, affinities = (
        {key(run) for side in sides for run in side} for key in (_processor, lambda run: run.cpu.affinity)
    )
    return [name for name, found in (("CPU", processors), ("affinity", affinities)) if len(found) > 1]


def _processor(environment: Environment) -> tuple[str, int]:
    return environment.cpu.model, environment.cpu.count


def _changed(workloads: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys of a workload that not all runs have alike, with their values."""
    changed = []
    for key in dict.fromkeys(key for keys in workloads for key in keys if key not in _WORDS):
        values = list(dict.fromkeys(_shown(keys.get(key)) for keys in workloads))
        if len(values) > 1 or any(keys.get(key) != workloads[0].get(key) for keys in workloads):
            changed.append(f"{key} {' and '.join(values)}")
    return changed


def _shown(value: Any) -> str:
    """A value as ``--set`` takes it, in a few characters."""
    text = "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
