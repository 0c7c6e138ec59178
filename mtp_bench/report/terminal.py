"""The terminal's report: rich renderables that fit 80 columns without cutting a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mtp_bench.compare import Comparison, Difference
from mtp_bench.compare.headline import headline
from mtp_bench.report import comparison_terminal, comparison_words
from mtp_bench.report.comparison_view import ComparisonView
from mtp_bench.report.job_run import job_run_view
from mtp_bench.report.layout import (
    Prose,
    TableOrBlocks,
    WithoutTrailingBlanks,
    add_row,
    heading,
    new_table,
    number_columns,
    plain,
    styled,
)
from mtp_bench.report.view import LeadRow, SiteView, VariantRow, WorkloadView, site_views, workload_views
from mtp_bench.report.words import (
    HOST_LEGEND,
    NONE,
    interval,
    microseconds,
    percent,
    signed_microseconds,
    whole_microseconds,
)
from mtp_bench.results import Run

WIDE = 112  # columns from which intervals have a column of their own
_LEADS_A_TABLE = 3


def run_report(run: Run, width: int) -> RenderableType:
    """The headline, a table a workload, and the syncs by call site."""
    if run.job is not None:
        return WithoutTrailingBlanks(Group(*_job_run(run)))
    views = workload_views(run)
    parts: list[RenderableType] = [Prose(plain(headline(run), "bold"))]
    for view in views:
        parts.extend(_workload(view, width))
    if any(view.host_known for view in views):
        parts.extend((Text(""), Prose(HOST_LEGEND)))
    parts.extend(_sites(site_views(run), any(view.rows for view in views)))
    return WithoutTrailingBlanks(Group(*parts))


def comparison_report(comparison: Comparison) -> RenderableType:
    """The nine parts of a comparison, as wide as the terminal is."""
    return WithoutTrailingBlanks(Group(*comparison_terminal.parts(ComparisonView.of(comparison))))


def _job_run(run: Run) -> Iterator[RenderableType]:
    """One rank of a training job: every variant with what it costs, as wide as the terminal is."""
    view = job_run_view(run)
    yield Prose(plain(view.headline, "bold"))
    yield from comparison_terminal.environments(view.comparison)
    yield from heading(view.heading)
    yield comparison_terminal.one_or_two_tables(view.variants)
    yield from (Prose(note, 2) for note in view.notes)
    yield from _sites(site_views(run), bool(run.results), comparison_words.JOB_SITES)


def _workload(view: WorkloadView, width: int) -> Iterator[RenderableType]:
    title = f" ({view.title})" if view.title else ""
    yield from heading(f"{view.name}{title}, scope {view.scope}, lead {view.lead_ms:g} ms")
    yield TableOrBlocks(_variants_table(view, width))
    if view.steps_agree:
        yield Prose(view.steps_agree, 2)
    yield from (Prose(note, 2) for note in view.notes)
    for start in range(0, len(view.leads_ms) if view.leads else 0, _LEADS_A_TABLE):
        chosen = range(start, min(start + _LEADS_A_TABLE, len(view.leads_ms)))
        if not view.steps_agree and len(view.leads_ms) > 1:
            yield Text("")
            yield _by_lead(view, chosen, ("a step,", "diff.,"), _step_cells)
        if view.host_known:
            yield Text("")
            yield _by_lead(view, chosen, ("host,", "ahead,"), _host_cells)


def _variants_table(view: WorkloadView, width: int) -> Table:
    table = new_table()
    table.add_column("variant", overflow="fold")
    table.add_column("values", no_wrap=True)
    number_columns(table, ["syncs\na step"])
    table.add_column("CUDA\ngraph", no_wrap=True)
    below = "modelled" if view.modelled else ""
    number_columns(table, [f"us a step\n{below}", f"difference\n{below or 'us'}", "%"])
    wide = not view.modelled and width >= WIDE
    if wide:
        number_columns(table, ["98 % interval\nof difference"])
    if _idle_known(view):
        number_columns(table, ["idle us\nmodelled" if view.modelled else "device\nidle us"])
    if not view.modelled:
        table.add_column("bound" if wide else "bound\nby", no_wrap=True)
    for row in view.rows:
        add_row(table, _variant_cells(row, view, wide))
    return table


def _variant_cells(row: VariantRow, view: WorkloadView, wide: bool) -> list[str | Text]:
    found = row.difference
    cells: list[str | Text] = [
        row.variant,
        styled(row.values),
        NONE if row.syncs is None else str(row.syncs),
        {True: "yes", False: "no", None: NONE}[row.capturable],
        microseconds(row.step_ns),
        Text(_difference_cell(found, row.variant == view.baseline, stacked=not view.modelled and not wide)),
        percent(found) if found else "",
    ]
    if wide:
        cells.append(interval(found) if found else "")
    if _idle_known(view):
        cells.append(microseconds(row.device_idle_ns))
    if not view.modelled:
        cells.append((row.bound if wide else row.bound.removesuffix("-bound")) or NONE)
    return cells


def _idle_known(view: WorkloadView) -> bool:
    return any(row.device_idle_ns is not None for row in view.rows)


def _difference_cell(found: Difference | None, is_baseline: bool, stacked: bool = False) -> str:
    if found is None:
        return "baseline" if is_baseline else NONE
    text = signed_microseconds(found.ns)
    return f"{text}\n{interval(found)}" if stacked and interval(found) else text


def _by_lead(
    view: WorkloadView,
    leads: Sequence[int],
    titles: tuple[str, str],
    cells: Callable[[LeadRow, WorkloadView, Sequence[int]], list[str]],
) -> TableOrBlocks:
    """Two quantities of every variant, each at the chosen ``leads``."""
    table = new_table()
    what = f"{'modelled ' if view.modelled else ''}us\nat a lead of"
    table.add_column(what, overflow="fold")
    for title in titles:
        number_columns(table, [f"{title}\n{view.leads_ms[index]:g} ms" for index in leads])
    for row in view.leads:
        add_row(table, [row.variant, *cells(row, view, leads)])
    return TableOrBlocks(table, what.replace("\n", " "))


def _step_cells(row: LeadRow, view: WorkloadView, leads: Sequence[int]) -> list[str]:
    steps = [microseconds(row.step_ns[index]) for index in leads]
    return steps + [_difference_cell(row.difference[index], row.variant == view.baseline) for index in leads]


def _host_cells(row: LeadRow, view: WorkloadView, leads: Sequence[int]) -> list[str]:
    return [whole_microseconds(values[index]) for values in (row.host_ns, row.lead_ns) for index in leads]


def _sites(sites: list[SiteView], anything_ran: bool, title: str = comparison_words.SITES) -> Iterator[RenderableType]:
    if not anything_ran:
        return
    yield from heading(title)
    if not sites:
        yield Text("none")
    for site in sites:
        yield Prose(Text.assemble(plain(site.place, "cyan"), " in ", plain(site.function)))
        if site.code:
            yield Prose(plain(site.code, "bold"), 2)
        for reason in site.reasons:
            yield Prose(f"{reason.kind}, {reason.op}, in {reason.range}", 2)
            yield from (Prose(count, 4) for count in reason.counts)
