"""The report of a check as JUnit's XML: a suite a variant, a test a case.

A failure that was not expected is a failure, and so is a pass that was not; an expected failure, and a case that does
not apply, is skipped. Valid by the same two schemas as the XML of ``compare``.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from xml.etree import ElementTree

from mtp_bench.conformance.results import Result
from mtp_bench.report import conformance_view as view
from mtp_bench.report.conformance_view import CheckView
from mtp_bench.report.inert import inert


def check_report(found: CheckView) -> str:
    """The XML of a check."""
    root = ElementTree.Element("testsuites")
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    for name, summary in zip(found.report.variants, found.summaries, strict=True):
        _suite(root, name, found.report.of(name), [found.first_line, summary], now)
    ElementTree.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _suite(root: ElementTree.Element, name: str, results: Sequence[Result], told: Sequence[str], now: str) -> None:
    cases = [_case(result) for result in results]
    counts = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "skipped")}
    suite = _element(
        "testsuite",
        id=str(len(root)),
        name=name,
        package="mtp-bench",
        hostname="localhost",
        timestamp=now,
        tests=str(len(cases)),
        failures=str(counts["failure"]),
        errors="0",
        skipped=str(counts["skipped"]),
        time="0",
    )
    suite.append(_element("properties"))
    suite.extend(cases)
    definitions = [f"{result.case.id} follows {result.detail}" for result in results if result.status == "follows"]
    ElementTree.SubElement(suite, "system-out").text = "\n".join(map(inert, [*told, *definitions]))
    suite.append(_element("system-err"))
    root.append(suite)


def _case(result: Result) -> ElementTree.Element:
    case = _element("testcase", name=result.case.id, classname=f"mtp-bench.check.{result.variant}", time="0")
    if result.status == "not_applicable":
        _outcome(case, "skipped", "does not apply", [result.detail])
    elif result.status == "failed" and result.expected_failure:
        _outcome(case, "skipped", "expected failure", _failure(result))
    elif result.status == "failed":
        _outcome(case, "failure", "case failed", _failure(result))
    elif result.unexpected:
        _outcome(case, "failure", "unexpectedly passed", ["it passes, although --expect-fail names it"])
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


def _outcome(case: ElementTree.Element, tag: str, kind: str, lines: Sequence[str]) -> None:
    outcome = ElementTree.SubElement(case, tag, message=inert(lines[0]), type=kind)
    outcome.text = "\n".join(map(inert, lines))


def _element(tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.Element(tag, {name: inert(value) for name, value in attributes.items()})
