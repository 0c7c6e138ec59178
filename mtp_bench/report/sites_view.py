"""Syncs by call site for a report of a comparison: every line once, with how often it waits on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mtp_bench.compare import Row
from mtp_bench.compare.sites import SiteChange
from mtp_bench.report.words import who_at

Change = Literal["came", "went", "more", "fewer", "moved", "unchanged"]
_ORDER: tuple[Change, ...] = ("came", "more", "went", "fewer", "moved", "unchanged")


@dataclass(frozen=True, slots=True)
class SiteOutcome:
    """Syncs a step at a line on both sides, on one workload, of the candidates ``who`` against their baseline.

    ``moved_from`` is the line where the baseline has it, where that is another one.
    """

    change: Change
    kind: str
    op: str
    workload: str
    who: str
    before: int
    after: int
    moved_from: int | None


@dataclass(frozen=True, slots=True)
class SiteView:
    """One line of code that makes the host wait; what changed most comes first."""

    file: str
    line: int
    function: str
    code: str
    outcomes: tuple[SiteOutcome, ...]

    @property
    def place(self) -> str:
        """``file.py:12``."""
        return f"{self.file}:{self.line}"

    @property
    def changed(self) -> bool:
        """Whether any candidate has more or fewer syncs here, or has the line elsewhere."""
        return any(outcome.change != "unchanged" for outcome in self.outcomes)


def site_views(rows: Sequence[Row]) -> tuple[SiteView, ...]:
    """Every line at which a side of a row waits: those that came first, those that changed nothing last."""
    found: dict[tuple[str, int, str, str], dict[_Outcome, dict[str, list[float | None]]]] = {}
    leads: dict[tuple[str, str], list[float | None]] = {}
    for row in rows:
        leads.setdefault((row.workload, row.candidate), []).append(row.lead_ms)
        for site in (*row.changes, *_unchanged(row)):
            outcome = (_change(site), site.kind, site.op, row.workload, site.before, site.after, site.moved_from)
            line = found.setdefault((site.file, site.line, site.function, site.code), {})
            line.setdefault(outcome, {}).setdefault(row.candidate, []).append(row.lead_ms)
    views = [SiteView(*line, tuple(_outcomes(outcomes, leads))) for line, outcomes in found.items()]
    return tuple(sorted(views, key=lambda view: _ORDER.index(view.outcomes[0].change)))


_Outcome = tuple[Change, str, str, str, int, int, int | None]


def _outcomes(
    found: Mapping[_Outcome, Mapping[str, list[float | None]]], leads: Mapping[tuple[str, str], list[float | None]]
) -> Iterator[SiteOutcome]:
    for outcome in sorted(found, key=lambda outcome: _ORDER.index(outcome[0])):
        change, kind, op, workload, before, after, moved_from = outcome
        who = who_at(found[outcome], {name: leads[workload, name] for name in found[outcome]})
        yield SiteOutcome(change, kind, op, workload, who, before, after, moved_from)


def _change(site: SiteChange) -> Change:
    if site.before == site.after:
        return "unchanged" if site.moved_from is None else "moved"
    if site.before == 0:
        return "came"
    if site.after == 0:
        return "went"
    return "more" if site.after > site.before else "fewer"


def _unchanged(row: Row) -> Iterator[SiteChange]:
    """The lines that both sides wait at alike, of the runs that ``Row.changes`` compares."""
    base, cand = row.waiting
    if base is None or cand is None:
        return
    changed = {(site.file, site.line, site.function, site.code, site.op, site.kind) for site in row.changes}
    counts: dict[tuple[str, int, str, str, str, str], int] = {}
    for site in cand.sites:
        place = (site.file, site.line, site.function, site.code, site.op, str(site.kind))
        if place not in changed:
            counts[place] = counts.get(place, 0) + site.count
    for place, count in counts.items():
        yield SiteChange(*place, count, count)
