"""Writing a rank's ``run.json`` while the job runs: on a thread of its own, rarely, and never at the job's expense."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mtp_bench.errors import InputError
from mtp_bench.results import Run

MIN_INTERVAL_S = 30.0
WRITES_TO_TIME = 10_000  # writing takes at most 0.01 % of the time
_LOOK_EVERY_S = 0.5  # a thread that is woken costs the job's own some 50 us of waiting for the interpreter's lock


def interval_s(write_s: float) -> float:
    """How long nothing is written after a write that took ``write_s``."""
    return max(MIN_INTERVAL_S, WRITES_TO_TIME * write_s)


class Writer:
    """A daemon thread that writes what ``make`` returns into ``folder``.

    It writes when the first window is done, then every 30 s at most, less often where writing takes long, and when it
    is closed. Where writing fails that is said once, by a warning, and tried again at the next interval.
    ``after_window`` runs on the thread, at most twice a second, when windows have been done since.
    """

    def __init__(self, folder: Path, make: Callable[[], Run], after_window: Callable[[], None] | None = None) -> None:
        self._folder = folder
        self._make = make
        self._after_window = after_window
        self._pid = os.getpid()
        self._done = False  # windows since the thread last looked
        self._unwritten = False
        self._next_s = 0.0
        self._complained = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mtp_bench.ab", daemon=True)
        self._thread.start()

    def window_done(self) -> None:
        """A window is over: sets a flag that the thread sees within half a second."""
        self._done = True

    def close(self, at_most_s: float) -> None:
        """Write a last time, and wait for it so long. In a forked child, which has no such thread, nothing is done."""
        if os.getpid() != self._pid:
            return
        self._closing.set()
        self._thread.join(at_most_s)
        if self._thread.is_alive():
            self._complain(f"still writing to {self._folder} after {at_most_s:g} s; it is left to the system")

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_EVERY_S):
            self._look()
        self._after_windows()
        self._write()

    def _look(self) -> None:
        if self._done:
            self._after_windows()
        if self._unwritten and time.monotonic() >= self._next_s:
            self._write()

    def _after_windows(self) -> None:
        self._done, self._unwritten = False, True
        if self._after_window is not None:
            try:
                self._after_window()
            except Exception as error:
                self._complain(f"{type(error).__name__} after a window: {error}; the job goes on")

    def _write(self) -> None:
        began_s = time.monotonic()
        try:
            self._make().write(self._folder)
            self._unwritten = False
        except Exception as error:
            self._complain(f"cannot write to {self._folder}: {_reason(error)}; the job goes on, and it is tried again")
        ended_s = time.monotonic()
        self._next_s = ended_s + interval_s(ended_s - began_s)

    def _complain(self, what: str) -> None:
        if self._complained:
            return
        self._complained = True
        with suppress(Warning):  # where warnings are errors, this one would end the thread
            warnings.warn(f"mtp_bench.ab: {what}", RuntimeWarning, stacklevel=2)


def _reason(error: Exception) -> str:
    cause = error.__context__ if isinstance(error, InputError) and error.__context__ else error
    return cause.strerror or str(cause) if isinstance(cause, OSError) else f"{type(cause).__name__}: {cause}"
