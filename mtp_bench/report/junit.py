"""``compare --format junit``: the comparison as JUnit's XML, which CI systems show as tests.

A row is a test case. One that a gate fails is a failure, one that a gate cannot tell of is an error, and one whose
times cannot be compared, where no gate asked, is skipped. What concerns all rows is the output of the first suite.

Valid by the two schemas that are in use, that of Ant (github.com/windyroad/JUnit-Schema) and that of Jenkins (its xunit
plugin's junit-10.xsd): hence the attributes and empty elements that say nothing, and the output of suites, not cases.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from mtp_bench.compare import Comparison, Row
from mtp_bench.compare.gates import apply
from mtp_bench.report import comparison_words as words
from mtp_bench.report.columns import figures
from mtp_bench.report.comparison_view import ComparisonView
from mtp_bench.report.groups import GroupView, row_notes
from mtp_bench.report.inert import inert
from mtp_bench.report.words import FROM_PYTHON

_TYPES = {"failure": "gate failed", "error": "gate cannot tell", "skipped": "incomparable"}


def comparison_report(comparison: Comparison) -> str:
    """The XML of a comparison."""
    root = ElementTree.Element("testsuites")
    suites: dict[str, list[Row]] = {}
    for row in comparison.deciding:
        suites.setdefault(_suite_name(row), []).append(row)
    view = ComparisonView.of(comparison)
    about_all = [*_about_all(view)]
    measured_at = _measured_at(comparison)
    for name, rows in suites.items():
        cases = [_case(comparison, row) for row in rows]
        told = [line for row in rows for line in (f"{_name(row)}:", *_details(row))]
        told += [
            note for group in view.groups if group.scope == "job" and _suite_name(group) == name for note in group.notes
        ]
        _suite(root, name, cases, [*about_all, *told], measured_at)
        about_all = []
    if not suites:
        case = _element("testcase", name="comparison", classname="mtp-bench", time="0")
        _outcome(case, "error" if comparison.judgement.gates else "skipped", ["nothing to compare"])
        _suite(root, "comparison", [case], about_all, measured_at)
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


def _measured_at(comparison: Comparison) -> str:
    """When the last side's last run was made, in UTC, as schemas want it; the epoch where a run does not say."""
    try:
        last = datetime.datetime.fromisoformat(comparison.sides[-1].runs[-1][1].created_at).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        last = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return last.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")  # years before 1000 lose their zeros


def _suite(
    root: ElementTree.Element,
    name: str,
    cases: Sequence[ElementTree.Element],
    told: Sequence[str],
    measured_at: str,
) -> None:
    counts = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")}
    suite = _element(
        "testsuite",
        id=str(len(root)),
        name=name,
        package="mtp-bench",
        hostname="localhost",
        timestamp=measured_at,
        tests=str(len(cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
        time="0",
    )
    suite.append(_element("properties"))
    suite.extend(cases)
    ElementTree.SubElement(suite, "system-out").text = "\n".join(map(inert, told))
    suite.append(_element("system-err"))
    root.append(suite)


def _suite_name(found: Row | GroupView) -> str:
    return f"{found.workload}, scope {found.scope}"


def _case(comparison: Comparison, row: Row) -> ElementTree.Element:
    case = _element("testcase", name=_name(row), classname=f"mtp-bench.{row.workload}.{row.scope}", time="0")
    judged = apply(comparison.judgement.gates, [row])
    if judged.failures:
        _outcome(case, "failure", [*judged.failures, *_details(row)])
    elif judged.undecided:
        _outcome(case, "error", [*judged.undecided, *_details(row)])
    elif row.verdict == "incomparable" and not comparison.judgement.gates:
        _outcome(case, "skipped", [row.reason, *_details(row)])
    return case


def _name(row: Row) -> str:
    if not row.variant:  # leads that one side lacks: of several such rows each needs a name of its own
        return f"{row.candidate} against {row.baseline}: {row.reason}"
    lead = "" if row.lead_ms is None else f", lead {row.lead_ms:g} ms"
    rank = f", {row.rank_in_words}" if row.rank_in_words else ""
    return f"{row.candidate} against {row.baseline}{lead}{rank}"


def _details(row: Row) -> list[str]:
    return [*filter(None, [f"{row.verdict}: {row.reason}", figures(row)]), *row_notes(row)]


def _outcome(case: ElementTree.Element, tag: str, lines: Sequence[str]) -> None:
    outcome = ElementTree.SubElement(case, tag, message=inert(lines[0]), type=_TYPES[tag])
    outcome.text = "\n".join(map(inert, lines))


def _element(tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.Element(tag, {name: inert(value) for name, value in attributes.items()})
