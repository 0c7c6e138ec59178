"""NVTX ranges of domain ``mtp_bench``, and the range path and phase that syncs are filed under.

Range texts are a contract (README, NVTX ranges): ``run`` > ``workload:NAME`` > ``variant:NAME`` > ``step`` >
``forward`` > ``mtp_loss`` > ``depth:K``; ``step`` > ``backward``; ``step`` > ``finalize``. The path is kept once for
the process, not per thread, because backward runs on autograd's own threads on CUDA.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

DOMAIN = "mtp_bench"
PHASES = ("forward", "backward", "finalize", "optimizer")
# Work inside these crosses threads, so NVTX must see start/end (process) ranges, not a push/pop stack.
_PROCESS_RANGES = frozenset({"run", "step", "backward"})

_path: list[str] = []


@cache
def _nvtx() -> Any:
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx


@contextmanager
def open_range(text: str) -> Iterator[None]:
    """Open the range ``text`` in NVTX (where the package is installed) and in the path that syncs are filed under."""
    handle = push(text)
    try:
        yield
    finally:
        pop(text, handle)


def push(text: str) -> Any:
    """Open a range that does not end in the frame that opened it; give what is returned to :func:`pop`."""
    nvtx = _nvtx()
    _path.append(text)
    if nvtx is None:
        return None
    if text in _PROCESS_RANGES:
        return nvtx.start_range(text, domain=DOMAIN)
    nvtx.push_range(text, domain=DOMAIN)
    return None


def pop(text: str, handle: Any) -> None:
    """Close the innermost range, which must be ``text``."""
    nvtx = _nvtx()
    closed = _path.pop()
    assert closed == text, f"range {closed!r} closed as {text!r}"
    if nvtx is None:
        return
    if text in _PROCESS_RANGES:
        nvtx.end_range(handle)
    else:
        nvtx.pop_range(domain=DOMAIN)


def path() -> tuple[str, ...]:
    """The open ranges, outermost first."""
    return tuple(_path)


def phase() -> str:
    """The innermost open phase; outside all of them, what PyTorch is doing: ``backward`` or ``forward``."""
    return next((text for text in reversed(_path) if text in PHASES), "backward" if _in_backward() else "forward")


def _in_backward() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch._C._current_graph_task_id() >= 0
