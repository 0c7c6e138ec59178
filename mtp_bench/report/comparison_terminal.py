"""The nine parts of a comparison in the terminal, as rich renderables; a part with nothing to show is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mtp_bench.report import columns, plots
from mtp_bench.report import comparison_words as words
from mtp_bench.report.columns import Column
from mtp_bench.report.comparison_view import ComparisonView, SampleLane
from mtp_bench.report.groups import GroupView, TableView
from mtp_bench.report.layout import (
    Drawing,
    OneOrSeveral,
    Prose,
    TableOrBlocks,
    add_row,
    heading,
    new_table,
    number_columns,
    plain,
    styled,
)
from mtp_bench.report.sites_view import SiteView
from mtp_bench.report.words import FROM_PYTHON, NONE, of_rank


def parts(view: ComparisonView) -> Iterator[RenderableType]:
    """Everything a comparison has to say, in the order of all reports."""
    yield Prose(plain(view.verdict, "bold"))
    yield from (Prose(plain(f"failed: {failure}", "bold red")) for failure in view.failures)
    yield from (Prose(plain(f"cannot tell: {lack}", "yellow")) for lack in view.undecided)
    yield from environments(view)
    for group in view.groups:
        yield from _group(group)
    if any(entry.ratio is not None for entry in view.forest):
        yield from heading(words.forest_title(view))
        yield Drawing(partial(plots.forest, view.forest))
    yield from _samples(view.lanes)
    yield from _sites(view.sites, words.sites_title(view))
    yield from _values(view)
    yield from _reproduction(view)


def environments(view: ComparisonView) -> Iterator[RenderableType]:
    """What to know before any number: what differs, cautions with their advice, what was left out."""
    if view.environment_differences:
        yield from heading(words.ENVIRONMENTS)
        yield from (Prose(text, 2) for text in view.environment_differences)
    if view.cautions:
        yield from heading(words.CAUTIONS)
    for caution in view.cautions:
        yield Prose(f"{caution.kind}: {caution.advice}", 2)
        yield from (Prose(f"{whom}: {detail}" if whom else detail, 4) for detail, whom in caution.found)
    if view.notes:
        yield from heading(words.NOTES)
        yield from (Prose(note, 2) for note in view.notes)


def _group(group: GroupView) -> Iterator[RenderableType]:
    for table in group.tables:
        yield from heading(table.heading)
        yield _table(table)
    if not group.tables:
        yield from heading(group.heading)
    yield from (Prose(note, 2) for note in group.notes)


def _table(table: TableView) -> RenderableType:
    decision, evidence = columns.decision(table.rows), columns.evidence(table.rows)
    names = {column.title for column in decision}
    wide = TableOrBlocks(table_of([*decision, *(column for column in evidence if column.title not in names)]))
    narrow = [table_of(_ranks_by_name(table, found)) for found in (stacked(decision), evidence) if found]
    return OneOrSeveral(wide, [TableOrBlocks(found) for found in narrow])


def _ranks_by_name(table: TableView, found: Sequence[Column]) -> list[Column]:
    """The columns with ranks beside the names, not in a column of their own."""
    names, *others = found
    by_name = Column(names.title, tuple(of_rank(row.candidate, row) for row in table.rows), number=False)
    return [by_name, *(column for column in others if column.title != columns.RANK)]


def one_or_two_tables(found: Sequence[Column]) -> RenderableType:
    """One table, or, where it is too wide, what decides and below it what that rests on."""
    at = next((index for index, column in enumerate(found) if column.title == "%"), len(found) - 1) + 1
    narrow = [TableOrBlocks(table_of(stacked(found[:at])))]
    if found[at:]:
        narrow.append(TableOrBlocks(table_of([found[0], *found[at:]])))
    return OneOrSeveral(TableOrBlocks(table_of(found)), narrow)


def stacked(found: Sequence[Column]) -> list[Column]:
    """The columns with the interval below the difference, not beside it."""
    intervals = next((column for column in found if "interval" in column.title), None)
    if intervals is None:
        return list(found)
    stacked = []
    for column in found:
        if column.title.startswith("difference"):
            pairs = zip(column.cells, intervals.cells, strict=True)
            cells = tuple(text if ends == NONE else f"{text}\n{ends}" for text, ends in pairs)
            stacked.append(Column(column.title, cells))
        elif column is not intervals:
            stacked.append(column)
    return stacked


def table_of(found: Sequence[Column]) -> Table:
    """A table of rich; verdicts and wrong values in their colours."""
    made = new_table()
    for index, column in enumerate(found):
        if column.number:
            number_columns(made, [column.title])
        else:
            made.add_column(column.title, overflow="fold", no_wrap=index > 0)
    for cells in zip(*(column.cells for column in found), strict=True):
        add_row(made, [_cell(column, cell) for column, cell in zip(found, cells, strict=True)])
    return made


def _cell(column: Column, cell: str) -> Text:
    if column.title in ("verdict", "values", "gradients"):
        return styled(cell, cell.rsplit(maxsplit=1)[-1])
    return Text(cell) if column.number else plain(cell)


def _samples(lanes: Sequence[SampleLane]) -> Iterator[RenderableType]:
    if not lanes:
        return
    yield from heading(words.DISTRIBUTION)
    for group, found in groupby(lanes, lambda lane: lane.group):
        yield Prose(plain(group, "bold"))
        yield TableOrBlocks(table_of(columns.distribution(list(found))))
    yield from heading(words.RUN_ORDER)
    yield Drawing(partial(plots.run_order, lanes))


def _sites(found: Sequence[SiteView], title: str) -> Iterator[RenderableType]:
    if found:
        yield from heading(title)
    for site in found:
        yield Prose(Text.assemble(plain(site.place, "cyan"), " in ", plain(site.function)))
        if site.code:
            yield Prose(plain(site.code, "bold"), 2)
        for reason, outcomes in words.outcomes(site):
            yield Prose(reason, 2)
            yield from (Prose(words.outcome_line(outcome), 4) for outcome in outcomes)


def _values(view: ComparisonView) -> Iterator[RenderableType]:
    if view.values:
        yield from heading(words.VALUES)
    for title, group in groupby(view.values, words.values_heading):
        found = list(group)
        yield Prose(plain(title, "bold"))
        yield TableOrBlocks(table_of(columns.values(found)))
        yield from (Prose(note, 2) for note in words.values_notes(found))


def _reproduction(view: ComparisonView) -> Iterator[RenderableType]:
    yield from heading(words.REPRODUCTION)
    for run in view.runs:
        yield Prose(f"{words.run_title(run)}: {run.command or FROM_PYTHON}")
        yield Prose(words.run_facts(run), 2)
    if view.command:
        yield Prose(f"{words.COMPARED}: {view.command}")
    yield Prose(words.how_compared(view))
