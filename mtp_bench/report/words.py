"""How numbers and lines are worded, the same in the terminal and in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from mtp_bench.compare import Difference, Row
from mtp_bench.results import DeviceInfo, Run

T = TypeVar("T")

NONE = "-"
FROM_PYTHON = "mtp_bench.run(...) from Python"  # the command of a run that has none
HOST_LEGEND = (
    "host: what the host takes to enqueue a step, waits included; "
    "ahead: how far it is ahead of the device when a step begins"
)


def microseconds(ns: float | None) -> str:
    """``12,345.6`` for 12345600 ns."""
    return NONE if ns is None else (f"{ns / 1e3:,.1f}" if math.isfinite(ns) else str(ns))


def whole_microseconds(ns: float | None) -> str:
    """``12,346`` for 12345600 ns."""
    return NONE if ns is None else (f"{ns / 1e3:,.0f}" if math.isfinite(ns) else str(ns))


def signed_microseconds(ns: float) -> str:
    """A difference, with its sign; 0.0 has none."""
    text = f"{ns / 1e3:+,.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def interval(difference: Difference) -> str:
    """``[low, high]`` of the difference in microseconds; "" where there is none."""
    if difference.low is None or difference.high is None:
        return ""
    return f"[{signed_microseconds(difference.low)}, {signed_microseconds(difference.high)}]"


def percent(difference: Difference) -> str:
    """The difference in percent of the baseline."""
    text = f"{(difference.ratio - 1) * 100:+.1f}" if math.isfinite(difference.ratio) else NONE
    return "0.0" if text in ("+0.0", "-0.0") else text


def plural(count: int, noun: str) -> str:
    """``1 sync``, ``2,000 syncs``."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def what_and_where(
    version: str, spec: str, device_name: str, modelled: bool, torch: str, scope: str, names: list[str], note: str = ""
) -> str:
    """The first line of a run: what runs where, and whether its times are modelled."""
    kind = "modelled" if modelled else "measured"
    named = f"{spec}, {device_name}" if device_name and device_name not in spec else spec
    return f"mtp-bench {version} on {named} ({kind}{note}), torch {torch}, scope {scope}: {', '.join(names)}"


def of_rank(name: str, row: Row) -> str:
    """``patched, rank 3``, ``patched, slowest``: what a side of a row of a job with several ranks is called."""
    if not row.rank_in_words:
        return name
    return f"{name}, {row.rank_in_words if isinstance(row.rank, int) else row.rank}"


def stand_ins(workloads: Mapping[str, Mapping[str, Any]]) -> str:
    """Which parts of scope ``step`` are not the named models' own; "" where there are none."""
    parts = [f"{name} ({keys['stand_in']})" for name, keys in workloads.items() if keys.get("stand_in")]
    return f"stand-ins: {'; '.join(parts)}" if parts else ""


def first_line(run: Run) -> str:
    """:func:`what_and_where` of a run that is read back."""
    environment = run.environment
    spec = next((result.device for result in run.results), _device_spec(environment.device))
    scope = next((result.scope for result in run.results), "loss")
    line = what_and_where(
        environment.packages.get("mtp-bench", "(unknown version)"),
        spec,
        environment.device.name,
        environment.device.modelled,
        environment.torch,
        scope,
        list(run.workloads),
    )
    rank = f"rank {run.job.rank:,} of {run.job.world_size:,} of job {run.job.id}" if run.job else ""
    return "; ".join(filter(None, [line, rank, stand_ins(run.workloads) if scope == "step" else ""]))


def _device_spec(device: DeviceInfo) -> str:
    """What ``--device`` was, of a run without results: ``profile`` starts with the name of a simulated one."""
    return f"{device.kind}:{device.profile.rpartition(' ')[0]}" if device.profile else device.kind


def environment_line(run: Run) -> str:
    """Versions and machine, in one line."""
    environment = run.environment
    device = environment.device
    parts = [
        f"Python {environment.python}",
        f"torch {environment.torch}",
        f"megatron-core {environment.megatron_core or 'not installed'}",
        f"verl {environment.verl}" if environment.verl else "",
        f"CUDA {device.cuda}" if device.cuda else "",
        f"driver {device.driver}" if device.driver else "",
        f"{environment.cpu.model}, {environment.cpu.affinity} of {plural(environment.cpu.count, 'CPU')}",
        f"commit {environment.git.commit[:10]}{' with changes' if environment.git.dirty else ''}"
        if environment.git
        else "",
        f"seed {run.seed}",
    ]
    return ", ".join(part for part in parts if part)


def who_at(found: Mapping[str, Sequence[float | None]], everywhere: Mapping[str, Sequence[float | None]]) -> str:
    """Names, with their leads in ms where it is not so at all of them: ``a, b; c at 1 ms lead``."""
    by_leads: dict[str, list[str]] = {}
    for name, leads in found.items():
        known = [f"{lead:g}" for lead in dict.fromkeys(leads) if lead is not None]
        some = known and set(leads) < set(everywhere.get(name, leads))
        by_leads.setdefault(f" at {' and '.join(known)} ms lead" if some else "", []).append(name)
    return "; ".join(f"{', '.join(names)}{where}" for where, names in by_leads.items())


def change(before: str, after: str) -> str:
    """``before > after``, or the value alone where nothing changed."""
    return after if before == after else f"{before} > {after}"


def known_change(sides: tuple[T | None, T | None], say: Callable[[T], str] = str) -> str:
    """:func:`change` of two sides, ``-`` for one that is not known."""
    before, after = (NONE if side is None else say(side) for side in sides)
    return change(before, after)


def mebibytes(size: int) -> str:
    """``1,024.0 MiB``."""
    return f"{size / 2**20:,.1f} MiB"


def probability(p: float | None) -> str:
    """A p value to three decimals."""
    return NONE if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def significant(value: float | None, digits: int = 4) -> str:
    """A number of any size, ``nan`` and ``inf`` by name."""
    return NONE if value is None else f"{value:.{digits}g}"
