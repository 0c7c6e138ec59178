"""The report in Markdown, in the terminal's order; it pastes into a review, and is cut on purpose to fit there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mtp_bench.compare import Comparison, Difference
from mtp_bench.compare.headline import headline
from mtp_bench.report import comparison_markdown, comparison_words
from mtp_bench.report.columns import Column
from mtp_bench.report.comparison_view import ComparisonView
from mtp_bench.report.inert import shortened
from mtp_bench.report.job_run import job_run_view
from mtp_bench.report.review import LIMIT, Section, bullets, code, fence, fitted, inline, prose, table
from mtp_bench.report.view import LeadRow, SiteView, WorkloadView, site_views, workload_views
from mtp_bench.report.words import (
    FROM_PYTHON,
    NONE,
    environment_line,
    first_line,
    interval,
    microseconds,
    percent,
    plural,
    signed_microseconds,
    whole_microseconds,
)
from mtp_bench.results import Run

_GUARD = "`num_tokens > 0`"  # as the headline has it
_TABLE, _NOTES, _SITES = range(3)


def run_report(run: Run, limit: int = LIMIT) -> str:
    """The report of a run, in at most ``limit`` characters."""
    if run.job is not None:
        return fitted([*_job_run(run)], "run.json has everything", limit)
    told = f" {_GUARD} ".join(prose(part) for part in headline(run).split(_GUARD)).strip()
    sections = [
        Section(["# mtp-bench", "", prose(first_line(run)), "", f"**{told}**"]),
        *(section for view in workload_views(run) for section in _workload(view)),
        _sites(site_views(run)),
        _ending(run),
    ]
    return fitted(sections, "run.json has everything", limit)


def _job_run(run: Run) -> Iterator[Section]:
    """One rank of a training job."""
    view = job_run_view(run)
    yield Section(["# mtp-bench", "", prose(first_line(run)), "", f"**{prose(view.headline)}**"])
    yield from comparison_markdown.cautions(view.comparison)
    yield from bullets(view.comparison.notes, "What was left out, and what varies:", noun="note", rank=_NOTES)
    yield _table(view.variants, [f"## {prose(view.heading)}", ""])
    yield from bullets(view.notes, noun="note", rank=_NOTES)
    yield _sites(site_views(run), comparison_words.JOB_SITES)
    yield _ending(run)


def comparison_report(comparison: Comparison, limit: int = LIMIT) -> str:
    """The report of a comparison, in at most ``limit`` characters."""
    sections = list(comparison_markdown.sections(ComparisonView.of(comparison)))
    return fitted(sections, comparison_markdown.WHOLE, limit)


def _workload(view: WorkloadView) -> Iterator[Section]:
    title = prose(f"{view.name} ({view.title})" if view.title else view.name)
    where = prose(f"Scope {view.scope}, lead {view.lead_ms:g} ms; differences are from {view.baseline}.")
    yield _table(_variants(view), [f"## {title}", "", where, ""])
    if not view.steps_agree and len(view.leads_ms) > 1 and view.leads:
        yield _table(_by_lead(view, "", ("a step", "difference"), _step_cells))
    if view.host_known:
        yield _table(_by_lead(view, "host's side: ", ("to enqueue a step", "ahead at entry"), _host_cells))
    notes = [*([view.steps_agree] if view.steps_agree else []), *view.notes]
    yield from bullets(notes, noun="note", rank=_NOTES)


def _variants(view: WorkloadView) -> list[Column]:
    rows = view.rows
    capturable = {True: "yes", False: "no", None: NONE}
    found = [row.difference for row in rows]
    differences = tuple(_difference(row.difference, row.variant == view.baseline) for row in rows)
    columns = [
        Column("variant", tuple(row.variant for row in rows), number=False),
        Column("values", tuple(row.values for row in rows), number=False),
        Column("syncs a step", tuple(NONE if row.syncs is None else str(row.syncs) for row in rows)),
        Column("capturable", tuple(capturable[row.capturable] for row in rows), number=False),
        Column(f"us a step{_modelled(view)}", tuple(microseconds(row.step_ns) for row in rows)),
        Column("difference", differences),
        Column("%", tuple(percent(difference) if difference else "" for difference in found)),
    ]
    if not view.modelled:
        columns.append(Column("98 % interval", tuple(interval(found) if found else "" for found in found)))
    columns.append(Column(f"device idle us{_modelled(view)}", tuple(microseconds(row.device_idle_ns) for row in rows)))
    if not view.modelled:
        columns.append(Column("bound", tuple(row.bound or NONE for row in rows), number=False))
    return columns


def _modelled(view: WorkloadView) -> str:
    return ", modelled" if view.modelled else ""


def _by_lead(
    view: WorkloadView, what: str, titles: tuple[str, str], cells: Callable[[LeadRow, WorkloadView], list[str]]
) -> list[Column]:
    """Two quantities of every variant, each at every lead."""
    columns = [f"{title}, lead {lead:g} ms" for title in titles for lead in view.leads_ms]
    rows = zip(*(cells(row, view) for row in view.leads), strict=True)
    names = Column(f"{what}us{_modelled(view)}", tuple(row.variant for row in view.leads), number=False)
    return [names, *(Column(title, found) for title, found in zip(columns, rows, strict=True))]


def _step_cells(row: LeadRow, view: WorkloadView) -> list[str]:
    baseline = row.variant == view.baseline
    return [*map(microseconds, row.step_ns), *(_difference(found, baseline) for found in row.difference)]


def _host_cells(row: LeadRow, view: WorkloadView) -> list[str]:
    return [*map(whole_microseconds, row.host_ns), *map(whole_microseconds, row.lead_ns)]


def _sites(sites: Sequence[SiteView], title: str = comparison_words.SITES) -> Section:
    """The call sites, folded."""
    if not sites:
        return Section(["No syncs."])
    items = []
    for site in sites:
        lines = [f"- {code(site.place)} in {code(site.function)}", *([f"  {code(site.code)}"] if site.code else [])]
        for reason in site.reasons:
            counts = "; ".join(reason.counts)
            lines.append(f"  - {inline(f'{reason.kind}, {reason.op}, in {reason.range}: {counts}')}")
        items.append(lines)
    summary = f"{title[0].upper()}{title[1:]} ({plural(len(sites), 'line')})"
    return Section(items=items, summary=summary, rank=_SITES)


def _ending(run: Run) -> Section:
    command = shortened(run.command or FROM_PYTHON)
    marks = fence([command])
    return Section(["## How it was run", "", marks, command, marks, "", prose(environment_line(run))])


def _table(columns: Sequence[Column], title: Sequence[str] = ()) -> Section:
    head, rows = table(columns)
    return Section(title, head, rows, noun="row", rank=_TABLE)


def _difference(found: Difference | None, is_baseline: bool) -> str:
    return signed_microseconds(found.ns) if found else ("baseline" if is_baseline else NONE)
