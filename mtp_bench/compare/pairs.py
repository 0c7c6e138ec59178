"""Which results are compared with which, and what some runs lack: no torch, no I/O, no rendering."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from mtp_bench.compare.jobs import SLOWEST, Rank, Replicate, replicates
from mtp_bench.compare.obstacles import obstacle
from mtp_bench.errors import InputError, did_you_mean
from mtp_bench.results import Environment, Result, Run

DEFAULT_BASELINE = "original"
_SHOWN = 3  # of many runs or values, named in one sentence

Where = tuple[str, str]  # workload, scope
One = tuple[Run, Result]


class Which(NamedTuple):
    """What is compared with what: the same variant, lead and rank."""

    variant: str
    lead_ms: float
    rank: Rank = None


Wanted = Callable[[Where, Which], bool]


@dataclass(frozen=True, slots=True)
class Pair:
    """A candidate and its baseline, each a name and its results, one a run or job; ``obstacle``: why none are compared.

    ``rank`` is one of ``ranks`` that are there of a job with several, which are 0 else; a job's lead is its own, and
    ``lead_ms`` None. What one of two sides lacks altogether is one pair without a lead and without results: a variant,
    or, named as the sides are, the whole workload or leads of it.
    """

    workload: str
    scope: str
    lead_ms: float | None
    baseline: tuple[str, tuple[Result, ...]]
    candidate: tuple[str, tuple[Result, ...]]
    paired: bool  # every run holds both
    variant: str = ""  # the candidate's
    obstacle: str = ""
    rank: Rank = None
    ranks: int = 0

    @property
    def skipped(self) -> bool:
        """Neither side could run here, which is no finding about either."""
        sides = self.baseline[1], self.candidate[1]
        return all(side and all(result.status == "skipped" for result in side) for side in sides)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a run, or several that are pooled. ``runs`` are (label, run).

    ``replicates`` are what counts once; ``results`` are theirs, by workload and scope, then by variant, lead and rank,
    then by the replicate's index.
    """

    label: str
    runs: tuple[tuple[str, Run], ...]
    replicates: tuple[Replicate, ...] = ()
    results: Mapping[Where, Mapping[Which, Mapping[int, One]]] = field(default_factory=dict)

    def wanted(self, where: Where, wanted: Wanted) -> dict[Which, Mapping[int, One]]:
        """What there is of a workload and scope, as far as it is wanted."""
        return {which: found for which, found in self.results.get(where, {}).items() if wanted(where, which)}

    @cached_property
    def of_one_rank(self) -> bool:
        """Whether its jobs have one rank each."""
        return all(run.job is None or run.job.world_size == 1 for _, run in self.runs)

    @cached_property
    def ranks(self) -> Mapping[Where, frozenset[int]]:
        """The ranks of jobs that have results."""
        return {
            where: frozenset(which.rank for which in found if isinstance(which.rank, int))
            for where, found in self.results.items()
        }


def sides_of(sides: Sequence[tuple[str, Sequence[tuple[str, Run]]]]) -> list[Side]:
    """Sort out the runs of every side: jobs, and where any job has several ranks here, its slowest rank."""
    found = [(label, tuple(runs), replicates(runs)) for label, runs in sides]
    several = {
        (result.workload, result.scope)
        for _, _, of_side in found
        for replicate in of_side
        if len(replicate.ranks) > 1
        for _, run in replicate.runs
        for result in run.results
    }
    return [Side(label, runs, of_side, _sorted_out(of_side, several)) for label, runs, of_side in found]


def _sorted_out(
    found: Sequence[Replicate], several_ranks: Collection[Where]
) -> dict[Where, dict[Which, dict[int, One]]]:
    results: dict[Where, dict[Which, dict[int, One]]] = {}
    for index, replicate in enumerate(found):
        for rank, run, result in replicate.results(several_ranks):
            where = result.workload, result.scope
            which = Which(result.variant, result.lead_ms, rank)
            results.setdefault(where, {}).setdefault(which, {})[index] = run, result
    return {where: _by_rank(of_where) if where in several_ranks else of_where for where, of_where in results.items()}


