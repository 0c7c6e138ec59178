"""Which results are compared with which, and what forbids it: no torch, no I/O, no rendering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

Where = tuple[str, str]  # workload, scope
Which = tuple[str, float]  # variant, lead_ms


@dataclass(frozen=True, slots=True)
class Pair:
    """A candidate and its baseline, each a name and its results, one a run; ``obstacle``: why no times are compared.

    What one of two sides lacks altogether is one pair without a lead and without results: a variant, or, named as the
    sides are, the whole workload or leads of it.
    """

    workload: str
    scope: str
    lead_ms: float | None
    baseline: tuple[str, tuple[Result, ...]]
    candidate: tuple[str, tuple[Result, ...]]
    paired: bool  # every run holds both
    variant: str = ""  # the candidate's
    obstacle: str = ""
    note: str = ""  # what was left out

    @property
    def skipped(self) -> bool:
        """Neither side could run here, which is no finding about either."""
        sides = self.baseline[1], self.candidate[1]
        return all(side and all(result.status == "skipped" for result in side) for side in sides)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a run, or several that are pooled. ``runs`` are (label, run)."""

    label: str
    runs: tuple[tuple[str, Run], ...]
    results: Mapping[Where, Mapping[Which, Mapping[int, Result]]] = field(default_factory=dict)

    @classmethod
    def of(cls, label: str, runs: Sequence[tuple[str, Run]]) -> Side:
        """Sort the results of ``runs`` by workload and scope, then by variant and lead, then by the run's index."""
        results: dict[Where, dict[Which, dict[int, Result]]] = {}
        for index, (_, run) in enumerate(runs):
            for result in run.results:
                found = results.setdefault((result.workload, result.scope), {})
                found.setdefault((result.variant, result.lead_ms), {})[index] = result
        return cls(label, tuple(runs), results)

    def get(self, where: Where, which: Which) -> tuple[Result, ...]:
        """The results of a variant at a lead, one a run that has it."""
        return tuple(self.results.get(where, {}).get(which, {}).values())


def baseline_variant(run: Run, workload: str, asked: str | None = None) -> str | None:
    """The variant that the others are compared with: the one asked for, else ``original``, else the first."""
    return _baseline(list(dict.fromkeys(r.variant for r in run.results if r.workload == workload)), asked)


def within(side: Side, asked: str | None) -> Iterator[Pair]:
    """Every variant with the baseline of the same run at the same lead. InputError for a baseline that is not there."""
    names = dict.fromkeys(result.variant for _, run in side.runs for result in run.results)
    if asked is not None and asked not in names:
        what = "this run" if len(side.runs) == 1 else "these runs"
        raise InputError(f"--baseline {asked!r}: no such variant in {what}{did_you_mean(asked, names)}")
    for where, found in side.results.items():
        base_name = _baseline(list(dict.fromkeys(variant for variant, _ in found)), asked)
        if base_name is None:
            yield Pair(*where, None, (asked or "", ()), (side.label, ()), False, "", f"{asked} was not run on it")
            continue
        for (variant, lead_ms), candidates in found.items():
            if variant != base_name:
                yield _within(side, where, (base_name, variant), lead_ms, candidates)


def between(first: Side, other: Side) -> Iterator[Pair]:
    """Every variant with itself on the other side; what one side lacks altogether is one pair."""
    for where in dict.fromkeys([*first.results, *other.results]):
        before, after = (side.results.get(where, {}) for side in (first, other))
        if not before or not after:
            lacking = other if before else first
            why = f"{lacking.label} has no {where[0]} in scope {where[1]}"
            yield Pair(*where, None, (first.label, ()), (other.label, ()), False, "", why)
            continue
        variants = {variant for variant, _ in before} & {variant for variant, _ in after}
        leads = {lead for _, lead in before} & {lead for _, lead in after}
        for has, lacks in ((before, other), (after, first)):
            for variant in dict.fromkeys(variant for variant, _ in has if variant not in variants):
                names = (f"{variant} ({side.label})" for side in (first, other))
                base, cand = ((name, ()) for name in names)
                yield Pair(*where, None, base, cand, False, variant, f"not in {lacks.label}")
            missing = [f"{lead:g}" for lead in dict.fromkeys(lead for _, lead in has) if lead not in leads]
            if missing:
                why = f"{lacks.label} has no lead of {' or '.join(missing)} ms"
                yield Pair(*where, None, (first.label, ()), (other.label, ()), False, "", why)
        for which in dict.fromkeys([*before, *after]):
            if which[0] in variants and which[1] in leads:
                yield _between(first, other, where, which)


def environment_differences(sides: Sequence[Side]) -> Iterator[str]:
    """Every field of the environment in which the runs differ, with its values and the runs that have each."""
    runs = [(_run_label(side, label), _flat(run.environment)) for side in sides for label, run in side.runs]
    for key in dict.fromkeys(key for _, flat in runs for key in flat):
        values: dict[str, list[str]] = {}
        for label, flat in runs:
            values.setdefault(str(flat.get(key, "none")), []).append(label)
        if len(values) > 1:
            yield f"{key}: {', '.join(f'{value} ({_some(labels)})' for value, labels in values.items())}"


