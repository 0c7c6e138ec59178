"""Which result is compared with which, and what forbids it: no torch, no I/O, no rendering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mtp_bench.errors import InputError, did_you_mean
from mtp_bench.results import Environment, Result, Run

DEFAULT_BASELINE = "original"

# Variables without which a step may take another time on the same machine.
_DECISIVE_VARIABLES = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
)
_WORDS = ("title", "source", "stand_in")  # keys of a workload that change nothing


@dataclass(frozen=True, slots=True)
class Pair:
    """A candidate and its baseline, each a name and a result. ``obstacle`` is why they must not be compared.

    What one of two runs lacks altogether is one pair without a lead and without results: a variant, or, named as the
    runs are, the whole workload or leads of it.
    """

    workload: str
    scope: str
    lead_ms: float | None
    baseline: tuple[str, Result | None]
    candidate: tuple[str, Result | None]
    paired: bool  # by round: both sides were measured in one run
    obstacle: str = ""

    @property
    def skipped(self) -> bool:
        """Neither side could run here, which is no finding about either."""
        sides = self.baseline[1], self.candidate[1]
        return all(side is not None and side.status == "skipped" for side in sides)


@dataclass(frozen=True)
class Side:
    """A run, and what its rows are called."""

    run: Run
    label: str
    results: Mapping[tuple[str, str], Mapping[tuple[str, float], Result]] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, label: str) -> Side:
        """Sort the results of ``run`` by workload and scope, then by variant and lead."""
        results: dict[tuple[str, str], dict[tuple[str, float], Result]] = {}
        for result in run.results:
            results.setdefault((result.workload, result.scope), {})[result.variant, result.lead_ms] = result
        return cls(run, label, results)


def baseline_variant(run: Run, workload: str, asked: str | None = None) -> str | None:
    """The variant that the others are compared with: the one asked for, else ``original``, else the first."""
    names = list(dict.fromkeys(result.variant for result in run.results if result.workload == workload))
    if asked is not None:
        return asked if asked in names else None
    return DEFAULT_BASELINE if DEFAULT_BASELINE in names else next(iter(names), None)


def within(run: Run, asked: str | None) -> Iterator[Pair]:
    """Every variant of a run with the baseline at the same lead. InputError for a baseline that is not there."""
    names = {result.variant for result in run.results}
    if asked is not None and asked not in names:
        raise InputError(f"--baseline {asked!r}: no such variant in this run{did_you_mean(asked, names)}")
    for (workload, scope), results in Side.of(run, "").results.items():
        base_name = baseline_variant(run, workload, asked)
        if base_name is None:
            continue
        for (variant, lead_ms), result in results.items():
            if variant != base_name:
                base = base_name, results.get((base_name, lead_ms))
                yield Pair(workload, scope, lead_ms, base, (variant, result), paired=True)


def between(first: Side, other: Side) -> Iterator[Pair]:
    """Every variant with itself in the other run; what one run lacks altogether is one pair."""
    for workload, scope in dict.fromkeys([*first.results, *other.results]):
        before, after = (side.results.get((workload, scope), {}) for side in (first, other))
        if not before or not after:
            lacking = other if before else first
            why = f"{lacking.label} has no {workload} in scope {scope}"
            yield Pair(workload, scope, None, (first.label, None), (other.label, None), False, why)
            continue
        variants = {key[0] for key in before} & {key[0] for key in after}
        leads = {key[1] for key in before} & {key[1] for key in after}
        for has, lacks in ((before, other), (after, first)):
            for variant in dict.fromkeys(key[0] for key in has if key[0] not in variants):
                named = [(f"{variant} ({side.label})", None) for side in (first, other)]
                yield Pair(workload, scope, None, named[0], named[1], False, f"not in {lacks.label}")
            missing = [f"{lead:g}" for lead in dict.fromkeys(key[1] for key in has) if lead not in leads]
            if missing:
                why = f"{lacks.label} has no lead of {' or '.join(missing)} ms"
                yield Pair(workload, scope, None, (first.label, None), (other.label, None), False, why)
        for variant, lead_ms in dict.fromkeys([*before, *after]):
            if variant in variants and lead_ms in leads:
                yield _between(first, other, (workload, scope), (variant, lead_ms))


def environment_differences(first: Side, other: Side) -> Iterator[str]:
    """Every field of the environment that differs, with both values."""
    before, after = _flat(first.run.environment), _flat(other.run.environment)
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key):
            yield f"{key}: {before.get(key, 'none')} ({first.label}), {after.get(key, 'none')} ({other.label})"


def _between(first: Side, other: Side, where: tuple[str, str], which: tuple[str, float]) -> Pair:
    (workload, scope), (variant, lead_ms) = where, which
    base, cand = (side.results[where].get(which) for side in (first, other))
    return Pair(
        workload,
        scope,
        lead_ms,
        (f"{variant} ({first.label})", base),
        (f"{variant} ({other.label})", cand),
        paired=False,
        obstacle=_obstacle(first.run, other.run, workload, base, cand),
    )


def _obstacle(first: Run, other: Run, workload: str, base: Result | None, cand: Result | None) -> str:
    """Why the times of two runs must not be compared; "" where they may."""
    if base is None or cand is None or base.time is None or cand.time is None:
        return ""
    changed = _changed_keys(first.workloads.get(workload, {}), other.workloads.get(workload, {}))
    if changed:
        return f"different workload: {', '.join(changed)}"
    before = {**_must_agree(first.environment), "harness": base.harness, "profiled": base.time.profiled}
    after = {**_must_agree(other.environment), "harness": cand.harness, "profiled": cand.time.profiled}
    different = [name for name in before if name in after and before[name] != after[name]]
    return f"different {', '.join(different)}" if different else ""


def _must_agree(environment: Environment) -> dict[str, Any]:
    """What must be the same for two times to be comparable. A model does not depend on the machine it runs on."""
    device = environment.device
    always = {
        "device": (device.kind, device.name),
        "device profile": device.profile,
        "mtp-bench version": environment.packages.get("mtp-bench"),
    }
    if device.modelled:
        return always
    variables = {name: environment.cuda_env.get(name) for name in _DECISIVE_VARIABLES}
    return {
        **always,
        "CPU": (environment.cpu.model, environment.cpu.count),
        "affinity": environment.cpu.affinity,
        **variables,
    }


def _changed_keys(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [key for key in dict.fromkeys([*before, *after]) if key not in _WORDS and before.get(key) != after.get(key)]


def _flat(environment: Environment) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in environment.model_dump().items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            flat[key] = value
    return {key: value for key, value in flat.items() if value is not None}
