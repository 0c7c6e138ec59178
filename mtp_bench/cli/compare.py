"""``mtp-bench compare``."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mtp_bench.cli.app import app, command, print_report, words
from mtp_bench.streams import print_utf_8

if TYPE_CHECKING:
    from mtp_bench.compare import Comparison


class Format(StrEnum):
    """How ``compare`` shows what it found."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"
    JUNIT = "junit"


class Order(StrEnum):
    """The order of rows."""

    RUN = "run"
    VERDICT = "verdict"
    DIFFERENCE = "difference"
    RATIO = "ratio"
    SYNCS = "syncs"
    NAME = "name"


@app.command()
@command
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="A run.json, its folder, a folder of runs, or a quoted glob: a side each."),
    ],
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of one side: the variant to compare with (original). Of several: the side (the first).",
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What counts as a difference: 10us, 0.5%, or the larger of both: 10us,0.5%."),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=GLOB", help="Only these rows; KEY is workload, scope, variant or lead. Repeat for more."
        ),
    ] = None,
    sort: Annotated[Order, typer.Option(help="Order of rows: as in the run, or the worst first.")] = Order.RUN,
    format_: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TERMINAL,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GATE,...",
            help="Exit with 1 on: slower, slower>2%, syncs (more), syncs>2, values (worse), unclear. Repeat for more.",
        ),
    ] = None,
) -> None:
    """Compare the variants of one run, or runs with the first of them."""
    from mtp_bench.compare import Threshold
    from mtp_bench.compare import compare as compare_sides
    from mtp_bench.run_files import load_sides

    found = compare_sides(
        load_sides(runs),
        baseline=baseline,
        threshold=None if threshold is None else Threshold.parse(threshold),
        select=select or (),
        sort=sort.value,
        fail_on=[word for text in fail_on or () for word in words("--fail-on", text) or ()],
        command=shlex.join(["mtp-bench", *sys.argv[1:]]),
    )
    _FORMATS[format_](found)
    raise typer.Exit(found.exit_code)


def _terminal(comparison: Comparison) -> None:
    from mtp_bench.report.terminal import comparison_report

    print_report(lambda _: comparison_report(comparison))


def _markdown(comparison: Comparison) -> None:
    from mtp_bench.report.markdown import comparison_report

    sys.stdout.write(comparison_report(comparison))


def _html(comparison: Comparison) -> None:
    from mtp_bench.report.html import comparison_report

    print_utf_8()
    sys.stdout.write(comparison_report(comparison))


def _json(comparison: Comparison) -> None:
    from mtp_bench.report.document import comparison_document

    print(json.dumps(comparison_document(comparison), indent=1, allow_nan=False))


def _junit(comparison: Comparison) -> None:
    from mtp_bench.report.junit import comparison_report

    print_utf_8()
    sys.stdout.write(comparison_report(comparison))


_FORMATS: dict[Format, Callable[[Comparison], None]] = {
    Format.TERMINAL: _terminal,
    Format.MARKDOWN: _markdown,
    Format.HTML: _html,
    Format.JSON: _json,
    Format.JUNIT: _junit,
}
