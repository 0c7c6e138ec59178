"""``mtp-bench profile``."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from mtp_bench.cli.app import app, command, numbers
from mtp_bench.cli.run import show_run
from mtp_bench.errors import InputError, RunError
from mtp_bench.streams import say

if TYPE_CHECKING:
    from mtp_bench.nsight.profile import Plan
    from mtp_bench.nsight.tool import Nsys


class CaptureRange(StrEnum):
    """What starts and ends the capture."""

    NVTX = "nvtx"
    PROFILER_API = "cudaProfilerApi"


class _RunUnderNsys(TyperCommand):
    """Takes the options of ``run`` too, and lists them in its help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        own = {name for option in self.get_params(ctx) for name in option.opts}
        others = [option for option in _run_command().get_params(ctx) if not own.intersection(option.opts)]
        records = [option.get_help_record(ctx) for option in others]
        with formatter.section("Options of run"):
            formatter.write_dl([record for record in records if record is not None])


def _run_command() -> Any:
    return typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]


@app.command(
    cls=_RunUnderNsys,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    options_metavar="[OPTIONS] [OPTIONS OF RUN]",
)
@command
def profile(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command line, to paste into a job script, and run nothing.")
    ] = False,
    capture_range: Annotated[
        CaptureRange, typer.Option(help="What is captured: the range run@mtp_bench, or what cudaProfilerStart begins.")
    ] = CaptureRange.NVTX,
    python_backtrace: Annotated[
        bool, typer.Option("--python-backtrace", help="Record the Python lines that copy and synchronise; slower.")
    ] = False,
    read: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Run nothing: add the capture in this folder of a run to its results."),
    ] = None,
) -> None:
    """Run variants under Nsight Systems, and read its capture back into the results."""
    from mtp_bench.nsight import tool
    from mtp_bench.nsight.trial import require_ranges

    # The parser of run says what is wrong with its options before anything starts.
    asked = _run_command().make_context("profile", list(context.args), parent=context.parent).params
    numbers(asked["lead"])
    if read is not None:
        _show(read, None, asked["as_json"])
        return
    nsys = tool.Nsys("nsys", ()) if dry_run and tool.find() is None else tool.installed()
    planned = _plan(nsys, context.args, asked["out"], capture_range, python_backtrace)
    if dry_run:
        print(shlex.join(planned.command))
        say(f"then, to add the capture to the run: mtp-bench profile --read {shlex.quote(str(planned.folder))}")
        return
    require_ranges(nsys, python_backtrace=python_backtrace)
    _profile(planned, asked["as_json"])


def _plan(nsys: Nsys, arguments: list[str], out: Path | None, capture_range: CaptureRange, backtrace: bool) -> Plan:
    from mtp_bench.nsight.profile import plan
    from mtp_bench.run_folder import RunFolder

    folder = RunFolder(out).of_device("nsys")
    return plan(nsys, arguments, folder, capture_range=capture_range.value, python_backtrace=backtrace)


def _profile(planned: Plan, as_json: bool) -> None:
    from mtp_bench.nsight.profile import execute

    tell = say if as_json else print

    def on_line(line: str) -> None:
        if line.startswith("mtp-bench "):  # the run's first line: what runs where
            tell(line)
            sys.stdout.flush()

    ending = execute(planned, on_line)
    ending.require_results(planned.nsys)
    try:
        _show(planned.folder, planned.nsys, as_json, shlex.join(["mtp-bench", *sys.argv[1:]]))
    finally:
        if ending.stopped is not None:
            say(f"kept the results in {planned.folder}")
            raise ending.stopped
    ending.require_end()


def _show(folder: Path, nsys: Nsys | None, as_json: bool, command_line: str | None = None) -> None:
    """Add the capture in ``folder`` to its run, write the report and print it; where that fails the run stays."""
    from mtp_bench.nsight.profile import read_back
    from mtp_bench.results import load_run
    from mtp_bench.run_folder import write_report

    run, capture, problem = load_run(folder), None, None
    try:
        run, capture = read_back(folder, nsys)
    except (InputError, RunError) as error:
        problem = error
    if command_line is not None:
        run = run.model_copy(update={"command": command_line})
        run.write(folder)
    try:
        show_run(run, write_report(run, folder), as_json)
    finally:
        if capture is not None and not as_json:
            print(f"capture: {capture}")
        if problem is not None:
            raise RunError(f"{problem}; the results are kept in {folder}, without nsys")
