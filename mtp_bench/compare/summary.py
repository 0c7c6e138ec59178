"""What a comparison comes to, in one to three sentences. No torch, no I/O, no rendering."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from mtp_bench.compare.comparison import Comparison
from mtp_bench.compare.job_remarks import refusals
from mtp_bench.compare.jobs import ranks_in_words
from mtp_bench.compare.rows import Row
from mtp_bench.compare.verdicts import Verdict

VERDICTS: tuple[Verdict, ...] = ("slower", "faster", "same", "unclear", "incomparable")
_ADJECTIVES: Mapping[Verdict, str] = {"same": "as fast"}
_NO_LEAD_NS = 50_000.0  # an idle GPU reaches what it is given after some 10 us: no more than this is no queued work


def summary(comparison: Comparison) -> str:
    """The gates' answer, the verdicts on time, then what changed in syncs and values."""
    return " ".join(_sentences(comparison))


def _sentences(comparison: Comparison) -> Iterator[str]:
    judgement = comparison.judgement
    if judgement.gates:
        names = ", ".join(gate.text for gate in judgement.gates)
        word = "failed" if judgement.failures else "cannot tell" if judgement.undecided else "passed"
        yield f"Gate {names}: {word}."
    yield from (f"{side.label}: {text}." for side in comparison.sides for text in refusals(side))
    rows = comparison.deciding
    if not rows:
        yield f"Nothing to compare: {_why_nothing(comparison)}."
        return
    yield _times(comparison)
    yield from _other_ranks(comparison)
    if len(rows) == 1:
        syncs, values = (_instead(*sides) for sides in (rows[0].syncs, rows[0].values))
    else:
        syncs = _changes([row.syncs_change for row in rows], "more", "fewer")
        values = _changes([row.values_change for row in rows], "worse", "better")
    if all(row.of_job for row in rows):
        values = _statuses(rows)
    if syncs or values:
        per, judged = _quantities(rows)
        yield f"Syncs {per}: {syncs or 'not known'}; {judged}: {values or 'not known'}."
    yield from dict.fromkeys(filter(None, map(_without_lead, rows)))


def _other_ranks(comparison: Comparison) -> Iterator[str]:
    """The ranks that do not say what the slowest says: ``boundary_roll: rank 3 is slower.``"""
    for row in comparison.deciding:
        others: dict[Verdict, list[int]] = {verdict: [] for verdict in VERDICTS}
        for of_rank in comparison.ranks_of(row):
            if of_rank.verdict != row.verdict and isinstance(of_rank.rank, int):
                others[of_rank.verdict].append(of_rank.rank)
        told = [
            f"{ranks_in_words(ranks)} {'is' if len(ranks) == 1 else 'are'} {_ADJECTIVES.get(verdict, verdict)}"
            for verdict, ranks in others.items()
            if ranks
        ]
        if told:
            yield f"{row.candidate}: {', '.join(told)}."


def _statuses(rows: Sequence[Row]) -> str:
    """``equal``, ``equal in 2, close in 1``: gradients of candidates against those of the job's own loss."""
    counts = Counter(row.values[1] or "not known" for row in rows)
    return ", ".join(status if len(counts) == 1 else f"{status} in {count}" for status, count in counts.items())


def _quantities(rows: Sequence[Row]) -> tuple[str, str]:
    """Of what syncs are counted, and what is judged."""
    scopes = {row.of_job for row in rows}
    if scopes == {False}:
        return "a step", "values"
    return ("a call of the loss", "gradients") if scopes == {True} else ("a step or call of the loss", "values")


def _without_lead(row: Row) -> str:
    """Where the host has no lead a sync costs none: a saving measured on the loss alone is then overstated."""
    lead_ns = row.entry_lead_ns[0]
    if lead_ns is None or lead_ns > _NO_LEAD_NS:
        return ""
    return (
        f"Where the loss of {row.baseline} begins on {row.workload}, the host has no lead over the device to lose "
        f"({lead_ns / 1e3:,.1f} us{', modelled' if row.modelled else ''}): "
        "one more sync costs little there beyond its own latency."
    )


def _why_nothing(comparison: Comparison) -> str:
    results = [result for side in comparison.sides for _, run in side.runs for result in run.results]
    variants = list(dict.fromkeys(result.variant for result in results))
    if not results:
        return "there are no results"
    if comparison.within and len(variants) == 1:
        return f"{variants[0]} alone was run"
    return "all that both sides have was skipped"


