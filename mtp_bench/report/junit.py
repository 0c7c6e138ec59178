"""``compare --format junit``: the comparison as JUnit's XML, which CI systems show as tests.

A row is a test case. One that a gate fails is a failure, one that a gate cannot tell of is an error, and one whose
times cannot be compared, where no gate asked, is skipped. What concerns all rows is the output of the first suite.
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
from mtp_bench.report.junit_xml import add_outcome, add_suite, document_text, new_case, new_document
from mtp_bench.report.words import FROM_PYTHON

_TYPES = {"failure": "gate failed", "error": "gate cannot tell", "skipped": "incomparable"}


def comparison_report(comparison: Comparison) -> str:
    """The XML of a comparison."""
    root = new_document()
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
        add_suite(root, name, cases, [*about_all, *told], measured_at)
        about_all = []
    if not suites:
        case = new_case("comparison", "mtp-bench")
        _outcome(case, "error" if comparison.judgement.gates else "skipped", ["nothing to compare"])
        add_suite(root, "comparison", [case], about_all, measured_at)
    return document_text(root)


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


def _measured_at(comparison: Comparison) -> datetime.datetime:
    """When the last side's last run was made, in UTC; the epoch where a run does not say."""
    try:
        return datetime.datetime.fromisoformat(comparison.sides[-1].runs[-1][1].created_at).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return datetime.datetime.fromtimestamp(0, datetime.UTC)


def _suite_name(found: Row | GroupView) -> str:
    return f"{found.workload}, scope {found.scope}"


def _case(comparison: Comparison, row: Row) -> ElementTree.Element:
    case = new_case(_name(row), f"mtp-bench.{row.workload}.{row.scope}")
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
    add_outcome(case, tag, _TYPES[tag], lines)
