"""What a report of a run shows, once for all formats: tables, leads, call sites and notes, still without layout."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtp_bench.compare import Difference, compare
from mtp_bench.compare.headline import preferred_lead
from mtp_bench.compare.pairs import baseline_variant
from mtp_bench.compare.verdicts import median_ns
from mtp_bench.report.words import NONE, microseconds, plural
from mtp_bench.results import Result, Run

# An idle GPU reaches what it is given after some 10 us; more than this is work that was queued before.
_OWN_LEAD_NS = 50_000.0
# Step times are shown in tenths of a microsecond.
_ROUNDING_NS = 100.0


@dataclass(frozen=True, slots=True)
class VariantRow:
    """One variant on one workload at the lead that is shown."""

    variant: str
    values: str  # equal, close, differs, nan, or failed, skipped
    syncs: int | None
    capturable: bool | None
    step_ns: float | None
    difference: Difference | None  # None for the baseline itself
    device_idle_ns: float | None
    bound: str  # "GPU-bound", "host-bound"; "" where modelled or not known


@dataclass(frozen=True, slots=True)
class LeadRow:
    """One variant at every lead: step time, the difference from the baseline at the same lead, and the host's side."""

    variant: str
    step_ns: tuple[float | None, ...]
    difference: tuple[Difference | None, ...]
    host_ns: tuple[float | None, ...]  # to enqueue a step, waits included
    lead_ns: tuple[float | None, ...]  # how far the host was ahead at the entry of a step


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """The tables of one workload."""

    name: str
    title: str
    scope: str  # "loss" with its ranks where there are several, or "step" with its harness
    lead_ms: float
    modelled: bool
    baseline: str
    rows: tuple[VariantRow, ...]
    leads_ms: tuple[float, ...]
    leads: tuple[LeadRow, ...]  # empty where nothing was timed
    steps_agree: str  # says so where no step time depends on the lead
    notes: tuple[str, ...]

    @property
    def host_known(self) -> bool:
        """Whether there is anything to show of the host's side."""
        return any(ns is not None for row in self.leads for ns in (*row.host_ns, *row.lead_ns))


@dataclass(frozen=True, slots=True)
class SiteReason:
    """Why a line waits, and how often a step on each workload."""

    kind: str
    op: str
    range: str
    counts: tuple[str, ...]  # "packed-sft: 8 in original, patched"


@dataclass(frozen=True, slots=True)
class SiteView:
    """One line of code that makes the host wait."""

    place: str
    function: str
    code: str
    reasons: tuple[SiteReason, ...]


_Differences = Mapping[tuple[str, str, float | None], Difference | None]  # by workload, variant and lead


def workload_views(run: Run) -> list[WorkloadView]:
    """The tables of a run, a workload each, in the order of the run."""
    rows = compare([("run", [("run", run)])]).rows
    differences = {(row.workload, row.variant, row.lead_ms): row.difference for row in rows}
    there = {result.workload for result in run.results}
    return [_workload(run, name, differences) for name in run.workloads if name in there]


def site_views(run: Run) -> list[SiteView]:
    """All lines that made the host wait, at the lead that is shown, with the variants that reach them."""
    counts: dict[tuple[str, int, str, str], dict[tuple[str, str, str], dict[str, dict[str, int]]]] = {}
    for result in run.results:
        if result.syncs is None or result.lead_ms != preferred_lead(run, result.workload):
            continue
        for site in result.syncs.sites:
            reasons = counts.setdefault((site.file, site.line, site.function, site.code), {})
            workloads = reasons.setdefault((site.kind, site.op, _range(site.range, site.phase)), {})
            variants = workloads.setdefault(result.workload, {})
            variants[result.variant] = variants.get(result.variant, 0) + site.count
    return [
        SiteView(
            f"{file}:{line}",
            function,
            code,
            tuple(
                SiteReason(*reason, tuple(f"{name}: {_by_count(found)}" for name, found in workloads.items()))
                for reason, workloads in reasons.items()
            ),
        )
        for (file, line, function, code), reasons in counts.items()
    ]


def _workload(run: Run, name: str, differences: _Differences) -> WorkloadView:
    lead_ms = preferred_lead(run, name)
    assert lead_ms is not None
    of_workload = [result for result in run.results if result.workload == name]
    leads_ms = tuple(dict.fromkeys(result.lead_ms for result in of_workload))
    by_key = {(result.variant, result.lead_ms): result for result in of_workload}
    variants = list(dict.fromkeys(result.variant for result in of_workload))
    baseline = baseline_variant(run, name) or ""
    shown = [by_key[variant, lead_ms] for variant in variants if (variant, lead_ms) in by_key]
    keys = run.workloads[name]
    timed = any(result.time for result in of_workload)
    leads = tuple(_lead_row(name, variant, leads_ms, by_key, differences) for variant in variants) if timed else ()
    return WorkloadView(
        name=name,
        title=str(keys.get("title", "")),
        scope=_scope(of_workload[0]),
        lead_ms=lead_ms,
        modelled=run.environment.device.modelled,
        baseline=baseline,
        rows=tuple(_row(result, differences) for result in shown),
        leads_ms=leads_ms,
        leads=leads,
        steps_agree=_steps_agree(leads, leads_ms, run.environment.device.modelled),
        notes=tuple(_notes(shown)),
    )


