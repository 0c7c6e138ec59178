"""``--select`` and ``--sort``: which rows of a comparison are wanted, and in which order. No torch, no I/O."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mtp_bench.compare.pairs import Where, Which
from mtp_bench.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from mtp_bench.compare.rows import Row

KEYS = ("workload", "scope", "variant", "lead")
_WORST_FIRST = ("slower", "unclear", "incomparable", "same", "faster")


@dataclass(frozen=True)
class Selection:
    """Globs a key: what is wanted matches one glob of each key. ``lead`` is in milliseconds, as it is shown."""

    globs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Selection:
        """``workload=packed-*``, ``variant=sync_free,host_*``; InputError for another key."""
        globs: dict[str, tuple[str, ...]] = {}
        for text in texts:
            key, sign, right = (part.strip() for part in text.partition("="))
            values = [value.strip() for value in right.split(",")]
            if key not in KEYS or not sign or not all(values):
                near = "" if key in KEYS else did_you_mean(key, KEYS)
                raise InputError(f"--select {text!r}: expected KEY=GLOB with a key of {', '.join(KEYS)}{near}")
            globs[key] = (*globs.get(key, ()), *map(_lead_as_shown if key == "lead" else str, values))
        return cls(globs)

    def wants(self, where: Where, which: Which) -> bool:
        """Whether a result is wanted."""
        values = _values(where, which)
        return all(any(fnmatch.fnmatchcase(values[key], glob) for glob in globs) for key, globs in self.globs.items())

    def check(self, results: Iterable[tuple[Where, Which]]) -> None:
        """InputError for a glob that matches none of ``results``, and for globs that match none together.

        A gate that looks at nothing because of a typing error would pass for ever.
        """
        there = list(results)
        if not there:
            return
        for key, globs in self.globs.items():
            names = list(dict.fromkeys(_values(*one)[key] for one in there))
            for glob in globs:
                if not any(fnmatch.fnmatchcase(name, glob) for name in names):
                    raise InputError(f"--select {key}={glob}: nothing matches{did_you_mean(glob, names)}")
        if not any(self.wants(*one) for one in there):
            asked = " ".join(f"{key}={','.join(globs)}" for key, globs in self.globs.items())
            raise InputError(f"--select {asked}: nothing matches all of them together")


def sort(rows: Sequence[Row], by: str) -> tuple[Row, ...]:
    """Rows in the order of the runs, or the worst first by what ``by`` names; InputError for a name of no order."""
    if by not in ORDERS:
        raise InputError(f"--sort {by!r}: use {', '.join(ORDERS)}{did_you_mean(by, ORDERS)}")
    return tuple(sorted(rows, key=ORDERS[by]))


def _values(where: Where, which: Which) -> dict[str, str]:
    return {"workload": where[0], "scope": where[1], "variant": which.variant, "lead": f"{which.lead_ms:g}"}


def _lead_as_shown(text: str) -> str:
    """``1`` for ``1.0``; a glob as it is."""
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


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
