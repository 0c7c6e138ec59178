"""``mtp-bench report``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from mtp_bench.cli.app import app, command, print_report
from mtp_bench.errors import InputError


@app.command()
@command
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="run.json, or the folder that holds it.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.md and report.html. Default: where the run is.")
    ] = None,
) -> None:
    """Make the reports of a run again."""
    from mtp_bench.report.terminal import run_report
    from mtp_bench.report.words import first_line
    from mtp_bench.results import FILE_NAME, load_run
    from mtp_bench.run_folder import write_report

    path = Path(run)
    if not (path / FILE_NAME).exists() and any(path.glob(f"rank-*/{FILE_NAME}")):
        raise InputError(
            f"{run}: the folder of a job, with a run a rank: use mtp-bench compare {shlex.quote(run)}, or give one rank"
        )
    found = load_run(run)
    written = write_report(found, out or (path if path.is_dir() else path.parent))
    print(first_line(found))
    print_report(lambda width: run_report(found, width))
    print(f"\nreport: {written}")
