"""The ``mtp-bench`` command: thin commands, each a few calls into the library. Nothing below this file prints.

Everything heavy is imported inside the commands, so that ``--help`` is quick.
"""

from __future__ import annotations

import functools
import json
import shlex
import sys
import warnings
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

from mtp_bench import __version__
from mtp_bench.errors import InputError, RunError
from mtp_bench.signals import exit_code
from mtp_bench.streams import say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mtp_bench.results import Run

FAILED, USAGE = 1, 2

P = ParamSpec("P")
R = TypeVar("R")

app = typer.Typer(
    name="mtp-bench",
    help="Measure what variants of the Multi-Token Prediction loss cost: values, host-device syncs, step time.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # rich would double the time of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Listing(StrEnum):
    """What ``list`` lists."""

    VARIANTS = "variants"
    PROFILES = "profiles"
    DEVICES = "devices"


class Format(StrEnum):
    """How ``compare`` shows what it found."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"


def _command(function: Callable[P, R]) -> Callable[P, R]:
    """Turn what the user got wrong into one line and exit code 2, and Ctrl-C and its like into theirs."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (InputError, RunError) as error:
            say(f"error: {' '.join(str(error).split())}")
            raise typer.Exit(USAGE if isinstance(error, InputError) else FAILED) from None
        except KeyboardInterrupt as stop:
            say("interrupted")
            raise typer.Exit(exit_code(stop)) from None

    return wrapped


def _show_version(asked: bool) -> None:
    if asked:
        print(f"mtp-bench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
@_command
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
        Path | None, typer.Option(help="Folder for run.json and report.md. Default: reports/TIME-DEVICE.")
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
                leads_ms=_numbers(lead),
                values=values,
                detectors=_words("--detectors", detectors),
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
    report = folder.write_report(found)
    if as_json:
        sys.stdout.write(found.to_json())
    else:
        from mtp_bench.report.terminal import run_report

        _print(lambda width: run_report(found, width))
        print(f"\nreport: {report}")
    if any(result.status == "failed" for result in found.results):
        say("error: " + _failures(found))
        raise typer.Exit(FAILED)


@app.command()
@_command
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
    found = comparing.compare(labelled, baseline, _words("--fail-on", fail_on) or ())
    if format_ is Format.JSON:
        print(json.dumps(comparing.to_json(found), indent=1, allow_nan=False))
    elif format_ is Format.MARKDOWN:
        from mtp_bench.report import markdown

        sys.stdout.write(markdown.comparison_report(found))
    else:
        from mtp_bench.report.terminal import comparison_report

        _print(lambda width: comparison_report(found, width))
    raise typer.Exit(found.exit_code)


@app.command()
@_command
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="run.json, or the folder that holds it.")],
    out: Annotated[Path | None, typer.Option(help="Folder for report.md. Default: where the run is.")] = None,
) -> None:
    """Make the reports of a run again."""
    from mtp_bench.report.terminal import run_report
    from mtp_bench.report.words import first_line
    from mtp_bench.results import load_run
    from mtp_bench.run_folder import write_report

    found = load_run(run)
    path = Path(run)
    written = write_report(found, out or (path if path.is_dir() else path.parent))
    print(first_line(found))
    _print(lambda width: run_report(found, width))
    print(f"\nreport: {written}")


@app.command("list")
@_command
def list_(what: Annotated[Listing, typer.Argument(help="What to list.")]) -> None:
    """List variants, workload profiles or device profiles."""
    for name, text in _LISTINGS[what]():
        print(f"{name:<16} {text}".rstrip())


@app.command()
@_command
def doctor() -> None:
    """Say what works on this machine, what does not, and why."""
    from mtp_bench.doctor import examine

    for finding in examine():
        print(f"{finding.name:<18} {finding.state:<8} {finding.text}")
        sys.stdout.flush()


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


def _list_variants() -> list[tuple[str, str]]:
    from mtp_bench import variants

    return [(name, _about_variant(name)) for name in variants.available_names()]


def _about_variant(name: str) -> str:
    """Title, and version and code path of somebody else's; why it cannot be loaded here, where it cannot."""
    from mtp_bench import variants

    try:
        with warnings.catch_warnings(action="ignore"):  # Megatron's, on import
            variant = variants.load(name)
    except Exception as error:  # a broken installation of one variant hides no other
        why = " ".join(str(error).split()).removeprefix(f"--variant {name}: ")
        return "; ".join(filter(None, [variants.title(name), f"cannot run here: {why}"]))
    return "; ".join(filter(None, [variant.title, variant.version, variant.path, variant.note]))


def _list_profiles() -> list[tuple[str, str]]:
    from mtp_bench import workloads

    loaded = [workloads.load(name) for name in workloads.builtin_names()]
    return [(workload.name, f"{workload.title} ({workload.source})") for workload in loaded]


def _list_devices() -> list[tuple[str, str]]:
    from mtp_bench import profiles

    rows = [("cuda[:N]", "a GPU, measured")]
    for name in profiles.profile_names("devices"):
        keys = profiles.read_toml(profiles.profile_dir("devices") / f"{name}.toml")
        rows.append((f"sim:{name}", f"{keys.get('title', keys.get('name', ''))} (modelled)"))
    return rows


_LISTINGS: dict[Listing, Callable[[], list[tuple[str, str]]]] = {
    Listing.VARIANTS: _list_variants,
    Listing.PROFILES: _list_profiles,
    Listing.DEVICES: _list_devices,
}


def _labels(paths: list[str]) -> list[str]:
    """What runs are called: their folder's name where that tells them apart, else the path as given."""
    names = [Path(path).resolve().name if Path(path).is_dir() else Path(path).resolve().parent.name for path in paths]
    return names if len(set(names)) == len(names) else paths


def _numbers(text: str | None) -> list[float] | None:
    """``0,1,10`` as numbers; None where the option was not given."""
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise InputError(f"--lead {text!r}: expected milliseconds separated by commas, as in --lead 0,1,10") from None


def _words(option: str, text: str | None) -> list[str] | None:
    """``a,b`` as words; None where the option was not given."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise InputError(f"{option} {text!r}: expected names separated by commas")
    return words


def _print(render: Callable[[int], RenderableType]) -> None:
    """Print a report as wide as the terminal; in a pipe tables are 80 columns wide, and a sentence is one line."""
    from rich.console import Console

    console = Console(highlight=False)
    if console.width < 1:  # COLUMNS=0
        console.width = 80
    console.print(render(console.width), crop=False)
