"""``--select`` and ``--sort``: which rows of a comparison are wanted, and in which order. No torch, no I/O."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mtp_bench.compare.pairs import Pair
from mtp_bench.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from mtp_bench.compare.comparison import Row

KEYS = ("workload", "scope", "variant", "lead")
_WORST_FIRST = ("slower", "unclear", "incomparable", "same", "faster")


@dataclass(frozen=True)
class Selection:
    """Globs a key: a row is wanted where one glob of each key matches. ``lead`` is in milliseconds, as it is shown."""

    globs: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Selection:
        """``workload=packed-*``, ``variant=sync_free,host_*``; InputError for another key."""
        globs: dict[str, tuple[str, ...]] = {}
        for text in texts:
            key, sign, values = text.partition("=")
            if key.strip() not in KEYS or not sign or not all(value.strip() for value in values.split(",")):
                near = "" if key.strip() in KEYS else did_you_mean(key.strip(), KEYS)
                raise InputError(f"--select {text!r}: expected KEY=GLOB with a key of {', '.join(KEYS)}{near}")
            globs[key.strip()] = (*globs.get(key.strip(), ()), *(value.strip() for value in values.split(",")))
        return cls(globs)

    def of(self, pairs: Iterable[Pair]) -> list[Pair]:
        """The wanted ones of ``pairs``; InputError where there are some, and none is wanted."""
        pairs = list(pairs)
        wanted = [pair for pair in pairs if all(_matches(pair, key, globs) for key, globs in self.globs.items())]
        if pairs and not wanted:
            there = ", ".join(
                f"{key} {' '.join(dict.fromkeys(filter(None, (_value(pair, key) for pair in pairs))))}"
                for key in self.globs
            )
            asked = " ".join(f"{key}={','.join(globs)}" for key, globs in self.globs.items())
            raise InputError(f"--select {asked}: nothing matches; there is {there}")
        return wanted


def sort(rows: Sequence[Row], by: str) -> tuple[Row, ...]:
    """Rows in the order of the runs, or the worst first by what ``by`` names; InputError for a name of no order."""
    if by not in ORDERS:
        raise InputError(f"--sort {by!r}: use {', '.join(ORDERS)}{did_you_mean(by, ORDERS)}")
    return tuple(sorted(rows, key=ORDERS[by]))


def _matches(pair: Pair, key: str, globs: Sequence[str]) -> bool:
    """What names no variant or lead (a whole workload that one side lacks) is wanted whatever is asked of them."""
    value = _value(pair, key)
    return value is None or any(fnmatch.fnmatchcase(value, glob) for glob in globs)


def _value(pair: Pair, key: str) -> str | None:
    if key == "lead":
        return None if pair.lead_ms is None else f"{pair.lead_ms:g}"
    value: str = getattr(pair, key)
    return value or None


def _by_difference(row: Row) -> float:
    return -row.difference.ns if row.difference else float("inf")


def _by_ratio(row: Row) -> float:
    return -row.difference.ratio if row.difference and row.difference.ratio == row.difference.ratio else float("inf")


def _by_syncs(row: Row) -> float:
    before, after = row.syncs
    return float("inf") if before is None or after is None else float(before - after)


ORDERS: dict[str, Callable[[Row], Any]] = {
    "run": lambda row: 0,
    "difference": _by_difference,
    "ratio": _by_ratio,
    "verdict": lambda row: (_WORST_FIRST.index(row.verdict), _by_difference(row)),
    "syncs": _by_syncs,
    "name": lambda row: (row.workload, row.scope, row.variant, row.lead_ms or 0.0),
}
