"""``mtp-bench import``."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mtp_bench.cli.app import app, command
from mtp_bench.collector import without_collector
from mtp_bench.streams import say

_TOP = 20


class Format(StrEnum):
    """How ``import`` shows what it found."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"
    CSV = "csv"


@app.command("import")
@command
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Capture of Nsight Systems: .sqlite or .nsys-rep.")],
    range_: Annotated[
        str | None,
        typer.Option("--range", metavar="GLOB", help="Only what happened in NVTX ranges like this, '*backward*' say."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, help=f"How many rows to show, by time blocked. Default: {_TOP}; JSON, CSV: all."),
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TERMINAL,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Read a capture: which syncs, in which NVTX range, blocking how long, idling the GPU how long."""
    with without_collector():  # a tenth of the time of a small capture, most of it while modules are imported
        _show(file, range_, top, Format.JSON if as_json else format_)


def _show(file: Path, range_: str | None, top: int | None, format_: Format) -> None:
    from mtp_bench.nsight.capture import read_capture
    from mtp_bench.report import capture as report

    found = read_capture(_as_sqlite(file), range_glob=range_)
    if format_ is Format.JSON:
        import json

        print(json.dumps(report.to_json(found, top), indent=1, allow_nan=False))
    elif format_ is Format.CSV:
        for text in found.missing:
            say(f"cannot tell: {text}")
        sys.stdout.write(report.to_csv(found, top))
    elif format_ is Format.MARKDOWN:
        sys.stdout.write(report.to_markdown(found, top or _TOP))
    else:
        for line in report.to_text(found, top or _TOP):
            print(_wrapped(line))


def _as_sqlite(file: Path) -> Path:
    from mtp_bench.nsight.sqlite import is_sqlite

    if file.suffix not in (".nsys-rep", ".qdstrm") or is_sqlite(file):
        return file
    from mtp_bench.nsight.convert import to_sqlite

    return to_sqlite(file)


def _wrapped(line: str) -> str:
    """A line on a terminal, broken at words with its indent; in a pipe it stays one, to be found with grep."""
    if not sys.stdout.isatty():
        return line
    import shutil
    import textwrap

    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(line, shutil.get_terminal_size().columns, subsequent_indent=indent, break_on_hyphens=False)
