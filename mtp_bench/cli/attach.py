"""``mtp-bench attach``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mtp_bench.cli.app import app, command


class Action(StrEnum):
    """What to do with a session."""

    START = "start"
    STOP = "stop"
    STATUS = "status"


@app.command()
@command
def attach(
    action: Annotated[Action, typer.Argument(help="Begin to collect, end it, or say what the session does.")],
    session: Annotated[
        str, typer.Option(metavar="NAME", help="The session, as nsys launch --session-new=NAME called it.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="With start: the capture's file, without suffix. Default: reports/TIME-NAME.")
    ] = None,
) -> None:
    """Collect with Nsight Systems in a program that nsys launch has started."""
    from mtp_bench.errors import InputError
    from mtp_bench.nsight import attach as attaching
    from mtp_bench.nsight import tool

    if out is not None and action is not Action.START:
        raise InputError(f"--out: {action.value} takes none; the capture is where start was told to put it")
    nsys = tool.installed()
    if action is Action.START:
        print(f"collecting in session {session}; its capture will be {attaching.start(nsys, session, out)}.*")
    elif action is Action.STOP:
        capture = attaching.stop(nsys, session)
        print(f"capture: {capture}\nread it with: mtp-bench import {capture}")
    else:
        found = attaching.session(nsys, session)
        doing = "collecting" if found.collects else "not collecting"
        print(f"{found.name}: {doing} ({found.state}), there for {found.time}, programs launched: {found.launched}")
