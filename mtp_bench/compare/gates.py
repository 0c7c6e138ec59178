"""``--fail-on``: what a comparison must show for a gate to pass, and what it lacks to say so. No torch, no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mtp_bench.compare.pairs import leads_in_words
from mtp_bench.compare.verdicts import Difference, Threshold, judge, too_few
from mtp_bench.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from mtp_bench.compare.rows import Row

NAMES = ("slower", "syncs", "values", "unclear")


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition. ``slower`` may have a threshold of its own; ``syncs`` may rise by ``allowed``."""

    name: Literal["slower", "syncs", "values", "unclear"]
    text: str
    threshold: Threshold | None = None
    allowed: int = 0

    @classmethod
    def parse(cls, text: str) -> Gate:
        """``slower``, ``slower>2%``, ``slower>50us``, ``syncs``, ``syncs>2``, ``values`` or ``unclear``."""
        word = text.strip()
        name, sign, limit = (part.strip() for part in word.partition(">"))
        if name not in NAMES:
            raise InputError(f"--fail-on {word!r}: no such gate{did_you_mean(name.lower(), NAMES)}")
        if not sign:
            return cls(name, word)  # type: ignore[arg-type]
        if name == "slower":
            return cls("slower", word, threshold=Threshold.parse(limit, f"--fail-on {word}:"))
        if name == "syncs" and re.fullmatch(r"\d{1,9}", limit):
            return cls("syncs", word, allowed=int(limit))
        right = "a number of syncs a step, as in syncs>2" if name == "syncs" else f"{name} alone, it has no limit"
        raise InputError(f"--fail-on {word!r}: expected {right}")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the gates found: rows that fail, and what they had nothing to judge by."""

    gates: tuple[Gate, ...] = ()
    failures: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every gate holds, and could be judged."""
        return not self.failures and not self.undecided


def parse(texts: Sequence[str]) -> tuple[Gate, ...]:
    """The gates of ``--fail-on``, each once; InputError for one that does not exist.

    A size after ``slower>20us`` belongs to it: ``slower>20us,1%`` is one gate, and commas separate gates too.
    """
    joined: list[str] = []
    for text in map(str.strip, texts):
        if re.match(r"[\d.]", text) and joined and ">" in joined[-1]:
            joined[-1] += f",{text}"
        else:
            joined.append(text)
    return tuple(dict.fromkeys(map(Gate.parse, joined)))


def apply(gates: Sequence[Gate], rows: Sequence[Row]) -> Judgement:
    """Hold every row against every gate. What a gate finds alike at several leads is one sentence."""
    held = [(gate, row) for row in rows for gate in gates]
    failures = _at_leads((gate, row, text) for gate, row in held for text in _fails(gate, row))
    undecided = _at_leads((gate, row, text) for gate, row in held for text in _cannot_tell(gate, row))
    return Judgement(tuple(gates), failures, undecided if rows or not gates else ("nothing to compare",))


def _at_leads(found: Iterable[tuple[Gate, Row, str]]) -> tuple[str, ...]:
    """``syncs: mine on packed-sft at leads 0, 1 and 10 ms: 33 syncs a step, original has 32``."""
    leads: dict[tuple[str, str, str], list[float]] = {}
    for gate, row, text in found:
        at = leads.setdefault((gate.text, row.candidate_on_workload, text), [])
        if row.lead_ms is not None:
            at.append(row.lead_ms)
    return tuple(
        f"{gate}: {who}{f' at {leads_in_words(at)}' if at else ''}: {text}" for (gate, who, text), at in leads.items()
    )


def _fails(gate: Gate, row: Row) -> Iterator[str]:
    if gate.name == "slower" and row.difference is not None:
        found = judge(row.difference, gate.threshold or row.threshold, row.modelled)
        if found.verdict == "slower":
            yield f"slower than {row.baseline} by {row.difference.ns / 1e3:,.1f} us a step ({_percent(row)})"
    if gate.name == "unclear" and row.verdict == "unclear":
        yield row.reason
    before, after = row.syncs
    if gate.name == "syncs" and (row.syncs_change or 0) > gate.allowed:
        a_step = "a call of the loss" if row.of_job else "a step"
        yield f"{after} sync{'' if after == 1 else 's'} {a_step}, {row.baseline} has {before}"
    was, now = row.values
    if gate.name == "values" and (row.values_change or 0) > 0:
        yield f"values {now}, those of {row.baseline} {was}"


def _cannot_tell(gate: Gate, row: Row) -> Iterator[str]:
    if gate.name in ("slower", "unclear"):
        if row.verdict == "incomparable":
            yield row.reason
        elif gate.name == "slower" and row.difference is not None:
            threshold = gate.threshold or row.threshold
            found = judge(row.difference, threshold, row.modelled)
            if found.verdict == "unclear" and not _at_most(row.difference, threshold):
                yield found.reason
        return
    sides = row.syncs if gate.name == "syncs" else row.values
    if not row.baseline_results and not row.candidate_results:
        yield row.reason
    elif None in sides:
        lacking = [side for side, found in zip((row.baseline, row.candidate), sides, strict=True) if found is None]
        yield f"no {gate.name} of {' and '.join(lacking)}"


def _at_most(found: Difference, threshold: Threshold) -> bool:
    """Whether the candidate may be faster or the same, and surely is not slower by more than the threshold."""
    return not too_few(found) and found.high is not None and found.high <= threshold.of(found.baseline_ns)


def _percent(row: Row) -> str:
    assert row.difference is not None
    return f"{(row.difference.ratio - 1) * 100:+.1f} %"
