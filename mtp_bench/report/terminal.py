"""The terminal's report: rich renderables that fit 80 columns without cutting a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mtp_bench.compare import Comparison, Difference, Row
from mtp_bench.compare.headline import headline
from mtp_bench.report.layout import Prose, TableOrBlocks, WithoutTrailingBlanks
from mtp_bench.report.view import LeadRow, SiteView, VariantRow, WorkloadView, site_views, workload_views
from mtp_bench.report.words import (
    HOST_LEGEND,
    NONE,
    change,
    comparison_groups,
    comparison_heading,
    comparison_notes,
    has_results,
    interval,
    microseconds,
    percent,
    signed_microseconds,
    whole_microseconds,
)
from mtp_bench.results import Run

WIDE = 112  # columns from which intervals have a column of their own
_LEADS_A_TABLE = 3
_STYLES = {
    "nan": "bold red",
    "differs": "red",
    "failed": "bold red",
    "slower": "red",
    "faster": "green",
    "unclear": "yellow",
    "incomparable": "yellow",
}


def run_report(run: Run, width: int) -> RenderableType:
    """The headline, a table a workload, and the syncs by call site."""
    views = workload_views(run)
    parts: list[RenderableType] = [Prose(Text(headline(run), style="bold"))]
    for view in views:
        parts.extend(_workload(view, width))
    if any(view.host_known for view in views):
        parts.extend((Text(""), Prose(HOST_LEGEND)))
    parts.extend(_sites(site_views(run), any(view.rows for view in views)))
    return WithoutTrailingBlanks(Group(*parts))


def comparison_report(comparison: Comparison, width: int) -> RenderableType:
    """What differs between the environments, a table for every workload and lead, and what there is to say of them."""
    parts: list[RenderableType] = []
    if comparison.environment_differences:
        parts.append(Text("different environments:", style="bold"))
        parts.extend(Prose(text, 2) for text in comparison.environment_differences)
    for rows in comparison_groups(comparison):
        shown = [row for row in rows if has_results(row)]
        for lead_ms in dict.fromkeys(row.lead_ms for row in shown):
            of_lead = [row for row in shown if row.lead_ms == lead_ms]
            parts.extend(_heading(comparison_heading(comparison, of_lead[0])))
            parts.append(TableOrBlocks(_comparison_table(of_lead, width)))
        if not shown:
            parts.extend(_heading(comparison_heading(comparison, rows[0])))
        parts.extend(Prose(note, 2) for note in comparison_notes(rows))
    if not comparison.rows:
        parts.append(Prose("Nothing to compare: there is no second side."))
    parts.extend(Prose(note) for note in comparison.notes)
    parts.extend(Prose(Text(f"failed: {failure}", style="bold red")) for failure in comparison.judgement.failures)
    parts.extend(Prose(Text(f"cannot tell: {lack}", style="yellow")) for lack in comparison.judgement.undecided)
    return WithoutTrailingBlanks(Group(*parts))


def _workload(view: WorkloadView, width: int) -> Iterator[RenderableType]:
    title = f" ({view.title})" if view.title else ""
    yield from _heading(f"{view.name}{title}, scope {view.scope}, lead {view.lead_ms:g} ms")
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
    table = _table()
    table.add_column("variant", overflow="fold")
    table.add_column("values", no_wrap=True)
    _number_columns(table, ["syncs\na step"])
    table.add_column("CUDA\ngraph", no_wrap=True)
    below = "modelled" if view.modelled else ""
    _number_columns(table, [f"us a step\n{below}", f"difference\n{below or 'us'}", "%"])
    wide = not view.modelled and width >= WIDE
    if wide:
        _number_columns(table, ["98 % interval\nof difference"])
    if _idle_known(view):
        _number_columns(table, ["idle us\nmodelled" if view.modelled else "device\nidle us"])
    if not view.modelled:
        table.add_column("bound" if wide else "bound\nby", no_wrap=True)
    for row in view.rows:
        table.add_row(*_variant_cells(row, view, wide))
    return table


def _variant_cells(row: VariantRow, view: WorkloadView, wide: bool) -> list[str | Text]:
    found = row.difference
    cells: list[str | Text] = [
        row.variant,
        _styled(row.values),
        NONE if row.syncs is None else str(row.syncs),
        {True: "yes", False: "no", None: NONE}[row.capturable],
        microseconds(row.step_ns),
        _difference_cell(found, row.variant == view.baseline, stacked=not view.modelled and not wide),
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
    table = _table()
    what = f"{'modelled ' if view.modelled else ''}us\nat a lead of"
    table.add_column(what, overflow="fold")
    for title in titles:
        _number_columns(table, [f"{title}\n{view.leads_ms[index]:g} ms" for index in leads])
    for row in view.leads:
        table.add_row(row.variant, *cells(row, view, leads))
    return TableOrBlocks(table, what.replace("\n", " "))


def _step_cells(row: LeadRow, view: WorkloadView, leads: Sequence[int]) -> list[str]:
    steps = [microseconds(row.step_ns[index]) for index in leads]
    return steps + [_difference_cell(row.difference[index], row.variant == view.baseline) for index in leads]


def _host_cells(row: LeadRow, view: WorkloadView, leads: Sequence[int]) -> list[str]:
    return [whole_microseconds(values[index]) for values in (row.host_ns, row.lead_ns) for index in leads]


def _sites(sites: list[SiteView], anything_ran: bool) -> Iterator[RenderableType]:
    if not anything_ran:
        return
    yield from _heading("syncs a step by call site")
    if not sites:
        yield Text("none")
    for site in sites:
        yield Prose(Text.assemble((site.place, "cyan"), f" in {site.function}"))
        if site.code:
            yield Prose(Text(site.code, style="bold"), 2)
        for reason in site.reasons:
            yield Prose(f"{reason.kind}, {reason.op}, in {reason.range}", 2)
            yield from (Prose(count, 4) for count in reason.counts)


def _comparison_table(rows: list[Row], width: int) -> Table:
    wide = width >= WIDE
    table = _table()
    table.add_column("candidate", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    modelled = all(row.modelled for row in rows)
    _number_columns(table, [f"difference\nus{', modelled' if modelled else ''}", "%"])
    if wide:
        _number_columns(table, ["98 % interval\nof difference"])
    table.add_column("syncs\na step", no_wrap=True)
    table.add_column("values", no_wrap=True)
    for row in rows:
        found = row.difference
        table.add_row(
            row.candidate,
            _styled(row.verdict),
            _difference_cell(found, False, stacked=not wide),
            percent(found) if found else NONE,
            *([interval(found) if found else NONE] if wide else []),
            change(*(NONE if count is None else str(count) for count in row.syncs)),
            change(*(status or NONE for status in row.values)),
        )
    return table


def _heading(text: str) -> Iterator[RenderableType]:
    yield Text("")
    yield Prose(Text(text, style="bold underline"))


def _styled(word: str) -> Text:
    return Text(word, style=_STYLES.get(word, ""))


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="")


def _number_columns(table: Table, headers: list[str]) -> None:
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
