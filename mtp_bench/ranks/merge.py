"""What several ranks measured as one result: a step waits for all of them, so each part is the worst rank's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

Found = dict[str, Any]

_VALUES = ("equal", "close", "differs", "nan")  # from best to worst


def merge_passes(ranks: Sequence[Found]) -> Found:
    """The passes of a variant: most syncs at each lead, the worst values, the first rank that cannot be captured."""
    most_syncs = {
        lead: max((rank["syncs"][lead] for rank in ranks), key=lambda syncs: (syncs["count"], syncs["blocked_ns"] or 0))
        for lead in ranks[0]["syncs"]
    }
    captures = [rank["graph_capture"] for rank in ranks]
    peaks = [rank["memory"]["peak_bytes"] for rank in ranks]
    return {
        **ranks[0],
        "numerics": max((rank["numerics"] for rank in ranks), key=_badness),
        "syncs": most_syncs,
        "graph_capture": next((capture for capture in captures if not capture["possible"]), captures[0]),
        "ops": max(rank["ops"] for rank in ranks),
        "memory": {"peak_bytes": max((peak for peak in peaks if peak is not None), default=None)},
        "warnings": list(dict.fromkeys(warning for rank in ranks for warning in rank["warnings"])),
        "ranks": [_of_rank(number, found) for number, found in enumerate(ranks)],
    }


def merge_times(ranks: Sequence[Found]) -> Found:
    """The windows of the slowest rank, with those of all in ``ranks``."""
    slowest = max(ranks, key=lambda time: statistics.median(time["step_ns"]))
    return {**slowest, "ranks": list(ranks)}


def _badness(numerics: Found | None) -> int:
    return -1 if numerics is None else _VALUES.index(numerics["status"])


def _of_rank(number: int, found: Found) -> Found:
    kept = ("numerics", "syncs", "graph_capture", "ops", "memory")
    return {"rank": number, **{name: found[name] for name in kept}}
