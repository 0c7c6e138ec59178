"""The tables of a comparison's report: a group a workload, scope and baseline, in it a table a lead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mtp_bench.compare import Comparison, Row
from mtp_bench.compare.pairs import leads_in_words
from mtp_bench.report.words import who_at
from mtp_bench.results import Result


@dataclass(frozen=True, slots=True)
class TableView:
    """The rows of one table: of one lead of a group, or of several at which all figures are the same.

    Of a job there is one table without a lead; ``folded`` are the ranks that only the page shows.
    """

    heading: str
    leads_ms: tuple[float, ...]
    rows: tuple[Row, ...]  # at the first of the leads
    folded: tuple[Row, ...] = ()

    @property
    def leads(self) -> str:
        """``lead 1 ms``, ``leads 0, 1 and 10 ms``; "" of a job."""
        return leads_in_words(self.leads_ms) if self.leads_ms else ""

    @property
    def modelled(self) -> bool:
        """Whether all its times are modelled."""
        return all(row.modelled for row in self.rows)


@dataclass(frozen=True, slots=True)
class GroupView:
    """One workload in one scope against one baseline: a table a lead, and what there is to say of its rows."""

    heading: str
    workload: str
    scope: str
    harness: str  # of scope "step", where all rows have one; else ""
    baseline: str
    tables: tuple[TableView, ...]
    notes: tuple[str, ...]  # "boundary_roll, host_lens: faster: why"


def has_results(row: Row) -> bool:
    """Whether there is anything to show in a table; where one of two runs lacks it altogether, a note says so."""
    return bool(row.baseline_results or row.candidate_results)


def by_group(comparison: Comparison) -> list[list[Row]]:
    """The rows of every workload, scope and baseline."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in comparison.rows:
        groups.setdefault((row.workload, row.scope, baseline(comparison, row)), []).append(row)
    return list(groups.values())


def baseline(comparison: Comparison, row: Row) -> str:
    """What the rows of a group are compared with."""
    return row.baseline if comparison.within else comparison.sides[0].label


def lead_group(comparison: Comparison, rows: Sequence[Row]) -> GroupView:
    """A table a lead."""
    first = rows[0]
    shown = [row for row in rows if has_results(row)]
    against = baseline(comparison, first)
    harness = _harness(shown)
    heading = f"{first.workload}, scope {first.scope}{f', harness {harness}' if harness else ''}"
    tables = tuple(
        TableView(f"{heading}, {leads_in_words(leads_ms)}, baseline {against}", leads_ms, of_lead)
        for leads_ms, of_lead in _by_lead(shown)
    )
    return GroupView(
        f"{heading}, baseline {against}", first.workload, first.scope, harness, against, tables, tuple(reasons(rows))
    )


def _by_lead(rows: Sequence[Row]) -> Iterator[tuple[tuple[float, ...], tuple[Row, ...]]]:
    """The rows of every lead; leads whose rows show the same figures together, as a model has them."""
    by_lead: dict[float, list[Row]] = {}
    for row in rows:
        if row.lead_ms is not None:
            by_lead.setdefault(row.lead_ms, []).append(row)
    alike: dict[object, list[float]] = {}
    for lead_ms, found in by_lead.items():
        same = tuple(map(_figures, found)) if all(row.modelled for row in found) else lead_ms
        alike.setdefault(same, []).append(lead_ms)
    for leads_ms in alike.values():
        yield tuple(leads_ms), tuple(by_lead[leads_ms[0]])


def _figures(row: Row) -> object:
    """All that a table shows of a row with modelled times, which it shows in tenths of a microsecond."""
    found = row.difference
    times = found and tuple(round(ns / 100) for ns in (found.ns, found.baseline_ns, found.candidate_ns))
    return row.candidate, row.verdict, row.reason, times, row.syncs, row.values, row.ops, row.peak_bytes


def _harness(rows: Sequence[Row]) -> str:
    """The harness of scope ``step``, where all rows have one."""
    found = {r.harness for row in rows for r in (*row.baseline_results, *row.candidate_results) if r.scope == "step"}
    return found.pop() if len(found) == 1 else ""


def reasons(rows: Sequence[Row]) -> Iterator[str]:
    """The reason of every verdict, why a result is missing, and what a run warned of: each once, with whom."""
    said: dict[str, dict[str, list[float | None]]] = {}
    everywhere: dict[str, list[float | None]] = {}
    for row in rows:
        for name, results in ((row.candidate, row.candidate_results), (row.baseline, row.baseline_results)):
            if results:
                everywhere.setdefault(name, []).append(row.lead_ms)
            for text in dict.fromkeys(text for result in results for text in warnings_of(result)):
                said.setdefault(text, {}).setdefault(name, []).append(row.lead_ms)
        said.setdefault(f"{row.verdict}: {row.reason}", {}).setdefault(row.candidate, []).append(row.lead_ms)
    candidates = {row.candidate: everywhere.get(row.candidate, [row.lead_ms]) for row in rows}
    for text, found in said.items():
        yield f"{whom(found, candidates if candidates.keys() >= found.keys() else everywhere)}: {text}"


def row_notes(row: Row) -> Iterator[str]:
    """Why a result is missing and what a run warned of, each once, with the side: ``mine (b): failed: why``."""
    sides = (row.baseline, row.baseline_results), (row.candidate, row.candidate_results)
    told = (f"{name}: {text}" for name, results in sides for result in results for text in warnings_of(result))
    yield from dict.fromkeys(told)


def warnings_of(result: Result) -> Iterator[str]:
    """Why a result is missing, and what its run warned of."""
    if result.status != "ok":
        yield f"{result.status}: {result.error or 'no reason recorded'}"
    if result.syncs and not result.syncs.agreed:
        seen = ", ".join(f"{name} {count}" for name, count in result.syncs.detectors.items() if count is not None)
        yield f"the detectors disagree: {seen}"
    yield from result.warnings


def whom(who: Mapping[str, list[float | None]], everywhere: Mapping[str, list[float | None]]) -> str:
    """``all``, or names with the leads at which it is so."""
    alike = len(who) > 1 and {name: set(leads) for name, leads in who.items()} == {
        name: set(leads) for name, leads in everywhere.items()
    }
    return "all" if alike else who_at(who, everywhere)
