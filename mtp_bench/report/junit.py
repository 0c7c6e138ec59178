"""``compare --format junit``: the comparison as JUnit's XML, which CI systems show as tests.

A row is a test case. One that a gate fails is a failure, one that a gate cannot tell of is an error, and one whose
times cannot be compared, where no gate asked, is skipped. What concerns all rows is the output of the first suite.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from mtp_bench.compare import Comparison, Row
from mtp_bench.compare.gates import apply
from mtp_bench.report import comparison_words as words
from mtp_bench.report.columns import figures
from mtp_bench.report.comparison_view import ComparisonView, row_notes
from mtp_bench.report.inert import inert
from mtp_bench.report.words import FROM_PYTHON


def comparison_report(comparison: Comparison) -> str:
    """The XML of a comparison."""
    root = ElementTree.Element("testsuites", name="mtp-bench compare")
    suites: dict[str, list[Row]] = {}
    for row in comparison.rows:
        suites.setdefault(f"{row.workload}, scope {row.scope}", []).append(row)
    for name, rows in suites.items():
        _suite(root, name, [_case(comparison, row) for row in rows])
    if not comparison.rows:
        case = _element("testcase", name="comparison", classname="mtp-bench")
        _outcome(case, "error" if comparison.judgement.gates else "skipped", "nothing to compare", "")
        _suite(root, "comparison", [case])
    told = ElementTree.SubElement(root[0], "system-out")
    told.text = "\n".join(map(inert, _about_all(ComparisonView.of(comparison))))
    ElementTree.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _about_all(view: ComparisonView) -> Iterator[str]:
    """What other formats say before and after the table, in their order."""
    yield view.verdict
    yield from view.environment_differences
    for caution in view.cautions:
        yield f"{caution.kind}: {caution.advice}"
        yield from (f"{whom}: {detail}" if whom else detail for detail, whom in caution.found)
    yield from view.notes
    for run in view.runs:
        yield f"{words.run_title(run)}: {run.command or FROM_PYTHON}"
        yield words.run_facts(run)
    if view.command:
        yield f"{words.COMPARED}: {view.command}"
    yield words.how_compared(view)


def _suite(root: ElementTree.Element, name: str, cases: list[ElementTree.Element]) -> None:
    counts = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")}
    suite = _element(
        "testsuite",
        name=name,
        tests=str(len(cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
        time="0",
    )
    suite.extend(cases)
    root.append(suite)


def _case(comparison: Comparison, row: Row) -> ElementTree.Element:
    lead = "" if row.lead_ms is None else f", lead {row.lead_ms:g} ms"
    case = _element(
        "testcase",
        name=f"{row.candidate} against {row.baseline}{lead}",
        classname=f"mtp-bench.{row.workload}.{row.scope}",
        time="0",
    )
    judged = apply(comparison.judgement.gates, [row])
    if judged.failures:
        _outcome(case, "failure", judged.failures[0], "\n".join(map(inert, judged.failures)))
    elif judged.undecided:
        _outcome(case, "error", judged.undecided[0], "\n".join(map(inert, judged.undecided)))
    elif row.verdict == "incomparable":
        _outcome(case, "skipped", row.reason, "")
    told = ElementTree.SubElement(case, "system-out")
    told.text = "\n".join(map(inert, [f"{row.verdict}: {row.reason}", figures(row), *row_notes(row)]))
    return case


def _outcome(case: ElementTree.Element, tag: str, message: str, text: str) -> None:
    outcome = ElementTree.SubElement(case, tag, message=inert(message))
    outcome.text = text or None


def _element(tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.Element(tag, {name: inert(value) for name, value in attributes.items()})
