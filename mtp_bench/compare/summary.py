"""What a comparison comes to, in one to three sentences. No torch, no I/O, no rendering."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mtp_bench.compare.comparison import Comparison, Row
from mtp_bench.compare.verdicts import Verdict

VERDICTS: tuple[Verdict, ...] = ("slower", "faster", "same", "unclear", "incomparable")
_VALUES_RANK = {"equal": 0, "close": 0, "differs": 1, "nan": 2}


def summary(comparison: Comparison) -> str:
    """The gates' answer, the verdicts on time, then what changed in syncs and values."""
    return " ".join(_sentences(comparison))


def name_of(row: Row) -> str:
    """What a sentence calls a row."""
    lead = "" if row.lead_ms is None else f" at {row.lead_ms:g} ms lead"
    return f"{row.candidate} on {row.workload}{lead}"


def _sentences(comparison: Comparison) -> Iterator[str]:
    judgement = comparison.judgement
    if judgement.gates:
        names = ", ".join(gate.text for gate in judgement.gates)
        word = "failed" if judgement.failures else "cannot tell" if judgement.undecided else "passed"
        yield f"Gate {names}: {word}."
    rows = comparison.rows
    if not rows:
        yield "Nothing to compare: there is no second side."
        return
    yield _times(comparison)
    yield from _changes("syncs a step", [_syncs_change(row) for row in rows])
    yield from _changes("values", [_values_change(row) for row in rows], better="better", worse="worse")


def _times(comparison: Comparison) -> str:
    rows = comparison.rows
    counts = Counter(row.verdict for row in rows)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    extremes = [_extreme(rows, "slower"), _extreme(rows, "faster")]
    modelled = ", modelled" if any(row.modelled for row in rows) else ""
    sides = "the baseline variant" if comparison.within else comparison.sides[0].label
    if comparison.within and len({row.baseline for row in rows}) == 1:
        sides = rows[0].baseline
    what = f"{len(rows)} comparison{'s' if len(rows) > 1 else ''} with {sides}{modelled}: {told}"
    return "; ".join([what, *filter(None, extremes)]) + "."


def _extreme(rows: Sequence[Row], verdict: Verdict) -> str:
    """The row that is ``slower`` or ``faster`` by most microseconds; "" where none is."""
    found = [(abs(row.difference.ns), row) for row in rows if row.verdict == verdict and row.difference]
    if not found:
        return ""
    size_ns, row = max(found, key=lambda item: item[0])
    assert row.difference is not None
    which = verdict if len(found) == 1 else {"slower": "largest slowdown", "faster": "largest gain"}[verdict]
    percent = (row.difference.ratio - 1) * 100
    return f"{which}: {name_of(row)} by {size_ns / 1e3:,.1f} us a step ({percent:+.1f} %)"


def _changes(what: str, changes: Sequence[int | None], better: str = "fewer", worse: str = "more") -> Iterator[str]:
    """``Syncs a step: more in 2, fewer in 3, not known in 1.``; nothing where nothing is known."""
    known = [change for change in changes if change is not None]
    counts = {
        worse: sum(change > 0 for change in known),
        better: sum(change < 0 for change in known),
        "not known": len(changes) - len(known),
    }
    parts = [f"{word} in {count}" for word, count in counts.items() if count]
    if not any(known):
        parts.insert(0, "unchanged")
    if known:
        yield f"{what[0].upper()}{what[1:]}: {', '.join(parts)}."


def _syncs_change(row: Row) -> int | None:
    before, after = row.syncs
    return None if before is None or after is None else after - before


def _values_change(row: Row) -> int | None:
    before, after = row.values
    return None if before is None or after is None else _VALUES_RANK[after] - _VALUES_RANK[before]
