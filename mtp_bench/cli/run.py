"""``mtp-bench run``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtp_bench import __version__
from mtp_bench.cli.app import FAILED, app, command, numbers, print_report, words
from mtp_bench.streams import say

if TYPE_CHECKING:
    from mtp_bench.results import Run


@app.command()
@command
def run(
    profile: Annotated[
        list[str] | None, typer.Option(help="Workload profile, a name or a TOML file. Repeat for more.")
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="Variant, a name or package.module:callable. Repeat for more.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cuda, cuda:N, sim or sim:PROFILE.")] = "auto",
    scope: Annotated[str, typer.Option(help="loss (the losses alone) or step (a Megatron GPT model).")] = "loss",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of all workloads.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for run.json and the reports. Default: reports/TIME-DEVICE.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print run.json, and nothing else, on standard output.")
    ] = False,
    values: Annotated[
        str, typer.Option(help="Judge values at a small size (auto), at full size (real) or not at all (shape).")
    ] = "auto",
    detectors: Annotated[str | None, typer.Option(help="Sync detectors, separated by commas.")] = None,
    lead: Annotated[
        str | None, typer.Option(metavar="MS,...", help="Device work queued before a step, in ms. Default: 0,1,10.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Also write a trace of one step of each variant.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of inputs, weights and the order of windows.")
    ] = None,
) -> None:
    """Run variants on workloads: their values, syncs and step time."""
    from mtp_bench import runner
    from mtp_bench.progress import ProgressBar
    from mtp_bench.run_folder import RunFolder

    tell = say if as_json else print
    folder = RunFolder(out)

    def on_start(started: dict[str, Any]) -> None:
        tell(_first_line(started, device))
        sys.stdout.flush()

    with ProgressBar() as progress:
        try:
            found = runner.run(
                profiles=profile,
                variants=list(dict.fromkeys(variant)) if variant else None,
                device=device,
                scope=scope,
                set=set_ or (),
                leads_ms=numbers(lead),
                values=values,
                detectors=words("--detectors", detectors),
                out=folder.of_device,
                seed=seed,
                trace=trace,
                command=shlex.join(["mtp-bench", *sys.argv[1:]]),
                on_start=on_start,
                progress=progress,
            )
        except KeyboardInterrupt:
            kept = folder.keep()
            progress.close()
            if kept:
                say(kept)
            raise
    show_run(found, folder.write_report(found), as_json)


def show_run(run: Run, report: Path, as_json: bool) -> None:
    """Print what a run found, and exit with 1 where a variant failed."""
    if as_json:
        sys.stdout.write(run.to_json())
    else:
        from mtp_bench.report.terminal import run_report

        print_report(lambda width: run_report(run, width))
        print(f"\nreport: {report}")
    if any(result.status == "failed" for result in run.results):
        say("error: " + _failures(run))
        raise typer.Exit(FAILED)


def _first_line(started: dict[str, Any], asked: str) -> str:
    from mtp_bench.environment import version
    from mtp_bench.report.words import stand_ins, what_and_where

    workloads = {workload.name: workload.describe() for workload in started["workloads"]}
    line = what_and_where(
        __version__,
        started["spec"],
        started["name"],
        started["modelled"],
        version("torch") or "unknown",
        started["scope"],
        list(workloads),
        note=", no GPU found" if asked == "auto" and started["kind"] == "sim" else "",
    )
    return "; ".join(filter(None, [line, stand_ins(workloads) if started["scope"] == "step" else ""]))


def _failures(run: Run) -> str:
    failed = dict.fromkeys((r.variant, r.workload) for r in run.results if r.status == "failed")
    return "; ".join(f"{variant} failed on {workload}" for variant, workload in failed)
