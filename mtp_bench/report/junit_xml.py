"""JUnit's XML as CI systems read it: suites of tests, each passed, or with a failure, an error or a reason to skip.

Valid by the two schemas that are in use, that of Ant (github.com/windyroad/JUnit-Schema) and that of Jenkins (its xunit
plugin's junit-10.xsd): hence the attributes and empty elements that say nothing, and the output of suites, not cases.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from xml.etree import ElementTree

from mtp_bench.report.inert import inert


def new_document() -> ElementTree.Element:
    """What suites are added to."""
    return ElementTree.Element("testsuites")


def document_text(root: ElementTree.Element) -> str:
    """The XML."""
    ElementTree.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def add_suite(
    root: ElementTree.Element,
    name: str,
    cases: Sequence[ElementTree.Element],
    told: Sequence[str],
    at: datetime.datetime,
) -> None:
    """Add a suite of ``cases`` whose output is ``told``; ``at`` is in UTC."""
    counts = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")}
    suite = _element(
        "testsuite",
        id=str(len(root)),
        name=name,
        package="mtp-bench",
        hostname="localhost",
        timestamp=at.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0"),  # years before 1000 lose their zeros
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


def new_case(name: str, classname: str) -> ElementTree.Element:
    """A test that has passed."""
    return _element("testcase", name=name, classname=classname, time="0")


def add_outcome(case: ElementTree.Element, tag: str, kind: str, lines: Sequence[str]) -> None:
    """Say that a test did not pass: ``tag`` is "failure", "error" or "skipped"."""
    outcome = ElementTree.SubElement(case, tag, message=inert(lines[0]), type=kind)
    outcome.text = "\n".join(map(inert, lines))


def _element(tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.Element(tag, {name: inert(value) for name, value in attributes.items()})
