"""``mtp-bench run`` under ``nsys profile``: what is run, where its capture goes, and how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mtp_bench.errors import InputError, RunError
from mtp_bench.nsight.command import command_line, program_environment, remove_output
from mtp_bench.nsight.convert import REPORT, SQLITE, STREAM, to_sqlite
from mtp_bench.nsight.ending import kill_nsys
from mtp_bench.nsight.merge import merge
from mtp_bench.nsight.steps import read_steps
from mtp_bench.nsight.tool import Nsys, first_words
from mtp_bench.ranges import profiled
from mtp_bench.results import FILE_NAME, Run, load_run, require_writable
from mtp_bench.signals import Stopped

LOG_NAME = "nsys.log"
# The run's first line, and what Debian's nsys says each time: nothing that explains a failure.
_NO_REASON = ("mtp-bench ", "Importer error status:", "Unable to retrieve the importer version:")


@dataclass(frozen=True)
class Plan:
    """One run under nsys: its folder, nsys's output in it (without suffix), and the command line."""

    nsys: Nsys
    folder: Path
    output: Path
    command: tuple[str, ...]


@dataclass
class Ending:
    """How it ended. ``code`` is nsys's, which is the run's where it got that far; ``errors`` are what the run said."""

    code: int = 0
    lines: list[str] = field(default_factory=list)
    stopped: KeyboardInterrupt | None = None
    has_results: bool = False

    @property
    def errors(self) -> list[str]:
        """What the run itself said went wrong."""
        return [line.removeprefix("error: ") for line in self.lines if line.startswith("error: ")]

    def require_results(self, nsys: Nsys) -> None:
        """Raise what ended the run where it has no result."""
        if not self.has_results:
            self.require_end()
            said = [line for line in self.lines if not line.startswith(_NO_REASON)]
            words = first_words("\n".join(said)) or "nothing"
            raise RunError(f"{nsys.name} ended with exit code {self.code} before any result; it said: {words}")

    def require_end(self) -> None:
        """Raise what ended the run before its own end: KeyboardInterrupt, or InputError or RunError."""
        if self.stopped is not None:
            raise self.stopped
        if self.code - 128 in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # something else has told it to stop
            raise Stopped(self.code - 128)
        if self.code and self.errors:
            raise (InputError if self.code == 2 else RunError)(self.errors[-1])


def plan(
    nsys: Nsys,
    run_arguments: Sequence[str],
    folder: Path,
    *,
    capture_range: str = "nvtx",
    python_backtrace: bool = False,
) -> Plan:
    """``mtp-bench run RUN_ARGUMENTS`` under ``nsys``, all of it written to ``folder``.

    Inside torchrun each rank has a folder of its own in it, and a capture named by the rank. Raises InputError where
    this process is under nsys already or ``nsys`` cannot take the options, and RunError where it is too old.
    """
    if profiled():
        raise InputError("this is under Nsight Systems already; start `mtp-bench run` here, or profile outside of it")
    rank = os.environ.get("RANK", "")
    name = "nsys"
    if rank.isdecimal():
        folder, name = folder / f"rank{rank}", f"nsys-rank{rank}"
    folder = folder.absolute()  # for a job script, which may start elsewhere
    # Of an option given twice the last counts.
    program = [*_this_program(), "run", *run_arguments, "--out", str(folder)]
    command = command_line(nsys, program, folder / name, capture_range=capture_range, python_backtrace=python_backtrace)
    return Plan(nsys, folder, folder / name, tuple(command))


def execute(planned: Plan, on_line: Callable[[str], None]) -> Ending:
    """Run it; ``on_line`` is told each line that nsys and the run print, which ``nsys.log`` keeps.

    After Ctrl-C the run keeps what is done and nsys writes its capture; a second one ends both at once.
    """
    require_writable(planned.folder)
    remove_output(planned.output)
    results = planned.folder / FILE_NAME
    before = _written_at(results)
    ending = Ending()
    with (
        (planned.folder / LOG_NAME).open("w", encoding="utf-8", errors="backslashreplace") as log,
        _started(planned.command) as process,
    ):

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line)
                ending.lines.append(line.rstrip())
                on_line(ending.lines[-1])

        try:
            read()
        except KeyboardInterrupt as stop:
            ending.stopped = stop
            process.send_signal(signal.SIGINT)  # nsys passes it on to the run
            read()
        ending.code = process.wait()
    _keep_umask(planned.folder)
    ending.has_results = _written_at(results) != before
    return ending


def read_back(folder: Path, nsys: Nsys | None = None) -> tuple[Run, Path]:
    """The run in ``folder`` with what the capture beside it adds, as written there, and that capture.

    Raises InputError where one of the two is missing or cannot be read, and RunError where the capture cannot be
    converted here.
    """
    run = load_run(folder)
    kinds = (STREAM, REPORT, SQLITE)  # as nsys left it, so that an export of an earlier capture is not taken
    capture = next((path for kind in kinds for path in sorted(folder.glob(f"nsys*{kind}"))), None)
    if capture is None:
        raise InputError(
            f"{folder}: Nsight Systems left no capture there, so its range did not open or did not reach it"
        )
    exported = to_sqlite(capture, nsys)
    merged = merge(run, read_steps(exported))
    merged.write(folder)
    return merged, exported


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """nsys; it and all that it has started are killed where this is left by an error."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=program_environment(),
            start_new_session=True,  # Ctrl-C is for this side, which passes it on
        )
    except OSError as error:
        raise RunError(f"{command[0]} does not run: {error.strerror}") from None
    with process:
        try:
            yield process
        except BaseException:
            kill_nsys(process.pid)
            raise


def _this_program() -> list[str]:
    """What started this process: the script ``mtp-bench``, or ``python -m mtp_bench``."""
    script = Path(sys.argv[0]).absolute()
    return [str(script)] if script.name == "mtp-bench" and script.is_file() else [sys.executable, "-m", "mtp_bench"]


def _keep_umask(folder: Path) -> None:
    """nsys starts programs with a umask of 0, so that anybody could write to what they make."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.iterdir():
        path.chmod(path.stat().st_mode & ~mask)


def _written_at(file: Path) -> int | None:
    return file.stat().st_mtime_ns if file.is_file() else None
