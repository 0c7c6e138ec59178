"""``mtp-bench check``."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtp_bench.cli.app import FAILED, app, command, print_report
from mtp_bench.errors import InputError
from mtp_bench.streams import print_utf_8, say

if TYPE_CHECKING:
    from mtp_bench.report.conformance_view import CheckView


class Format(StrEnum):
    """How a check is shown."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    JSON = "json"


@app.command()
@command
def check(
    variant: Annotated[
        list[str] | None,
        typer.Option(help="Variant, a name or package.module:callable. Repeat for more. Default: all."),
    ] = None,
    case: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Case, an id or a pattern. Repeat for more. Default: all.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cuda, cuda:N, sim or sim:PROFILE.")] = "auto",
    ranks: Annotated[bool, typer.Option(help="Run the cases across ranks, each a process.")] = True,
    expect_fail: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Known failures: a variant and a case id or pattern a line.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TERMINAL,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Run the known faults of MTP losses against variants: which of them has which."""
    from mtp_bench.conformance.expectations import Expectations
    from mtp_bench.conformance.runner import check as run_check
    from mtp_bench.progress import ProgressBar
    from mtp_bench.report.conformance_view import CheckView

    if as_json and format_ not in (Format.TERMINAL, Format.JSON):
        raise InputError(f"--json and --format {format_.value}: choose one of them")
    with ProgressBar() as progress:
        found = run_check(
            variant,
            case,
            device,
            ranks=ranks,
            expect_fail=None if expect_fail is None else Expectations.read(expect_fail),
            progress=progress,
        )
    view = CheckView(found)
    _print(view, Format.JSON if as_json else format_)
    if not found.passed:
        say(f"error: {view.verdict}")
        raise typer.Exit(FAILED)


def _print(view: CheckView, format_: Format) -> None:
    from mtp_bench.report import conformance_junit, conformance_markdown, conformance_terminal

    match format_:
        case Format.TERMINAL:
            print_report(lambda width: conformance_terminal.check_report(view, width))
        case Format.MARKDOWN:
            sys.stdout.write(conformance_markdown.check_report(view))
        case Format.JUNIT:
            print_utf_8()
            sys.stdout.write(conformance_junit.check_report(view))
        case Format.JSON:
            sys.stdout.write(view.report.to_json())
