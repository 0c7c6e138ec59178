"""Compare a baseline with candidates, variants of one run or runs with each other: differences, verdicts, the headline.

No torch, no I/O, no rendering. Differences are candidate less baseline, of medians, in nanoseconds a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mtp_bench.differences import Difference, Verdict, difference, finite, median_ns, verdict
from mtp_bench.errors import InputError
from mtp_bench.headline import headline
from mtp_bench.pairs import Pair, Side, between, environment_differences, within
from mtp_bench.results import Result, Run, Site, write_number

__all__ = [
    "GATES",
    "Comparison",
    "Row",
    "SiteChange",
    "compare",
    "headline",
    "site_changes",
    "to_json",
]

SCHEMA_VERSION = 1
GATES = ("slower", "syncs", "values")

_VALUES_RANK = {"equal": 0, "close": 1, "differs": 2, "nan": 3}


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
    """One candidate against its baseline, on one workload at one lead.

    What one of two runs lacks is one row without results, as ``Pair`` has it.
    """

    workload: str
    scope: str
    lead_ms: float | None
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
    undecided: tuple[str, ...] = ()  # what the gate had nothing to judge by
    gates: tuple[str, ...] = ()
    baseline_run: str = ""  # what the first run is called; "" where one run is compared within
    notes: tuple[str, ...] = ()  # what was left out

    @property
    def passed(self) -> bool:
        """Whether the gates that were asked for hold; True where none was."""
        return not self.failures and (not self.gates or self.exit_code == 0)

    @property
    def exit_code(self) -> int:
        """0 passed, 1 a gate failed, 3 something could not be compared, or a gate cannot tell."""
        if self.failures:
            return 1
        if self.undecided:
            return 3
        cannot_tell = {"incomparable", "unclear"} if "slower" in self.gates else {"incomparable"}
        return 3 if any(row.verdict in cannot_tell for row in self.rows) else 0


def compare(runs: Sequence[tuple[str, Run]], baseline: str | None = None, gates: Sequence[str] = ()) -> Comparison:
    """Compare the variants of one run with ``baseline``, or every further run with the first, variant by variant.

    ``runs`` are (label, run). ``gates`` are of ``GATES``. Raises InputError for a baseline that is not there.
    """
    for gate in gates:
        if gate not in GATES:
            raise InputError(f"--fail-on {gate!r}: use {', '.join(GATES)}")
    if len(runs) == 1:
        pairs = list(within(runs[0][1], baseline))
        differences: tuple[str, ...] = ()
    else:
        if baseline is not None:
            raise InputError("--baseline names a variant of one run; of several runs the first is the baseline")
        first, *others = (Side.of(run, label) for label, run in runs)
        pairs = [pair for other in others for pair in between(first, other)]
        differences = tuple(text for other in others for text in environment_differences(first, other))
    rows = tuple(_row(pair) for pair in pairs if not pair.skipped)
    failures = tuple(failure for row in rows for failure in _gate_failures(row, gates))
    undecided = tuple(_undecided(rows, gates))
    baseline_run = runs[0][0] if len(runs) > 1 else ""
    return Comparison(rows, differences, failures, undecided, tuple(gates), baseline_run, tuple(_left_out(pairs)))


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
        "notes": list(comparison.notes),
        "gate": {
            "passed": comparison.passed,
            "failures": list(comparison.failures),
            "undecided": list(comparison.undecided),
        },
    }


def _left_out(pairs: Sequence[Pair]) -> Iterator[str]:
    skipped = list(dict.fromkeys(f"{pair.candidate[0]} on {pair.workload}" for pair in pairs if pair.skipped))
    if skipped:
        yield f"left out, since skipped on both sides: {', '.join(skipped)}"


def _row(pair: Pair) -> Row:
    (base_name, base), (cand_name, cand) = pair.baseline, pair.candidate
    added, removed = site_changes(base, cand) if base and cand and base.syncs and cand.syncs else ((), ())
    found: Difference | None = None
    result: tuple[Verdict, str]
    why_not = pair.obstacle or _no_time(base_name, base) or _no_time(cand_name, cand)
    if why_not:
        result = "incomparable", why_not
    else:
        assert base is not None
        assert cand is not None
        assert base.time is not None
        assert cand.time is not None
        found = difference(base.time, cand.time, pair.paired)
        result = verdict(found, median_ns(base.time), _modelled(base))
        if found.dropped:
            result = result[0], "; ".join(filter(None, [result[1], f"{found.dropped} throttled windows left out"]))
    return Row(
        pair.workload,
        pair.scope,
        pair.lead_ms,
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
    if result.time is None:
        return f"{name} has no times"
    return "" if finite(result.time) else f"{name} has step times that are not finite"


def _gate_failures(row: Row, gates: Sequence[str]) -> Iterator[str]:
    where = f"{row.candidate} on {row.workload}" + ("" if row.lead_ms is None else f" at lead {row.lead_ms:g} ms")
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


def _undecided(rows: Sequence[Row], gates: Sequence[str]) -> Iterator[str]:
    """What the gates on syncs and values lack; a row without times is incomparable, which says enough."""
    if gates and not rows:
        yield f"--fail-on {','.join(gates)}: nothing to compare"
    for gate, name in (("syncs", "syncs"), ("values", "numerics")):
        lacking = [
            side
            for row in rows
            for side, result in ((row.baseline, row.baseline_result), (row.candidate, row.candidate_result))
            if result is not None and result.status == "ok" and getattr(result, name) is None
        ]
        if gate in gates and lacking:
            yield f"--fail-on {gate}: no {gate} of {', '.join(dict.fromkeys(lacking))}"


def _row_json(row: Row) -> dict[str, Any]:
    base, cand, found = row.baseline_result, row.candidate_result, row.difference
    return {
        "workload": row.workload,
        "scope": row.scope,
        "lead_ms": _number(row.lead_ms),
        "baseline": row.baseline,
        "candidate": row.candidate,
        "modelled": row.modelled,
        "difference_us": _number(found.ns / 1e3) if found else None,
        "difference_ci_us": _ends(found.low, found.high, 1e3) if found else None,
        "ratio": _number(found.ratio) if found else None,
        "ci": _ends(found.ratio_low, found.ratio_high) if found else None,
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


def _ends(low: float | None, high: float | None, unit: float = 1.0) -> list[float | str | None] | None:
    return None if low is None or high is None else [_number(low / unit), _number(high / unit)]


def _number(value: float | None) -> float | str | None:
    return None if value is None else write_number(value)


def _sites(result: Result) -> dict[tuple[str, int, str, str], list[Site]]:
    sites: dict[tuple[str, int, str, str], list[Site]] = {}
    for site in result.syncs.sites if result.syncs else []:
        sites.setdefault((site.file, site.line, site.op, site.kind), []).append(site)
    return sites
