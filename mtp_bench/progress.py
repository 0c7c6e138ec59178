"""The progress bar of a run, on standard error."""

from __future__ import annotations

import contextlib
import sys
from typing import Any


class ProgressBar:
    """A progress bar on standard error; nothing at all where that is not a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ProgressBar:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        return self

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show that ``done`` of ``total`` results are there, and ``what`` is under way."""
        if self._bar is None:
            return
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task(what, total=total)
        self._bar.update(self._task, completed=done, total=total, description=what)

    def close(self) -> None:
        """Take the bar away, so that what is printed next starts on a line of its own."""
        bar, self._bar = self._bar, None
        if bar is not None:
            with contextlib.suppress(OSError):  # the terminal is gone
                bar.stop()

    def __exit__(self, *_: object) -> None:
        self.close()
