"""The worker process as its parent sees it: started, spoken to, and ended with everything that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from mtp_bench.errors import InputError, RunError
from mtp_bench.job import receive, send

_ERROR_TAIL = 2_000  # characters of a dead worker's output that its result keeps
_EXIT_SECONDS = 60


class WorkerProcess:
    """A worker on ``device``, which it has found when this returns. Raises InputError where it cannot be had.

    ``module`` is what it runs; it says what ``mtp_bench.worker`` says when asked for a device.
    """

    def __init__(self, device: str, module: str = "mtp_bench.worker") -> None:
        self._output = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  (closed by close())
        jobs_end, jobs = os.pipe()
        events, events_end = os.pipe()
        self._process = subprocess.Popen(
            # Megatron warns of what is not installed each time that it is imported.
            [sys.executable, "-W", "ignore", "-m", module, str(jobs_end), str(events_end)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=(jobs_end, events_end),
            env={**os.environ, "PYTHONPATH": import_path()},
            start_new_session=True,  # Ctrl-C is for this side, which stops the worker after writing
        )
        os.close(jobs_end)
        os.close(events_end)
        self._jobs: IO[str] = os.fdopen(jobs, "w")
        self._events: IO[str] = os.fdopen(events, errors="replace")
        try:
            self.send({"device": device})
            started = self.receive()
            if started is None:
                raise RunError(f"the worker process did not start: {self.why_it_died()}")
        except BaseException:
            self.close()
            raise
        self.spec: str = started["spec"]
        self.device: dict[str, Any] = started["device"]
        self.detectors: list[str] = started["detectors"]
        self.detectors_linger: bool = started["detectors_linger"]

    def send(self, message: dict[str, Any]) -> None:
        """Tell the worker something; that it is dead shows on receiving."""
        with contextlib.suppress(BrokenPipeError):
            send(self._jobs, message)

    def receive(self) -> dict[str, Any] | None:
        """What the worker says next; None where it has died. Raises InputError where that is what it says."""
        try:
            event = receive(self._events)
        except ValueError:  # something else has written there: no word of this worker counts any more
            self._kill()
            return None
        if event is not None and event["event"] == "input_error":
            raise InputError(event["message"])
        return event

    def why_it_died(self) -> str:
        """The exit code or signal, and the end of what it printed."""
        code = self._process.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._output.seek(0)
        tail = self._output.read()[-_ERROR_TAIL:].strip()
        return f"{how}; its output ends with:\n{tail}" if tail else how

    def finish(self) -> None:
        """Let a worker that is done end by itself: Nsight Systems takes what is left from a process as it exits."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)

    def close(self) -> None:
        """End the worker and what it has started."""
        self._kill()
        self._process.wait()
        for stream in (self._jobs, self._events, self._output):
            with contextlib.suppress(OSError):  # words to a dead worker that could not be delivered
                stream.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it leads a group of its own, its children included


def import_path() -> str:
    """``PYTHONPATH`` for a process that imports what this one would: the user's variants, and this package."""
    package_root = str(Path(__file__).resolve().parent.parent)
    entries = [entry or os.getcwd() for entry in sys.path] + [package_root, os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(dict.fromkeys(entry for entry in entries if entry))
