"""Which results are compared with which, and what some runs lack: no torch, no I/O, no rendering."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtp_bench.compare.obstacles import obstacle
from mtp_bench.errors import InputError, did_you_mean
from mtp_bench.results import Environment, Result, Run

DEFAULT_BASELINE = "original"
_SHOWN = 3  # of many runs or values, named in one sentence

Where = tuple[str, str]  # workload, scope
Which = tuple[str, float]  # variant, lead_ms
Wanted = Callable[[Where, Which], bool]


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

    def wanted(self, where: Where, wanted: Wanted) -> dict[Which, Mapping[int, Result]]:
        """What there is of a workload and scope, as far as it is wanted."""
        return {which: found for which, found in self.results.get(where, {}).items() if wanted(where, which)}

    def measured(self, results: Mapping[int, Result]) -> list[tuple[Run, Result]]:
        """Results with their runs."""
        return [(self.runs[index][1], result) for index, result in results.items()]


def baseline_variant(run: Run, workload: str, asked: str | None = None) -> str | None:
    """The variant that the others are compared with: the one asked for, else ``original``, else the first."""
    return _baseline(list(dict.fromkeys(r.variant for r in run.results if r.workload == workload)), asked)


def within(side: Side, asked: str | None, wanted: Wanted) -> Iterator[Pair]:
    """Every wanted variant with the baseline of the same run at the same lead. InputError for an unknown baseline."""
    names = dict.fromkeys(result.variant for _, run in side.runs for result in run.results)
    if asked is not None and asked not in names:
        what = "this run" if len(side.runs) == 1 else "these runs"
        raise InputError(f"--baseline {asked!r}: no such variant in {what}{did_you_mean(asked, names)}")
    for where, found in side.results.items():
        variants = list(dict.fromkeys(variant for variant, _ in found))
        leads = list(dict.fromkeys(lead for _, lead in found))
        base_name = _baseline(variants, asked)
        if base_name is None:
            if side.wanted(where, wanted):
                yield Pair(*where, None, (asked or "", ()), (side.label, ()), False, "", f"{asked} was not run on it")
            continue
        for which in dict.fromkeys([*found, *((variant, lead) for variant in variants for lead in leads)]):
            if which[0] != base_name and wanted(where, which) and (which in found or (base_name, which[1]) in found):
                yield _within(side, where, base_name, which)


def between(first: Side, other: Side, wanted: Wanted) -> Iterator[Pair]:
    """Every wanted variant with itself on the other side; what one side lacks altogether is one pair."""
    for where in dict.fromkeys([*first.results, *other.results]):
        before, after = (side.wanted(where, wanted) for side in (first, other))
        if not (before or after):
            continue
        if where not in first.results or where not in other.results:
            lacking = other if where in first.results else first
            why = f"{lacking.label} has no {where[0]} in scope {where[1]}"
            yield Pair(*where, None, (first.label, ()), (other.label, ()), False, "", why)
            continue
        variants = {variant for variant, _ in before} & {variant for variant, _ in after}
        leads = {lead for variant, lead in before if variant in variants} & {
            lead for variant, lead in after if variant in variants
        }
        for has, lacks in ((before, other), (after, first)):
            for variant in dict.fromkeys(variant for variant, _ in has if variant not in variants):
                base, cand = ((f"{variant} ({side.label})", ()) for side in (first, other))
                yield Pair(*where, None, base, cand, False, variant, f"not in {lacks.label}")
            missing = dict.fromkeys(lead for variant, lead in has if variant in variants and lead not in leads)
            if missing:
                why = f"{lacks.label} has no lead of {' or '.join(f'{lead:g}' for lead in missing)} ms"
                yield Pair(*where, None, (first.label, ()), (other.label, ()), False, "", why)
        for which in dict.fromkeys([*before, *after]):
            if which[0] in variants and which[1] in leads:
                yield _between(first, other, where, which)


def comparable(sides: Sequence[Side], asked: str | None) -> Iterator[tuple[Where, Which]]:
    """All that can be a candidate: of one side, whatever is not its baseline."""
    for side in sides:
        for where, found in side.results.items():
            base_name = _baseline([variant for variant, _ in found], asked) if len(sides) == 1 else None
            yield from ((where, which) for which in found if which[0] != base_name)


def environment_differences(sides: Sequence[Side]) -> Iterator[str]:
    """Every field of the environment in which the runs differ, with its values and the runs that have each."""
    runs = [(run_label(side, label), _flat(run.environment)) for side in sides for label, run in side.runs]
    for key in dict.fromkeys(key for _, flat in runs for key in flat):
        values: dict[str, list[str]] = {}
        for label, flat in runs:
            values.setdefault(str(flat.get(key, "none")), []).append(label)
        if len(values) > 1:
            yield f"{key}: {some([f'{value} ({some(labels)})' for value, labels in values.items()], 2 * _SHOWN)}"


def _baseline(names: Sequence[str], asked: str | None) -> str | None:
    if asked is not None:
        return asked if asked in names else None
    return DEFAULT_BASELINE if DEFAULT_BASELINE in names else next(iter(names), None)


def _within(side: Side, where: Where, base_name: str, which: Which) -> Pair:
    """Only runs that have both take part, if there are any."""
    variant, lead_ms = which
    found = side.results[where]
    baselines, candidates = found.get((base_name, lead_ms), {}), found.get(which, {})
    both = [index for index in baselines if index in candidates]
    why = f"no run has both {base_name} and {variant} at this lead" if baselines and candidates else ""
    if both:
        baselines, candidates = ({index: results[index] for index in both} for results in (baselines, candidates))
        why = obstacle(where[0], side.measured(baselines) + side.measured(candidates))
    return Pair(
        *where,
        lead_ms,
        (base_name, tuple(baselines.values())),
        (variant, tuple(candidates.values())),
        paired=bool(both),
        variant=variant,
        obstacle=why,
    )


def _between(first: Side, other: Side, where: Where, which: Which) -> Pair:
    base, cand = (side.results[where].get(which, {}) for side in (first, other))
    return Pair(
        *where,
        which[1],
        (f"{which[0]} ({first.label})", tuple(base.values())),
        (f"{which[0]} ({other.label})", tuple(cand.values())),
        paired=False,
        variant=which[0],
        obstacle=obstacle(where[0], first.measured(base), other.measured(cand)) if base and cand else "",
    )


def _flat(environment: Environment) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in environment.model_dump().items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            flat[key] = value
    return {key: value for key, value in flat.items() if value is not None}


def run_label(side: Side, label: str) -> str:
    """What a run of a side is called where all sides are spoken of."""
    return side.label if len(side.runs) == 1 else f"{side.label}: {label}"


def some(texts: Sequence[str], most: int = _SHOWN) -> str:
    """``a, b, c and 4 more``."""
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most} more"


def leads_in_words(leads_ms: Sequence[float]) -> str:
    """``lead 1 ms``, ``leads 0, 1 and 10 ms``."""
    *first, last = (f"{lead:g}" for lead in leads_ms)
    return f"leads {', '.join(first)} and {last} ms" if first else f"lead {last} ms"
