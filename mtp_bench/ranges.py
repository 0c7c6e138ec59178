"""NVTX ranges of domain ``mtp_bench``, and the range path and phase that syncs are filed under.

Range texts are a contract (README, NVTX ranges): ``run`` > ``workload:NAME`` > ``variant:NAME`` > ``step`` >
``forward`` > ``mtp_loss`` > ``depth:K``; ``step`` > ``backward``; ``step`` > ``finalize``. The path is kept once for
the process, not per thread, because backward runs on autograd's own threads on CUDA.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

DOMAIN = "mtp_bench"
PHASES = ("forward", "backward", "finalize", "optimizer")
# Set to cudaProfilerApi, it asks a run to call cudaProfilerStart and cudaProfilerStop around its ranges.
CAPTURE_VARIABLE = "MTP_BENCH_CAPTURE_RANGE"
STAGE = "stage: "  # begins the marks that tell in a capture what the steps after them are for
# Work inside these crosses threads, so NVTX must see start/end (process) ranges, not a push/pop stack.
_PROCESS_RANGES = frozenset({"run", "step", "backward"})

P = ParamSpec("P")
R = TypeVar("R")

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


def steps(function: Callable[P, R], first: int = 10, count: int = 5) -> Callable[P, R]:
    """The training step ``function``, each call of it a range ``step``, some of them within one range ``run``.

    ``run`` spans the calls ``first`` to ``first + count - 1``, counted from 0, so that ``nsys profile`` with the
    capture range ``run@mtp_bench`` records these and no warm-up (docs/nsight.md).
    """
    if profiled() and _nvtx() is None:
        warnings.warn("the package nvtx is not installed: no range reaches Nsight Systems", stacklevel=2)
    calls = 0
    run: Any = None

    @wraps(function)
    def step(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal calls, run
        # Not in the path: it may outlive ranges that the caller has open now.
        if calls == first and _nvtx() is not None:
            run = _nvtx().start_range("run", domain=DOMAIN)
        calls += 1
        try:
            with open_range("step"):
                return function(*args, **kwargs)
        finally:
            if calls == first + count and run is not None:
                _nvtx().end_range(run)

    return step


def profiled() -> bool:
    """Whether Nsight Systems watches this process, or one that started it."""
    return "NSYS_PROFILING_SESSION_ID" in os.environ


def mark(text: str) -> None:
    """Put ``text`` on the timeline of Nsight Systems, where it watches this process."""
    if profiled() and _nvtx() is not None:
        _nvtx().mark(text, domain=DOMAIN)


def path() -> tuple[str, ...]:
    """The open ranges, outermost first."""
    return tuple(_path)


def phase() -> str:
    """The innermost open phase; outside all of them, what PyTorch is doing: ``backward`` or ``forward``."""
    return next((text for text in reversed(_path) if text in PHASES), "backward" if _in_backward() else "forward")


def _in_backward() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch._C._current_graph_task_id() >= 0