def _scope(result: Result) -> str:
    if result.ranks:
        return f"{result.scope}, slowest of {len(result.ranks)} context-parallel ranks"
    return f"step, harness {result.harness}" if result.scope == "step" else result.scope


def _row(result: Result, differences: _Differences) -> VariantRow:
    values = result.numerics.status if result.numerics else NONE
    return VariantRow(
        variant=result.variant,
        values=values if result.status == "ok" else result.status,
        syncs=result.syncs.count if result.syncs else None,
        capturable=result.graph_capture.possible if result.graph_capture else None,
        step_ns=median_ns(result.time) if result.time else None,
        difference=differences.get((result.workload, result.variant, result.lead_ms)),
        device_idle_ns=_device_idle_ns(result),
        bound=_bound(result),
    )


def _lead_row(
    workload: str,
    variant: str,
    leads_ms: tuple[float, ...],
    by_key: Mapping[tuple[str, float], Result],
    differences: _Differences,
) -> LeadRow:
    results = [by_key.get((variant, lead)) for lead in leads_ms]
    return LeadRow(
        variant,
        tuple(median_ns(result.time) if result and result.time else None for result in results),
        tuple(differences.get((workload, variant, lead)) for lead in leads_ms),
        tuple(_median(result.time.host_ns) if result and result.time else None for result in results),
        tuple(_median(result.time.lead_ns) if result and result.time else None for result in results),
    )


def _steps_agree(rows: tuple[LeadRow, ...], leads_ms: tuple[float, ...], modelled: bool) -> str:
    """Where all step times are the same at every lead, as rounded: the sentence that stands for their table."""
    if len(leads_ms) < 2 or not rows:
        return ""
    for row in rows:
        known = [ns for ns in row.step_ns if ns is not None]
        if known and (len(known) < len(leads_ms) or max(known) - min(known) > _ROUNDING_NS):
            return ""
    *first, last = (f"{lead:g}" for lead in leads_ms)
    return f"{'modelled ' if modelled else ''}step times are the same at leads of {', '.join(first)} and {last} ms"


def _device_idle_ns(result: Result) -> float | None:
    known = _median((result.time and result.time.device_idle_ns) or [])
    if known is not None:
        return known
    return result.syncs.device_idle_ns if result.syncs else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _bound(result: Result) -> str:
    """Who the step waits for: the GPU where it still has work of its own queued when the next step comes."""
    if result.time is None or result.time.modelled:
        return ""
    lead_ns = _median(result.time.lead_ns)
    if lead_ns is None:
        return ""
    return "GPU-bound" if lead_ns - result.lead_ms * 1e6 > _OWN_LEAD_NS else "host-bound"


def _notes(results: list[Result]) -> list[str]:
    """What a reader must know about rows, variants with the same thing to say together."""
    said: dict[str, list[str]] = {}
    for result in results:
        for text in _notes_of(result):
            said.setdefault(text, []).append(result.variant)
    return [f"{', '.join(variants)}: {text}" for text, variants in said.items()]


def _notes_of(result: Result) -> list[str]:
    notes = []
    if result.status != "ok":
        notes.append(f"{result.status}: {result.error or 'no reason recorded'}")
    info = result.variant_info
    if info.note:
        notes.append(info.note)
    if info.path and result.variant in ("megatron", "verl"):
        notes.append(f"{info.version} by {info.path}".strip())
    if result.numerics and result.numerics.detail:
        notes.append(result.numerics.detail)
    if result.numerics and result.numerics.head_gradient == "detached":
        notes.append("the MTP loss does not train the output layer")
    if result.syncs and not result.syncs.agreed:
        seen = ", ".join(f"{name} {count}" for name, count in result.syncs.detectors.items() if count is not None)
        notes.append(f"the detectors disagree: {seen}")
    by_nsys = result.syncs.detectors.get("nsys") if result.syncs else None
    if result.syncs and by_nsys is not None:
        blocked, idle = microseconds(result.syncs.blocked_ns), microseconds(result.syncs.device_idle_ns)
        notes.append(
            f"nsys: {plural(by_nsys, 'sync')} a step, the host blocked {blocked} us, the device idle {idle} us"
        )
    if result.time and result.time.profiled and not result.time.modelled:
        notes.append("timed under Nsight Systems, which slows the host: no times to compare with those of other runs")
    capture = result.graph_capture
    if capture and not capture.possible and not (result.syncs and result.syncs.count):
        where = f" at {capture.site.file}:{capture.site.line}" if capture.site else ""
        notes.append(f"not capturable{where}: {capture.reason or 'no reason recorded'}")
    if result.time and any(result.time.throttled):
        notes.append(f"the GPU was throttled in {plural(sum(result.time.throttled), 'window')}, which are left out")
    return notes + result.warnings


def _range(texts: list[str], phase: str) -> str:
    """The innermost range that says something about the place: ``mtp_loss`` rather than ``depth:1``."""
    return next((text for text in reversed(texts) if not text.startswith("depth:")), phase)


def _by_count(variants: dict[str, int]) -> str:
    groups: dict[int, list[str]] = {}
    for variant, count in variants.items():
        groups.setdefault(count, []).append(variant)
    return "; ".join(f"{count} in {', '.join(names)}" for count, names in groups.items())
