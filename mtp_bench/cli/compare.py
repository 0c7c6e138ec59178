"""``mtp-bench compare``."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mtp_bench.cli.app import app, command, print_report, words


class Format(StrEnum):
    """How ``compare`` shows what it found."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"


@app.command()
@command
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="run.json, or the folder that holds it.")],
    baseline: Annotated[
        str | None, typer.Option(help="Of one run: the variant that the others are compared with. Default: original.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TERMINAL,
    fail_on: Annotated[
        str | None,
        typer.Option(metavar="GATE,...", help="Exit with 1 on: slower, syncs (more of them), values (worse)."),
    ] = None,
) -> None:
    """Compare the variants of one run, or runs with the first of them."""
    from mtp_bench import compare as comparing
    from mtp_bench.results import load_run

    labelled = list(zip(_labels(runs), (load_run(path) for path in runs), strict=True))
    found = comparing.compare(labelled, baseline, words("--fail-on", fail_on) or ())
    if format_ is Format.JSON:
        print(json.dumps(comparing.to_json(found), indent=1, allow_nan=False))
    elif format_ is Format.MARKDOWN:
        from mtp_bench.report import markdown

        sys.stdout.write(markdown.comparison_report(found))
    else:
        from mtp_bench.report.terminal import comparison_report

        print_report(lambda width: comparison_report(found, width))
    raise typer.Exit(found.exit_code)


def _labels(paths: list[str]) -> list[str]:
    """What runs are called: their folder's name where that tells them apart, else the path as given."""
    names = [Path(path).resolve().name if Path(path).is_dir() else Path(path).resolve().parent.name for path in paths]
    return names if len(set(names)) == len(names) else paths
