"""What ends this process: SIGTERM and SIGHUP as Ctrl-C does, each with its own exit code, and its parent's death."""

from __future__ import annotations

import ctypes
import signal
import sys
from types import FrameType

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


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


def end_with_parent() -> None:
    """Linux: be killed when the parent dies, however it dies, so that no worker holds on to a GPU."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def exit_code(stop: KeyboardInterrupt) -> int:
    """130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP, as shells have it."""
    return 128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise Stopped(number)
