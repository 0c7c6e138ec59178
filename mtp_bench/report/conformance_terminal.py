"""The terminal's report of a check: a matrix of cases and variants, then each failing case as a report of a bug."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from mtp_bench.report import conformance_view as view
from mtp_bench.report.conformance_view import CheckView, Finding
from mtp_bench.report.layout import Prose, WithoutTrailingBlanks, add_row, heading, new_table, plain

_STYLES = {"ok": "green", "FAIL": "bold red", "FIXED": "bold yellow", "known": "yellow", "def": "cyan", "-": "dim"}


def check_report(found: CheckView, width: int) -> RenderableType:
    """The report in ``width`` columns."""
    return WithoutTrailingBlanks(Group(*_parts(found, width)))


def _parts(found: CheckView, width: int) -> Iterator[RenderableType]:
    yield Prose(found.first_line)
    yield Prose(plain(found.verdict, "bold"))
    yield Text("")
    yield from (Prose(line) for line in found.summaries)
    if len(found.report.variants) > 1:
        yield from _matrix(found, width)
    for finding in found.failures:
        yield from _failure(finding)
    if found.fixed:
        yield from heading("passed, although --expect-fail names them: take them out of the file")
        yield from (Prose(f"{result.variant} {result.case.id}") for result in found.fixed)
    yield from _listing("where people disagree: the definition that is followed", found.definitions)
    yield from _listing("does not apply", found.not_applicable)
    if found.passed and len(found.report.variants) == 1:
        yield from heading("passed")
        yield Prose(", ".join(found.passed))


def _matrix(found: CheckView, width: int) -> Iterator[RenderableType]:
    """Variants by name where they fit beside each other, else by number, and some at a time if they must be."""
    names = found.report.variants
    some = len(names)
    yield Text("")
    if _fitting(found, names, width) < some:
        yield Prose(", ".join(f"{number} {name}" for number, name in enumerate(names, 1)))
        yield Text("")
        names = [str(number) for number in range(1, some + 1)]
        some = _fitting(found, names, width)
    for start in range(0, len(names), some):
        chosen = range(start, min(start + some, len(names)))
        yield _table(found, [names[index] for index in chosen], chosen)
        yield Text("")
    yield Prose(view.LEGEND)


def _table(found: CheckView, titles: Sequence[str], chosen: Sequence[int]) -> Table:
    table = new_table()
    table.add_column("case", no_wrap=True)
    for title in titles:
        table.add_column(title, no_wrap=True)
    for case, cells in found.matrix():
        add_row(table, [case.id, *(plain(cells[index], _STYLES[cells[index]]) for index in chosen)])
    return table


def _fitting(found: CheckView, titles: Sequence[str], width: int) -> int:
    """How many variants a table can hold: each takes its column and two blanks."""
    rows = list(found.matrix())
    case = max(len(case.id) for case, _ in rows)
    widest = [2 + max(map(cell_len, column)) for column in zip(titles, *(cells for _, cells in rows), strict=True)]
    if case + sum(widest) <= width:
        return len(titles)
    return max(1, (width - case) // max(widest))


def _failure(finding: Finding) -> Iterator[RenderableType]:
    case = finding.case
    yield from heading(f"{case.id}: {case.title}")
    yield Prose(plain(f"fails: {', '.join(finding.variants)}", "bold red"))
    yield Prose(case.fault)
    yield _Labelled("given", view.given(case))
    for group in finding.groups:
        for line in group.lines:
            yield _Labelled("seen", f"{line}{_whose(finding, group)}")
    yield _Labelled("right", f"{view.right(case)}. {case.arithmetic}")
    for reference in view.references(case):
        yield _Labelled("see", reference)
    if view.releases(case):
        yield _Labelled("in", view.releases(case))


def _whose(finding: Finding, group: view.Group) -> str:
    return f" ({', '.join(group.variants)})" if len(finding.groups) > 1 else ""


class _Labelled:
    """A label and text beside it, which wraps under itself on a terminal; in a pipe both are one line."""

    def __init__(self, label: str, text: str) -> None:
        self.label = Text(f"  {label:<6}", style="bold")
        self.text = plain(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, options.max_width - len(self.label))
        first, *others = self.text.wrap(console, width, overflow="fold") if console.is_terminal else [self.text]
        for margin, line in [(self.label, first), *((Text(" " * len(self.label)), line) for line in others)]:
            yield Text.assemble(margin, line, overflow="ignore", no_wrap=True)


def _listing(title: str, findings: list[Finding]) -> Iterator[RenderableType]:
    if not findings:
        return
    yield from heading(title)
    for finding in findings:
        for group in finding.groups:
            told = f"{', '.join(group.variants)}: {group.lines[0]}"
            yield Prose(Text.assemble(plain(finding.case.id, "bold"), ": ", plain(told)))
