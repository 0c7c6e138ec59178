"""The terminal's report of a check: a matrix of cases and variants, then each failing case as a report of a bug."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from mtp_bench.report import conformance_view as view
from mtp_bench.report.conformance_view import CheckView, Finding
from mtp_bench.report.layout import Prose, WithoutTrailingBlanks, add_row, heading, new_table, plain

_STYLES = {"ok": "green", "FAIL": "bold red", "FIXED": "bold yellow", "known": "yellow", "def": "cyan", "-": "dim"}
_CASE_WIDTH = 26


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
    """Variants by name where they fit beside each other, else by number."""
    names = found.report.variants
    fits = _CASE_WIDTH + sum(max(5, cell_len(name)) + 1 for name in names) <= width
    yield Text("")
    if not fits:
        yield Prose(", ".join(f"{number} {name}" for number, name in enumerate(names, 1)))
        yield Text("")
    table = new_table()
    table.add_column("case", no_wrap=True)
    for number, name in enumerate(names, 1):
        table.add_column(name if fits else str(number), no_wrap=True, min_width=5)
    for case, cells in found.matrix():
        add_row(table, [case.id, *(plain(word, _STYLES[word]) for word in cells)])
    yield table
    yield Prose(view.LEGEND)


def _failure(finding: Finding) -> Iterator[RenderableType]:
    case = finding.case
    yield from heading(f"{case.id}: {case.title}")
    yield Prose(plain(f"fails: {', '.join(finding.variants)}", "bold red"))
    yield Prose(case.fault)
    yield from _line("given", view.call(case.inputs))
    for group in finding.groups:
        for line in group.lines:
            yield from _line("seen", f"{line}{_whose(finding, group)}")
    yield from _line("right", f"{view.right(case)}. {case.arithmetic}")
    for reference in view.references(case):
        yield from _line("see", reference)
    if view.releases(case):
        yield from _line("in", view.releases(case))


def _whose(finding: Finding, group: view.Group) -> str:
    return f" ({', '.join(group.variants)})" if len(finding.groups) > 1 else ""


def _line(name: str, text: str) -> Iterator[RenderableType]:
    yield Prose(Text.assemble((f"{name:<6}", "bold"), plain(text)), 2)


def _listing(title: str, findings: list[Finding]) -> Iterator[RenderableType]:
    if not findings:
        return
    yield from heading(title)
    for finding in findings:
        for group in finding.groups:
            told = f"{', '.join(group.variants)}: {group.lines[0]}"
            yield Prose(Text.assemble(plain(finding.case.id, "bold"), ": ", plain(told)))
