"""End an nsys that does not end: its agent, its launcher and the program lead process groups of their own."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple


class _Process(NamedTuple):
    number: int
    parent: int
    arguments: list[str]


def kill_nsys(number: int) -> None:
    """Kill the nsys with process id ``number``, all that it has started, and the agent of its session."""
    running = _processes()
    ours = {number}
    while more := {process.number for process in running if process.parent in ours} - ours:
        ours |= more
    # The agent is nobody's child; the name of its session ends with the process id of nsys.
    ours |= {process.number for process in running if _is_agent(process, number)}
    for found in ours:
        with contextlib.suppress(ProcessLookupError):
            os.kill(found, signal.SIGKILL)


def _is_agent(process: _Process, nsys: int) -> bool:
    return "--start-agent" in process.arguments and any(
        argument.startswith("--session-name=") and argument.endswith(f"-{nsys}") for argument in process.arguments
    )


def _processes() -> list[_Process]:
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # no process, or one that has just ended
            number = int(folder.name)
            parent = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            found.append(_Process(number, parent, arguments))
    return found
