"""Compare a baseline with candidates, variants of one run or runs with each other: differences, verdicts, the headline.

No torch, no I/O, no rendering. Differences are candidate less baseline, of medians, in nanoseconds a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtp_bench.differences import Difference, Verdict, difference, median_ns, verdict
from mtp_bench.errors import InputError, did_you_mean
from mtp_bench.headline import headline
from mtp_bench.results import Environment, Result, Run, Site

__all__ = [
    "GATES",
    "Comparison",
    "Row",
    "SiteChange",
    "baseline_variant",
    "compare",
    "headline",
    "site_changes",
    "to_json",
]

SCHEMA_VERSION = 1
GATES = ("slower", "syncs", "values")
DEFAULT_BASELINE = "original"

_VALUES_RANK = {"equal": 0, "close": 1, "differs": 2, "nan": 3}
# Variables without which a step may take another time on the same machine.
_DECISIVE_VARIABLES = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
)
_WORDS = ("title", "source", "stand_in")  # keys of a workload that change nothing


@dataclass(frozen=True, slots=True)
class SiteChange:
    """A line with more (``count`` > 0) or fewer syncs a step than in the baseline."""

    file: str
    line: int
    code: str
    op: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate against its baseline, on one workload at one lead."""

    workload: str
    scope: str
    lead_ms: float
    baseline: str
    candidate: str
    modelled: bool
    verdict: Verdict
    reason: str
    difference: Difference | None
    baseline_result: Result | None
    candidate_result: Result | None
    added: tuple[SiteChange, ...] = ()
    removed: tuple[SiteChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows, and what differs between the environments of the baseline and each candidate."""

    rows: tuple[Row, ...]
    environment_differences: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()  # of the gate
    gates: tuple[str, ...] = ()
    baseline_run: str = ""  # what the first run is called; "" where one run is compared within

    @property
    def exit_code(self) -> int:
        """0 passed, 1 a gate failed, 3 something could not be compared, or the gate on time cannot tell."""
        if self.failures:
            return 1
        cannot_tell = {"incomparable", "unclear"} if "slower" in self.gates else {"incomparable"}
        return 3 if any(row.verdict in cannot_tell for row in self.rows) else 0


@dataclass(frozen=True)
class _Side:
    """A run and what its rows are called."""

    run: Run
    label: str
    results: Mapping[tuple[str, str, str, float], Result] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, label: str) -> _Side:
        return cls(run, label, {(str(r.workload), str(r.scope), r.variant, r.lead_ms): r for r in run.results})


def compare(runs: Sequence[tuple[str, Run]], baseline: str | None = None, gates: Sequence[str] = ()) -> Comparison:
    """Compare the variants of one run with ``baseline``, or every further run with the first, variant by variant.

    ``runs`` are (label, run). ``gates`` are of ``GATES``. Raises InputError for a baseline that is not there.
    """
    for gate in gates:
        if gate not in GATES:
            raise InputError(f"--fail-on {gate!r}: use {', '.join(GATES)}")
    if len(runs) == 1:
        rows = tuple(_within(runs[0][1], baseline))
        differences: tuple[str, ...] = ()
    else:
        if baseline is not None:
            raise InputError("--baseline names a variant of one run; of several runs the first is the baseline")
        first, *others = (_Side.of(run, label) for label, run in runs)
        rows = tuple(row for other in others for row in _between(first, other))
        differences = tuple(text for other in others for text in _environment_differences(first, other))
    failures = tuple(failure for row in rows for failure in _gate_failures(row, gates))
    return Comparison(rows, differences, failures, tuple(gates), runs[0][0] if len(runs) > 1 else "")


def baseline_variant(run: Run, workload: str, asked: str | None = None) -> str | None:
    """The variant that the others are compared with: the one asked for, else ``original``, else the first."""
    names = list(dict.fromkeys(result.variant for result in run.results if result.workload == workload))
    if asked is not None:
        return asked if asked in names else None
    return DEFAULT_BASELINE if DEFAULT_BASELINE in names else next(iter(names), None)


def site_changes(baseline: Result, candidate: Result) -> tuple[tuple[SiteChange, ...], tuple[SiteChange, ...]]:
    """Lines with more, and lines with fewer syncs than in the baseline."""
    before, after = _sites(baseline), _sites(candidate)
    keys = list(dict.fromkeys([*before, *after]))
    changes = []
    for key in keys:
        count = sum(site.count for site in after.get(key, [])) - sum(site.count for site in before.get(key, []))
        site = (after.get(key) or before[key])[0]
        changes.append(SiteChange(site.file, site.line, site.code, site.op, site.kind, count))
    return tuple(c for c in changes if c.count > 0), tuple(c for c in changes if c.count < 0)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """``compare --format json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "rows": [_row_json(row) for row in comparison.rows],
        "environment_differences": list(comparison.environment_differences),
        "gate": {"passed": comparison.exit_code == 0, "failures": list(comparison.failures)},
    }


def _within(run: Run, asked: str | None) -> Iterator[Row]:
    names = {result.variant for result in run.results}
    if asked is not None and asked not in names:
        raise InputError(f"--baseline {asked!r}: no such variant in this run{did_you_mean(asked, names)}")
    side = _Side.of(run, "")
    for (workload, scope, variant, lead_ms), result in side.results.items():
        base_name = baseline_variant(run, workload, asked)
        if base_name is None or variant == base_name:
            continue
        base = side.results.get((workload, scope, base_name, lead_ms))
        yield _row((workload, scope, lead_ms), (base_name, base), (variant, result), paired=True, obstacle="")


