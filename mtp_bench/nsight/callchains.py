"""Call chains of CUDA calls, and the frame of each that tells most about where a sync comes from."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import PurePosixPath

from mtp_bench.nsight.sqlite import CALLCHAINS, RUNTIME, STRINGS, Export
from mtp_bench.nsight.text import printable

Stack = tuple[str, ...]

# Modules whose frames are inside every sync: CUDA, the profiler, PyTorch, the interpreter, the C library.
_MACHINERY = re.compile(
    r"libcu(da|dart|blas|dnn|fft|file|pti|rand|solver|sparse)\b.*|lib(torch|c10)(_\w+)?\b.*|libToolsInjection.*|"
    r"libnvToolsExt.*|(lib)?python[\d.]*\b.*|(libc|libpthread|libstdc\+\+|ld-linux[\w-]*)[-.].*"
)


def callchains_recorded(export: Export) -> bool:
    """Whether calls have call chains."""
    return (
        export.has(CALLCHAINS, "id", "symbol", "module", "stackDepth")
        and export.has(STRINGS, "id", "value")
        and export.offers(RUNTIME, "callchainId")
    )


def read_callchains(export: Export, ids: Iterable[int]) -> dict[int, Stack]:
    """The chains with these ids, innermost frame first."""
    if not callchains_recorded(export):
        return {}
    export.fill("chain", "id", [(number,) for number in set(ids)])
    text = f"(SELECT CAST(value AS TEXT) FROM {STRINGS} WHERE {STRINGS}.id = {{0}})"
    chains: dict[int, list[str]] = defaultdict(list)
    for number, symbol, module in export.rows(
        f"SELECT id, {text.format('symbol')}, {text.format('module')} FROM {CALLCHAINS} "
        "WHERE id IN (SELECT id FROM chain) ORDER BY id, stackDepth"
    ):
        chains[number].append(_frame(symbol or "", module or ""))
    known: dict[Stack, Stack] = {}
    return {number: known.setdefault(tuple(frames), tuple(frames)) for number, frames in chains.items()}


@cache
def _frame(symbol: str, module: str) -> str:
    """``symbol (library)``; the whole path of Python source, since its name alone is often ``__init__.py``."""
    where = module if ".py" in module else PurePosixPath(module).name
    return printable(" ".join(filter(None, [symbol, f"({where})" if where else ""])))


@cache
def site(stack: Stack) -> str | None:
    """The innermost Python frame, else the innermost frame outside CUDA, PyTorch and the interpreter."""
    python = (frame for frame in stack if ".py" in frame)
    outside = (frame for frame in stack if not _MACHINERY.fullmatch(_module(frame)))
    return next(python, None) or next(outside, None) or (stack[0] if stack else None)


def _module(frame: str) -> str:
    return frame.rpartition("(")[2].removesuffix(")")