def _by_rank(results: Mapping[Which, dict[int, One]]) -> dict[Which, dict[int, One]]:
    """Variants in the order of the runs, each with its slowest rank first and then rank by rank."""
    variants = list(dict.fromkeys(which.variant for which in results))
    ordered = sorted(results, key=lambda which: (variants.index(which.variant), _rank_order(which.rank)))
    return {which: results[which] for which in ordered}


def _rank_order(rank: Rank) -> int:
    return rank if isinstance(rank, int) else -1


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
        variants = list(dict.fromkeys(which.variant for which in found))
        conditions = list(dict.fromkeys((which.lead_ms, which.rank) for which in found))
        base_name = _baseline(variants, asked)
        if base_name is None:
            if side.wanted(where, wanted):
                yield Pair(*where, None, (asked or "", ()), (side.label, ()), False, "", f"{asked} was not run on it")
            continue
        for which in dict.fromkeys([*found, *(Which(name, *at) for name in variants for at in conditions)]):
            there = which in found or which._replace(variant=base_name) in found
            if which.variant != base_name and wanted(where, which) and there:
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
        variants = {which.variant for which in before} & {which.variant for which in after}
        leads = {which.lead_ms for which in before if which.variant in variants} & {
            which.lead_ms for which in after if which.variant in variants
        }
        for has, lacks in ((before, other), (after, first)):
            for variant in dict.fromkeys(which.variant for which in has if which.variant not in variants):
                base, cand = ((f"{variant} ({side.label})", ()) for side in (first, other))
                yield Pair(*where, None, base, cand, False, variant, f"not in {lacks.label}")
            missing = dict.fromkeys(
                which.lead_ms for which in has if which.variant in variants and which.lead_ms not in leads
            )
            if missing:
                why = f"{lacks.label} has no lead of {' or '.join(f'{lead:g}' for lead in missing)} ms"
                yield Pair(*where, None, (first.label, ()), (other.label, ()), False, "", why)
        for which in dict.fromkeys([*before, *after]):
            if which.variant in variants and which.lead_ms in leads:
                yield _between(first, other, where, which)


def comparable(sides: Sequence[Side], asked: str | None) -> Iterator[tuple[Where, Which]]:
    """All that can be a candidate: of one side, whatever is not its baseline."""
    for side in sides:
        for where, found in side.results.items():
            base_name = _baseline([which.variant for which in found], asked) if len(sides) == 1 else None
            yield from ((where, which) for which in found if which.variant != base_name)


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
    found = side.results[where]
    baselines, candidates = found.get(which._replace(variant=base_name), {}), found.get(which, {})
    both = [index for index in baselines if index in candidates]
    at = "at this lead" if which.rank is None else "in the job" if which.rank == SLOWEST else f"on rank {which.rank}"
    why = f"no run has both {base_name} and {which.variant} {at}" if baselines and candidates else ""
    if both:
        baselines, candidates = ({index: results[index] for index in both} for results in (baselines, candidates))
        why = obstacle(where[0], [*baselines.values(), *candidates.values()])
    return Pair(
        *where,
        None if where[1] == "job" else which.lead_ms,
        (base_name, tuple(result for _, result in baselines.values())),
        (which.variant, tuple(result for _, result in candidates.values())),
        paired=bool(both),
        variant=which.variant,
        obstacle=why,
        rank=which.rank,
        ranks=_ranks(where, side),
    )


def _between(first: Side, other: Side, where: Where, which: Which) -> Pair:
    base, cand = (list(side.results[where].get(which, {}).values()) for side in (first, other))
    return Pair(
        *where,
        None if where[1] == "job" else which.lead_ms,
        (f"{which.variant} ({first.label})", tuple(result for _, result in base)),
        (f"{which.variant} ({other.label})", tuple(result for _, result in cand)),
        paired=False,
        variant=which.variant,
        obstacle=obstacle(where[0], base, cand) if base and cand else "",
        rank=which.rank,
        ranks=_ranks(where, first, other),
    )


def _ranks(where: Where, *sides: Side) -> int:
    """How many ranks of a job with several are there."""
    if all(side.of_one_rank for side in sides):
        return 0
    return len(frozenset().union(*(side.ranks.get(where, frozenset()) for side in sides)))


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
