"""``compare --format json``: the comparison as one document whose names scripts rely on."""

from __future__ import annotations

from typing import Any

from mtp_bench.compare import Comparison, Difference, Row
from mtp_bench.compare.cautions import Caution
from mtp_bench.compare.sites import SiteChange
from mtp_bench.compare.summary import summary
from mtp_bench.report.groups import row_notes
from mtp_bench.results import write_number

SCHEMA_VERSION = 1


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The comparison in JSON's types. Times end in their unit; numbers that are not finite are strings."""
    judgement = comparison.judgement
    return {
        "schema_version": SCHEMA_VERSION,
        "summary": summary(comparison),
        "command": comparison.command,
        "threshold": {"us": comparison.threshold.ns / 1e3, "percent": comparison.threshold.fraction * 100},
        "sides": [{"label": side.label, "runs": [label for label, _ in side.runs]} for side in comparison.sides],
        "rows": [_row(row) for row in comparison.rows],
        "environment_differences": list(comparison.environment_differences),
        "warnings": [_caution(caution) for caution in comparison.cautions],
        "notes": list(comparison.notes),
        "gate": {
            "passed": judgement.passed,
            "gates": [gate.text for gate in judgement.gates],
            "failures": list(judgement.failures),
            "undecided": list(judgement.undecided),
        },
    }


def _row(row: Row) -> dict[str, Any]:
    finding = row.finding
    return {
        "workload": row.workload,
        "scope": row.scope,
        "variant": row.variant,
        "lead_ms": _number(row.lead_ms),
        "rank": row.rank,
        "baseline": row.baseline,
        "candidate": row.candidate,
        "modelled": row.modelled,
        **_difference(row, row.difference),
        "p": _number(row.p),
        "p_holm": _number(row.p_holm),
        "verdict": row.verdict,
        "reason": row.reason,
        "windows_to_decide": finding.windows_to_decide,
        "runs_to_decide": finding.runs_to_decide,
        "syncs": {
            **_sides(row.syncs),
            "added": [_change(change) for change in row.added],
            "removed": [_change(change) for change in row.removed],
            "moved": [{**_change(change), "moved_from": change.moved_from} for change in row.moved],
        },
        "values": _sides(row.values),
        "entry_lead_us": _microseconds(row.entry_lead_ns),
        "loss_us": _microseconds(row.loss_ns),
        "ops": _sides(row.ops),
        "memory": {"peak_bytes": _sides(row.peak_bytes)},
        "warnings": [_caution(caution) for caution in row.cautions],
        "notes": list(row_notes(row)),
    }


def _difference(row: Row, found: Difference | None) -> dict[str, Any]:
    if found is None:
        names = ("difference_us", "difference_ci_us", "ratio", "ci", "threshold_us", "step_us", "windows", "runs")
        return dict.fromkeys(names)
    return {
        "difference_us": _number(found.ns / 1e3),
        "difference_ci_us": _ends(found.low, found.high, 1e3),
        "ratio": _number(found.ratio),
        "ci": _ends(found.ratio_low, found.ratio_high),
        "threshold_us": _number(row.threshold.of(found.baseline_ns) / 1e3),
        "step_us": _sides((_number(found.baseline_ns / 1e3), _number(found.candidate_ns / 1e3))),
        "windows": _sides(found.windows),
        "runs": _sides(found.runs),
    }


def _sides(values: tuple[Any, Any]) -> dict[str, Any]:
    return {"baseline": values[0], "candidate": values[1]}


def _microseconds(sides: tuple[float | None, float | None]) -> dict[str, Any]:
    before, after = (None if ns is None else _number(ns / 1e3) for ns in sides)
    return _sides((before, after))


def _change(change: SiteChange) -> dict[str, Any]:
    return {
        "file": change.file,
        "line": change.line,
        "code": change.code,
        "op": change.op,
        "kind": change.kind,
        "count": abs(change.count),
        "before": change.before,
        "after": change.after,
    }


def _caution(caution: Caution) -> dict[str, str]:
    return {
        "kind": caution.kind.value,
        "subject": caution.subject,
        "detail": caution.detail,
        "advice": caution.advice,
    }


def _ends(low: float | None, high: float | None, unit: float = 1.0) -> list[float | str | None] | None:
    return None if low is None or high is None else [_number(low / unit), _number(high / unit)]


def _number(value: float | None) -> float | str | None:
    return None if value is None else write_number(value)