def _times(comparison: Comparison) -> str:
    rows = comparison.deciding
    if len(rows) == 1:
        return _one(rows[0])
    counts = Counter(row.verdict for row in rows)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    obstacle = _obstacle(rows)
    if len(counts) == 1:
        told, obstacle = f"all {rows[0].verdict}{obstacle and f': {obstacle}'}", ""
    what = f"{len(rows)} comparisons with {_baseline(comparison)}{_modelled(rows)}: {told}"
    parts = [what, _extreme(rows, "slower"), _extreme(rows, "faster"), _to_decide(rows)]
    return "; ".join(filter(None, [*parts, obstacle and f"incomparable: {obstacle}"])) + "."


def _one(row: Row) -> str:
    name, modelled = row.candidate_at_lead, _modelled([row])
    if row.difference is None:
        return f"{name} and {row.baseline} are incomparable: {row.reason}."
    if row.verdict == "same":
        allowed = row.threshold.of(row.difference.baseline_ns)
        return f"{name} takes as long as {row.baseline}, to within {allowed / 1e3:,.1f} us a step{modelled}."
    if row.verdict == "unclear":
        why = _to_decide([row]) or row.reason
        return f"Whether {name} is faster or slower than {row.baseline} is unclear: {why}{modelled}."
    return f"{name} is {row.verdict} than {row.baseline} by {_size(row)}{modelled}."


def _baseline(comparison: Comparison) -> str:
    if not comparison.within:
        return comparison.sides[0].label
    names = {row.baseline for row in comparison.rows}
    return names.pop() if len(names) == 1 else "the baseline variant"


def _modelled(rows: Sequence[Row]) -> str:
    timed = [row.modelled for row in rows if row.difference]
    return ", modelled" if timed and all(timed) else ", some modelled" if any(timed) else ""


def _extreme(rows: Sequence[Row], verdict: Verdict) -> str:
    """The row that is ``slower`` or ``faster`` by most microseconds; "" where none is."""
    found = [(abs(row.difference.ns), row) for row in rows if row.verdict == verdict and row.difference]
    if not found:
        return ""
    _, row = max(found, key=lambda item: item[0])
    which = {"slower": "largest slowdown", "faster": "largest gain"}[verdict]
    name = row.candidate_at_lead if _depends_on_lead(row, rows) else row.candidate_on_workload
    return f"{verdict if len(found) == 1 else which}: {name} by {_size(row)}"


def _size(row: Row) -> str:
    """``30.1 us [28.0, 32.2] a step (+0.3 %)``."""
    found = row.difference
    assert found is not None
    interval = ""
    if found.low is not None and found.high is not None:
        low, high = sorted((abs(found.low), abs(found.high)))
        interval = f" [{low / 1e3:,.1f}, {high / 1e3:,.1f}]"
    percent = f" ({(found.ratio - 1) * 100:+.1f} %)" if math.isfinite(found.ratio) else ""
    return f"{abs(found.ns) / 1e3:,.1f} us{interval} a step{percent}"


def _depends_on_lead(row: Row, rows: Sequence[Row]) -> bool:
    """Whether the same candidate has another difference at another lead, in tenths of a microsecond."""
    alike = [
        other.difference and round(other.difference.ns / 100)
        for other in rows
        if (other.workload, other.scope, other.candidate, other.baseline)
        == (row.workload, row.scope, row.candidate, row.baseline)
    ]
    return len({*alike}) > 1


def _to_decide(rows: Sequence[Row]) -> str:
    """How many windows, or runs, would decide whatever they can decide."""
    for unit, numbers in (
        ("windows", [row.finding.windows_to_decide for row in rows]),
        ("runs", [row.finding.runs_to_decide for row in rows]),
    ):
        known = [number for number in numbers if number is not None]
        if known:
            return f"{'up to' if len(known) > 1 else 'about'} {max(known):,} {unit} a side would decide"
    return ""


def _obstacle(rows: Sequence[Row]) -> str:
    """Why rows are incomparable, where it is the same of all of them."""
    reasons = {row.reason for row in rows if row.verdict == "incomparable"}
    return reasons.pop() if len(reasons) == 1 else ""


def _instead(before: object, after: object) -> str:
    """``1 instead of 0``; "" where one is not known."""
    if before is None or after is None:
        return ""
    return "unchanged" if before == after else f"{after} instead of {before}"


def _changes(changes: Sequence[int | None], worse: str, better: str) -> str:
    """``more in 2, fewer in 3``; "" where nothing is known of any row."""
    known = [change for change in changes if change is not None]
    if not known:
        return ""
    numbers = (
        (worse, sum(change > 0 for change in known)),
        (better, sum(change < 0 for change in known)),
        ("not known", len(changes) - len(known)),
    )
    parts = [f"{word} in {count}" for word, count in numbers if count]
    return ", ".join(parts if any(known) else ["unchanged", *parts])
