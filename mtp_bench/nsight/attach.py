"""Sessions of nsys: start and stop a collection in a program that ``nsys launch --session-new`` runs."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from pathlib import Path

from mtp_bench.errors import InputError, RunError, did_you_mean
from mtp_bench.nsight import tool
from mtp_bench.nsight.convert import REPORT, STREAM
from mtp_bench.nsight.tool import Nsys
from mtp_bench.results import require_writable

_COLLECTING = "Collection"
# ID, time since it began, state, launched programs, name.
_SESSION = re.compile(r"^\s*\d+\s+(?P<time>[\d:.]+)\s+(?P<state>\S+)\s+(?P<launched>\d+)\s+(?P<name>.*\S)\s*$")
# CPU sampling is left out: it makes a capture a hundred times as large. What is traced was said to `nsys launch`.
_OPTIONS = {
    "sample": "none",
    "cpuctxsw": "none",
    "capture-range": "none",
    "stop-on-exit": "true",
    "export": "none",
    "stats": "false",
}
_STOP_SECONDS = 3600  # a long capture is written and imported before `nsys stop` returns


@dataclass(frozen=True, slots=True)
class Session:
    """One session as ``nsys sessions list`` has it. ``time`` is how long it has been there, ``00:41``."""

    name: str
    state: str
    time: str
    launched: int

    @property
    def collects(self) -> bool:
        """Whether a collection runs in it now."""
        return self.state == _COLLECTING


def sessions(nsys: Nsys) -> list[Session]:
    """The sessions of this user on this machine. RunError where nsys cannot say."""
    done = nsys.ask("sessions", "list")
    if done.returncode != 0:
        raise RunError(f"{nsys.name} cannot list its sessions: {tool.said(done)}")
    rows = filter(None, map(_SESSION.match, done.stdout.splitlines()))
    return [Session(row["name"], row["state"], row["time"], int(row["launched"])) for row in rows]


def session(nsys: Nsys, name: str) -> Session:
    """The session ``name``. InputError where there is none, with those that there are."""
    found = sessions(nsys)
    for one in found:
        if one.name == name:
            return one
    if not found:
        raise InputError(
            f"--session {name}: no session of nsys here, of this user and with this TMPDIR; start the program with "
            f"nsys launch --session-new={name} --trace=cuda,nvtx PROGRAM"
        )
    raise InputError(f"--session {name}: no such session{did_you_mean(name, [one.name for one in found])}")


def start(nsys: Nsys, name: str, output: Path | None = None) -> Path:
    """Begin to collect in the session ``name``; return where its capture will be, without suffix.

    By default that is in ``reports/``, named by time and session. Raises InputError where there is no such session, it
    collects already, or nothing can be written there, and RunError where nsys refuses.
    """
    if session(nsys, name).collects:
        raise InputError(f"--session {name}: it collects already; stop it first")
    output = (output or _default_output(name)).absolute()
    require_writable(output.parent)
    for suffix in (REPORT, STREAM):
        if output.with_name(output.name + suffix).exists():
            raise InputError(f"{output}{suffix} is there already; choose another file with --out")
    known = nsys.options("start")
    options = [f"--{option}={value}" for option, value in _OPTIONS.items() if option in known]
    escaped = str(output).replace("%", "%%")
    done = nsys.ask("start", f"--session={name}", *options, f"--output={escaped}")
    if done.returncode != 0 or not session(nsys, name).collects:  # what it cannot start it may pass over in silence
        raise RunError(f"{nsys.name} did not start to collect in session {name}: {tool.said(done)}")
    return output


def stop(nsys: Nsys, name: str) -> Path:
    """End the collection in the session ``name`` and return its capture; the program runs on.

    Raises InputError where there is no such session or it collects nothing, and RunError where nsys fails.
    """
    if not session(nsys, name).collects:
        raise InputError(f"--session {name}: it collects nothing; start it first")
    done = nsys.ask("stop", f"--session={name}", seconds=_STOP_SECONDS)
    capture = _generated(done.stdout)
    if done.returncode != 0 or capture is None:
        raise RunError(f"{nsys.name} wrote no capture of session {name}: {tool.said(done)}")
    return capture


def _generated(text: str) -> Path | None:
    """The capture that nsys says it has written, which need not be where it was told to."""
    _, _, after = text.partition("Generated:")
    paths = [Path(line.strip()) for line in after.splitlines() if line.strip().endswith((REPORT, STREAM))]
    return next((path for path in paths if path.is_file()), None)


def _default_output(name: str) -> Path:
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("reports") / f"{now}-{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}"
