"""The report of a check as JUnit's XML: a suite a variant, a test a case.

A failure that was not expected is a failure, and so is a pass that was not; an expected failure, and a case that does
not apply, is skipped.
"""

from __future__ import annotations

import datetime
from xml.etree import ElementTree

from mtp_bench.conformance.results import Result
from mtp_bench.report import conformance_view as view
from mtp_bench.report.conformance_view import CheckView
from mtp_bench.report.junit_xml import add_outcome, add_suite, document_text, new_case, new_document


def check_report(found: CheckView) -> str:
    """The XML of a check."""
    root = new_document()
    now = datetime.datetime.now(datetime.UTC)
    for name, summary in zip(found.report.variants, found.summaries, strict=True):
        results = found.report.of(name)
        definitions = [f"{result.case.id} follows {result.detail}" for result in results if result.status == "follows"]
        add_suite(root, name, list(map(_case, results)), [found.first_line, summary, *definitions], now)
    return document_text(root)


def _case(result: Result) -> ElementTree.Element:
    case = new_case(result.case.id, f"mtp-bench.check.{result.variant}")
    if result.status == "not_applicable":
        add_outcome(case, "skipped", "does not apply", [result.detail])
    elif result.status == "failed" and result.expected_failure:
        add_outcome(case, "skipped", "expected failure", _failure(result))
    elif result.status == "failed":
        add_outcome(case, "failure", "case failed", _failure(result))
    elif result.unexpected:
        add_outcome(case, "failure", "unexpectedly passed", ["it passes, although --expect-fail names it"])
    return case


def _failure(result: Result) -> list[str]:
    case = result.case
    return [
        f"{case.title}: {case.fault}",
        f"given: {view.given(case)}",
        *(f"seen: {line}" for line in view.seen(result)),
        f"right: {view.right(case)}. {case.arithmetic}",
        *(f"see: {reference}" for reference in view.references(case)),
        *([f"in: {view.releases(case)}"] if case.affected else []),
    ]
