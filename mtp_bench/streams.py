"""Standard output and error as they come: closed, full, not UTF-8, or of a terminal that is gone."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


def prepare() -> None:
    """Let nothing that is printed raise for its characters, and print to ``/dev/null`` where a stream is closed."""
    _fill_closed_descriptors()
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115  (open to the end)
        getattr(sys, name).reconfigure(errors="backslashreplace")


def print_utf_8() -> None:
    """Print UTF-8 whatever the locale asks for, which a document that names its encoding must keep."""
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # of a file, a pipe or a terminal


@contextmanager
def failing_in_one_line() -> Iterator[None]:
    """Exit with 1 where standard output cannot be written; without a word where its reader (``head``) has gone."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        _discard(sys.stdout)
        if error.errno != errno.EPIPE:
            say(f"error: cannot write to standard output: {error.strerror}")
        sys.exit(1)


def say(text: str) -> None:
    """Print on standard error, if anybody still listens there."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Print to ``/dev/null`` from here on, so that what is still buffered does not fail once more on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fill_closed_descriptors() -> None:
    """``/dev/null`` at every closed one of 0, 1 and 2, which the next file or pipe opened would become otherwise."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