def _between(first: _Side, other: _Side) -> Iterator[Row]:
    for key in dict.fromkeys([*first.results, *other.results]):
        workload, scope, variant, lead_ms = key
        base, cand = first.results.get(key), other.results.get(key)
        if base is not None and cand is not None and base.status == cand.status == "skipped":
            continue
        yield _row(
            (workload, scope, lead_ms),
            (f"{variant} ({first.label})", base),
            (f"{variant} ({other.label})", cand),
            paired=False,
            obstacle=_obstacle(first.run, other.run, workload, base, cand),
        )


def _row(
    where: tuple[str, str, float],
    baseline: tuple[str, Result | None],
    candidate: tuple[str, Result | None],
    paired: bool,
    obstacle: str,
) -> Row:
    workload, scope, lead_ms = where
    (base_name, base), (cand_name, cand) = baseline, candidate
    added, removed = site_changes(base, cand) if base and cand and base.syncs and cand.syncs else ((), ())
    found: Difference | None = None
    result: tuple[Verdict, str]
    why_not = _no_time(base_name, base) or _no_time(cand_name, cand) or obstacle
    if why_not:
        result = "incomparable", why_not
    else:
        assert base is not None
        assert cand is not None
        assert base.time is not None
        assert cand.time is not None
        found = difference(base.time, cand.time, paired)
        result = verdict(found, median_ns(base.time), _modelled(base))
        if found.dropped:
            result = result[0], "; ".join(filter(None, [result[1], f"{found.dropped} throttled windows left out"]))
    return Row(
        workload,
        scope,
        lead_ms,
        base_name,
        cand_name,
        _modelled(base or cand),
        *result,
        found,
        base,
        cand,
        added,
        removed,
    )


def _modelled(result: Result | None) -> bool:
    return bool(result and result.time and result.time.modelled)


def _no_time(name: str, result: Result | None) -> str:
    if result is None:
        return f"{name} is not in the run"
    if result.status != "ok":
        return f"{name} {result.status}"
    return "" if result.time is not None else f"{name} has no times"


def _obstacle(first: Run, other: Run, workload: str, base: Result | None, cand: Result | None) -> str:
    """Why the times of two runs must not be compared; "" where they may."""
    if base is None or cand is None:
        return ""
    changed = _changed_keys(first.workloads.get(workload, {}), other.workloads.get(workload, {}))
    if changed:
        return f"different workload: {', '.join(changed)}"
    before = {**_must_agree(first.environment), "harness": base.harness, "profiled": base.time and base.time.profiled}
    after = {**_must_agree(other.environment), "harness": cand.harness, "profiled": cand.time and cand.time.profiled}
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


def _environment_differences(first: _Side, other: _Side) -> Iterator[str]:
    before, after = _flat(first.run.environment), _flat(other.run.environment)
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key):
            yield f"{key}: {before.get(key, 'none')} ({first.label}), {after.get(key, 'none')} ({other.label})"


def _flat(environment: Environment) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in environment.model_dump().items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            flat[key] = value
    return {key: value for key, value in flat.items() if value is not None}


def _gate_failures(row: Row, gates: Sequence[str]) -> Iterator[str]:
    where = f"{row.candidate} on {row.workload} at lead {row.lead_ms:g} ms"
    if "slower" in gates and row.verdict == "slower" and row.difference is not None:
        yield f"{where}: slower than {row.baseline} by {row.difference.ns / 1e3:,.1f} us a step"
    base, cand = row.baseline_result, row.candidate_result
    if base is None or cand is None:
        return
    if "syncs" in gates and base.syncs and cand.syncs and cand.syncs.count > base.syncs.count:
        yield f"{where}: {cand.syncs.count} syncs a step, {row.baseline} has {base.syncs.count}"
    if "values" in gates and base.numerics and cand.numerics:
        before, after = base.numerics.status, cand.numerics.status
        if _VALUES_RANK[after] > max(_VALUES_RANK[before], _VALUES_RANK["close"]):
            yield f"{where}: values {after}, those of {row.baseline} {before}"


def _row_json(row: Row) -> dict[str, Any]:
    base, cand, found = row.baseline_result, row.candidate_result, row.difference
    return {
        "workload": row.workload,
        "scope": row.scope,
        "lead_ms": row.lead_ms,
        "baseline": row.baseline,
        "candidate": row.candidate,
        "modelled": row.modelled,
        "difference_ns": found.ns if found else None,
        "difference_ci_ns": _pair(found.low, found.high) if found else None,
        "ratio": found.ratio if found and math.isfinite(found.ratio) else None,
        "ci": _pair(found.ratio_low, found.ratio_high) if found else None,
        "p": None,
        "verdict": row.verdict,
        "reason": row.reason,
        "syncs": {
            "baseline": base.syncs.count if base and base.syncs else None,
            "candidate": cand.syncs.count if cand and cand.syncs else None,
            "added": [_change_json(change) for change in row.added],
            "removed": [_change_json(change) for change in row.removed],
        },
        "values": {
            "baseline": base.numerics.status if base and base.numerics else None,
            "candidate": cand.numerics.status if cand and cand.numerics else None,
        },
    }


def _change_json(change: SiteChange) -> dict[str, Any]:
    return {
        "file": change.file,
        "line": change.line,
        "code": change.code,
        "op": change.op,
        "kind": change.kind,
        "count": abs(change.count),
    }


def _pair(low: float | None, high: float | None) -> list[float] | None:
    return None if low is None or high is None else [low, high]


def _sites(result: Result) -> dict[tuple[str, int, str, str], list[Site]]:
    sites: dict[tuple[str, int, str, str], list[Site]] = {}
    for site in result.syncs.sites if result.syncs else []:
        sites.setdefault((site.file, site.line, site.op, site.kind), []).append(site)
    return sites
