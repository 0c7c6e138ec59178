"""Where the ranks of a job write: ``out/rank-N``, or ``out/2/rank-N`` and so on where an earlier launch wrote."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, dropwhile
from pathlib import Path

from mtp_bench.results import FILE_NAME


def of_launch(out: Path) -> str:
    """The folder in ``out`` that no launch has written to: "" for ``out`` itself, else "2", "3" and so on."""
    return next(name for name in _names() if not any((out / name).glob("rank-*")))


def of_rank(out: Path, launch: str, rank: int) -> Path:
    """This rank's folder in that of the launch, or another: rank 0 does not see what is on another machine's disk."""
    names = dropwhile(lambda name: name != launch, _names())
    folders = (out / name / f"rank-{rank}" for name in names)
    return next(folder for folder in folders if not (folder / FILE_NAME).exists())


def _names() -> Iterator[str]:
    yield ""
    yield from map(str, count(2))
