"""The report of a check in Markdown, in the terminal's order; it pastes into a review."""

from __future__ import annotations

from collections.abc import Iterator

from mtp_bench.report import conformance_view as view
from mtp_bench.report.columns import Column
from mtp_bench.report.conformance_view import CheckView, Finding
from mtp_bench.report.review import LIMIT, Section, bullets, code, fitted, prose, table

_WHOLE = "`mtp-bench check` prints everything"
_MATRIX, _FAILURES, _REST = range(3)


def check_report(found: CheckView, limit: int = LIMIT) -> str:
    """The report, in at most ``limit`` characters."""
    title = Section(["# mtp-bench check", "", prose(found.first_line), "", f"**{prose(found.verdict)}**"])
    return fitted([title, *_sections(found)], _WHOLE, limit)


def _sections(found: CheckView) -> Iterator[Section]:
    yield from bullets(found.summaries, noun="variant")
    if len(found.report.variants) > 1:
        yield _matrix(found)
    if found.failures:
        items = [_failure(finding) for finding in found.failures]
        yield Section(["## Failures", ""], items=items, noun="failing case", rank=_FAILURES)
    named = [f"{result.variant} {result.case.id}" for result in found.fixed]
    yield from bullets(named, "## Passed, although `--expect-fail` names them", noun="case", rank=_FAILURES)
    yield from _listing("Where people disagree: the definition that is followed", found.definitions)
    yield from _listing("Does not apply", found.not_applicable)


def _matrix(found: CheckView) -> Section:
    rows = list(found.matrix())
    columns = [Column("case", tuple(case.id for case, _ in rows), number=False)]
    for index, name in enumerate(found.report.variants):
        columns.append(Column(name, tuple(cells[index] for _, cells in rows), number=False))
    head, body = table(columns)
    return Section(["## Cases", "", view.LEGEND, ""], head, body, noun="case", rank=_MATRIX)


def _failure(finding: Finding) -> list[str]:
    case = finding.case
    several = len(finding.groups) > 1
    seen = [
        f"- seen{f' of {_names(group.variants)}' if several else ''}: {prose(line)}"
        for group in finding.groups
        for line in group.lines
    ]
    references = ", ".join(f"[{reference}]({reference.url})" for reference in case.references)
    return [
        f"### {code(case.id)}: {prose(case.title)}",
        "",
        f"Fails: {_names(finding.variants)}. {prose(case.fault)}",
        "",
        f"- given: {prose(view.given(case))}",
        *seen,
        f"- right: {prose(f'{view.right(case)}. {case.arithmetic}')}",
        *([f"- reported in {references}"] if references else []),
        *([f"- in {prose(view.releases(case))}"] if case.affected else []),
        "",
    ]


def _listing(title: str, findings: list[Finding]) -> list[Section]:
    told = [
        f"{finding.case.id}: {', '.join(group.variants)}: {group.lines[0]}"
        for finding in findings
        for group in finding.groups
    ]
    return bullets(told, summary=title, noun="case", rank=_REST)


def _names(variants: tuple[str, ...] | list[str]) -> str:
    return ", ".join(map(code, variants))