def _baseline(names: Sequence[str], asked: str | None) -> str | None:
    if asked is not None:
        return asked if asked in names else None
    return DEFAULT_BASELINE if DEFAULT_BASELINE in names else next(iter(names), None)


def _within(side: Side, where: Where, names: tuple[str, str], lead_ms: float, candidates: Mapping[int, Result]) -> Pair:
    base_name, variant = names
    baselines = side.results[where].get((base_name, lead_ms), {})
    both = [index for index in baselines if index in candidates]
    alone = len(baselines.keys() ^ candidates.keys())
    if not both:
        return Pair(
            *where,
            lead_ms,
            (base_name, tuple(baselines.values())),
            (variant, tuple(candidates.values())),
            False,
            variant,
            f"no run has both {base_name} and {variant} at this lead" if len(side.runs) > 1 else "",
        )
    base, cand = (tuple(found[index] for index in both) for found in (baselines, candidates))
    return Pair(
        *where,
        lead_ms,
        (base_name, base),
        (variant, cand),
        paired=True,
        variant=variant,
        obstacle=_obstacle([side.runs[index][1] for index in both], where[0], [*base, *cand], machines_may_differ=True),
        note=_left_out(alone, alone + len(both), where, (variant, lead_ms)),
    )


def _between(first: Side, other: Side, where: Where, which: Which) -> Pair:
    base, cand = (side.results[where].get(which, {}) for side in (first, other))
    runs = [side.runs[index][1] for side, found in ((first, base), (other, cand)) for index in found]
    several = len(base) > 1 and len(cand) > 1
    return Pair(
        *where,
        which[1],
        (f"{which[0]} ({first.label})", tuple(base.values())),
        (f"{which[0]} ({other.label})", tuple(cand.values())),
        paired=False,
        variant=which[0],
        obstacle=_obstacle(runs, where[0], [*base.values(), *cand.values()], machines_may_differ=several)
        if base and cand
        else "",
        note="; ".join(
            filter(
                None,
                (
                    _left_out(len(side.runs) - len(found), len(side.runs), where, which, f" of {side.label}")
                    for side, found in ((first, base), (other, cand))
                ),
            )
        ),
    )


def _left_out(lacking: int, runs: int, where: Where, which: Which, of: str = "") -> str:
    """What is said where some of a side's runs cannot take part."""
    if lacking in (0, runs):
        return ""  # nothing is left out, or the row says so itself
    return f"{which[0]} on {where[0]} at lead {which[1]:g} ms: not in {lacking} of {runs} runs{of}, which are left out"


def _obstacle(runs: Sequence[Run], workload: str, results: Sequence[Result], machines_may_differ: bool) -> str:
    """Why the times of ``results`` must not be compared or pooled; "" where they may. One or two results a run."""
    times = [result.time for result in results if result.time is not None]
    if len(times) < len(results):
        return ""  # said of the side that lacks them
    if len({time.modelled for time in times}) > 1:
        return "modelled times are not compared with measured ones"
    first = runs[0]
    changed = [
        key
        for run in runs[1:]
        for key in _changed_keys(first.workloads.get(workload, {}), run.workloads.get(workload, {}))
    ]
    if changed:
        return f"different workload: {', '.join(dict.fromkeys(changed))}"
    must_agree = [_must_agree(run.environment, machines_may_differ) for run in runs]
    different = [
        name for name in must_agree[0] if any(found.get(name) != must_agree[0][name] for found in must_agree[1:])
    ]
    different += [
        name
        for name, values in (
            ("harness", {result.harness for result in results}),
            ("profiled", {time.profiled for time in times}),
        )
        if len(values) > 1
    ]
    return f"different {', '.join(different)}" if different else ""


def _must_agree(environment: Environment, machines_may_differ: bool) -> dict[str, Any]:
    """What must be the same for two times to be comparable. A model does not depend on the machine it runs on.

    Several runs a side may come from several machines: what those differ by is the level of the run.
    """
    device = environment.device
    always = {
        "device": (device.kind, device.name),
        "device profile": device.profile,
        "mtp-bench version": environment.packages.get("mtp-bench"),
    }
    if device.modelled:
        return always
    always |= {name: environment.cuda_env.get(name) for name in _DECISIVE_VARIABLES}
    if machines_may_differ:
        return always
    return {**always, "CPU": (environment.cpu.model, environment.cpu.count), "affinity": environment.cpu.affinity}


def _changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [key for key in dict.fromkeys([*before, *after]) if key not in _WORDS and before.get(key) != after.get(key)]


def _flat(environment: Environment) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in environment.model_dump().items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            flat[key] = value
    return {key: value for key, value in flat.items() if value is not None}


def _run_label(side: Side, label: str) -> str:
    return side.label if len(side.runs) == 1 else f"{side.label}: {label}"


def _some(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:3])
    return shown if len(labels) <= 3 else f"{shown} and {len(labels) - 3} more"
