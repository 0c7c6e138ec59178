"""The Python frames of a synchronisation: the line a user can change, and who called it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from types import FrameType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Frames of the machinery that sees syncs or drives the step are never the line to blame. Variants are.
_OWN_MACHINERY = tuple(
    os.path.join(_PACKAGE, part)
    for part in (
        "devices",
        "syncs",
        "scopes",
        "ab",
        "megatron/placement.py",
        "variants/__init__.py",
        "measure.py",
        "numerics.py",
        "ranges.py",
        "recording.py",
        "preserved.py",
        "worker.py",
    )
)
_SCOPES = os.path.join(_PACKAGE, "scopes")
_SINGLE_FILES = ("contextlib", "functools", "threading")
_NEVER_THE_SITE = ("torch", *_SINGLE_FILES, "pytest", "_pytest", "pluggy", "typer", "click")
MAX_FRAMES = 16


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame. ``file`` is relative to its ``sys.path`` entry, ``path`` is absolute."""

    file: str
    line: int
    function: str
    path: str


def capture_stack(frame: FrameType | None = None) -> tuple[Frame, ...]:
    """Return the frames of the running thread, from the call site outwards, without PyTorch's and our machinery's own.

    ``frame`` is where to start, by default the caller's frame. At most ``MAX_FRAMES`` are kept.
    """
    frame = frame if frame is not None else sys._getframe(1)
    found: list[Frame] = []
    scope: list[Frame] = []  # the lines of ours that drive a step: better than none, as for PyTorch's own in backward
    while frame is not None and len(found) < MAX_FRAMES:
        path = frame.f_code.co_filename
        if not _is_machinery(path):
            found.append(_frame(frame))
        elif path.startswith(_SCOPES):
            scope.append(_frame(frame))
        frame = frame.f_back
    return tuple(found or scope)


def _frame(frame: FrameType) -> Frame:
    code = frame.f_code
    return Frame(relative_path(code.co_filename), frame.f_lineno, code.co_qualname, code.co_filename)


def user_frame_of(error: BaseException) -> Frame | None:
    """Return the innermost frame of ``error``'s traceback that is neither PyTorch's nor our machinery's."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not _is_machinery(code.co_filename):
            found = Frame(relative_path(code.co_filename), trace.tb_lineno, code.co_qualname, code.co_filename)
        trace = trace.tb_next
    return found


@cache
def _is_machinery(path: str) -> bool:
    if path.startswith("<"):
        return True
    return path.startswith((*_OWN_MACHINERY, *_library_dirs()))


@cache
def _library_dirs() -> tuple[str, ...]:
    """PyTorch, the modules of Python that stand between a caller and its callee, and what runs tests and commands."""
    files = [(name, sys.modules[name].__file__) for name in _NEVER_THE_SITE if name in sys.modules]
    return tuple(
        file if name in _SINGLE_FILES else os.path.dirname(file) + os.sep for name, file in files if file is not None
    )


@cache
def relative_path(path: str) -> str:
    """``path`` relative to the longest ``sys.path`` entry that holds it, so that runs of two machines compare."""
    absolute = os.path.abspath(path)
    holders = [os.path.abspath(entry or os.curdir) for entry in sys.path]
    inside = [entry for entry in holders if absolute.startswith(entry + os.sep)]
    return os.path.relpath(absolute, max(inside, key=len)) if inside else absolute
