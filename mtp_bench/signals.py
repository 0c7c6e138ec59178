"""SIGTERM and SIGHUP end the command as Ctrl-C does, each with its own exit code."""

from __future__ import annotations

import signal
from types import FrameType


class Stopped(KeyboardInterrupt):
    """Asked to end by another signal than Ctrl-C's."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def install() -> None:
    """Raise Stopped on SIGTERM and SIGHUP, unless they are ignored, as ``nohup`` has it."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)


def exit_code(stop: KeyboardInterrupt) -> int:
    """130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP, as shells have it."""
    return 128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise Stopped(number)
