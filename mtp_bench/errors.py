"""Errors for people: one line that says what is wrong, where, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input. The command line prints the message alone, without a traceback, and exits with 2."""


class RunError(RuntimeError):
    """The run cannot go on, through no fault of the input. Printed as one line; exit code 1."""


def readable(text: str) -> str:
    """``text`` with what UTF-8 cannot hold (lone surrogates) as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for a near miss, else the list of what is known."""
    choices = sorted(known)
    near = difflib.get_close_matches(word, choices, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(choices)}"
