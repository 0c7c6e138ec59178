"""The Typer application, and what its commands share: errors, exit codes, words and numbers, printing a report."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar

import typer

from mtp_bench import __version__
from mtp_bench.errors import InputError, RunError
from mtp_bench.signals import exit_code
from mtp_bench.streams import say

if TYPE_CHECKING:
    from rich.console import RenderableType

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


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Turn what the user got wrong into one line and exit code 2, and Ctrl-C and its like into theirs.

    From here on garbage is collected again, which :mod:`mtp_bench.__main__` has put off.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        gc.enable()
        try:
            return function(*args, **kwargs)
        except (InputError, RunError) as error:
            from mtp_bench.nsight.text import printable

            say(f"error: {printable(' '.join(str(error).split()))}")  # it quotes names of files and what programs say
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


def numbers(text: str | None) -> list[float] | None:
    """``0,1,10`` as numbers; None where the option was not given."""
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise InputError(f"--lead {text!r}: expected milliseconds separated by commas, as in --lead 0,1,10") from None


def words(option: str, text: str | None) -> list[str] | None:
    """``a,b`` as words; None where the option was not given."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise InputError(f"{option} {text!r}: expected names separated by commas")
    return words


def print_report(render: Callable[[int], RenderableType]) -> None:
    """Print a report as wide as the terminal; in a pipe tables are 80 columns wide, and a sentence is one line."""
    from rich.console import Console

    console = Console(highlight=False)
    if console.width < 1:  # COLUMNS=0
        console.width = 80
    console.print(render(console.width), crop=False)
