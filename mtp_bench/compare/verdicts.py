"""The difference of two sides' step times, and what it allows to say: no torch, no I/O, no rendering.

Differences are candidate less baseline, of medians, in nanoseconds a step.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mtp_bench.errors import InputError
from mtp_bench.results import Time
from mtp_bench.statistics import mann_whitney, pooled_difference

Verdict = Literal["faster", "slower", "same", "unclear", "incomparable"]

_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6}
_MANY = 1_000_000  # more than anyone measures: the difference lies on the threshold


@dataclass(frozen=True, slots=True)
class Threshold:
    """A difference that nobody would change code for: the larger of ``ns`` and ``fraction`` of the baseline's step.

    10 us, since a guard costs 15 to 45 us; 0.5 %, since runs of one program on one machine differ by as much.
    """

    ns: float = 10_000.0
    fraction: float = 0.005

    @classmethod
    def parse(cls, text: str, option: str = "--threshold") -> Threshold:
        """``10us``, ``0.5%``, ``20us,1%`` (the larger of the two) or ``0``; InputError for anything else."""
        ns = fraction = 0.0
        for word in text.split(","):
            found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|ms|%)?\s*", word)
            if found is None or (found[2] is None and float(found[1]) != 0):
                raise InputError(
                    f"{option} {text!r}: expected a time, a percentage or both, as in 10us, 0.5% or 20us,1%"
                )
            if found[2] == "%":
                fraction = float(found[1]) / 100
            else:
                ns = float(found[1]) * _NS[found[2] or "us"]
        return cls(ns, fraction)

    def of(self, step_ns: float) -> float:
        """The threshold of a step of ``step_ns``, in nanoseconds."""
        return max(self.ns, self.fraction * step_ns)

    def __str__(self) -> str:
        """``10 us or 0.5 %``."""
        time = f"{self.ns / 1e3:g} us" if self.ns or not self.fraction else ""
        share = f"{self.fraction * 100:g} %" if self.fraction else ""
        return " or ".join(filter(None, [time, share]))


@dataclass(frozen=True, slots=True)
class Difference:
    """Candidate less baseline. ``low`` and ``high`` bound it with 98 %; None where the times are modelled.

    ``windows`` and ``runs`` are (of the baseline, of the candidate).
    """

    ns: float
    low: float | None
    high: float | None
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    baseline_ns: float
    candidate_ns: float
    windows: tuple[int, int] = (1, 1)
    runs: tuple[int, int] = (1, 1)
    dropped: int = 0  # windows left out on both sides together because the GPU was throttled


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict and why; where it is ``unclear``, how many windows (of several runs a side: runs) would decide."""

    verdict: Verdict
    reason: str
    windows_to_decide: int | None = None
    runs_to_decide: int | None = None


def difference(baseline: Sequence[Time], candidate: Sequence[Time], paired: bool) -> Difference:
    """The difference of two sides' step times, one ``Time`` a run.

    ``paired``: run i holds both sides, whose windows are paired by round. All times are modelled, or none is.
    """
    base, cand, paired = _windows(baseline, candidate, paired)
    dropped = sum(len(time.step_ns) - len(_kept(time)) for time in (*baseline, *candidate))
    windows = sum(map(len, base)), sum(map(len, cand))
    base_level, cand_level = (statistics.fmean(map(statistics.median, side)) for side in (base, cand))
    sizes = base_level, cand_level, windows, (len(base), len(cand)), dropped
    if baseline[0].modelled or min(map(len, (*base, *cand))) < 2:
        ratio = cand_level / base_level if base_level else math.nan
        return Difference(cand_level - base_level, None, None, ratio, None, None, *sizes)
    found = pooled_difference(base, cand, paired=paired)
    return Difference(found.difference, found.low, found.high, found.ratio, found.ratio_low, found.ratio_high, *sizes)


def mann_whitney_p(baseline: Sequence[Time], candidate: Sequence[Time]) -> float | None:
    """Mann and Whitney's p, which is shown and decides nothing; None where the times are modelled or single."""
    base, cand, _ = _windows(baseline, candidate, paired=False)
    if baseline[0].modelled or min(map(len, (*base, *cand))) < 2:
        return None
    return mann_whitney(base, cand)


def judge(found: Difference, threshold: Threshold, modelled: bool) -> Finding:
    """Interval and threshold alone decide.

    ``faster`` and ``slower``: the interval excludes 0 and the difference passes the threshold. ``same``: the interval
    lies inside the threshold. Else ``unclear``. Modelled times are exact: their interval is the difference.
    """
    allowed = threshold.of(found.baseline_ns)
    bound = f"{allowed / 1e3:,.1f} us"
    if found.low is None or found.high is None:
        if not modelled:
            return Finding("unclear", "fewer than 2 windows")
        low = high = found.ns
    else:
        low, high = found.low, found.high
    if (low > 0 or high < 0) and abs(found.ns) > allowed:
        side: Verdict = "slower" if low > 0 else "faster"
        what = "the modelled difference" if modelled else "the interval excludes 0 and the difference"
        return Finding(side, f"{what} passes the threshold of {bound}")
    if max(-low, high) <= allowed:
        return Finding("same", f"the {'modelled difference' if modelled else 'interval'} lies within {bound}")
    why = "excludes 0, but the difference does not pass" if low > 0 or high < 0 else "holds 0 and is wider than"
    return _unclear(f"the interval {why} the threshold of {bound}", found, _growth(found.ns, low, high, allowed))


def median_ns(time: Time) -> float:
    """Median step time over the windows in which the GPU was not throttled."""
    return statistics.median(_kept(time).values())


def finite(time: Time) -> bool:
    """Whether the times allow to say anything: a median over NaN depends on the order of the windows."""
    return all(math.isfinite(ns) for ns in time.step_ns)


def _unclear(reason: str, found: Difference, growth: float | None) -> Finding:
    """Of several runs a side, more windows would not narrow what the runs differ by: then runs are counted."""
    runs = max(found.runs)
    have = runs if runs > 1 else min(found.windows)
    needed = None if growth is None else max(math.ceil(have * growth), have + 1)
    if needed is None or needed > _MANY:
        return Finding("unclear", f"{reason}; more {'runs' if runs > 1 else 'windows'} would not decide")
    if runs > 1:
        return Finding("unclear", f"{reason}; {needed:,} runs a side would decide", runs_to_decide=needed)
    return Finding("unclear", f"{reason}; {needed:,} windows a side would decide", windows_to_decide=needed)


def _growth(ns: float, low: float, high: float, allowed: float) -> float | None:
    """By how much samples must grow: the interval narrows with their square root. None where none would decide."""
    size = abs(ns)
    if size > allowed:  # until the interval excludes 0
        width, room = (ns - low if ns > 0 else high - ns), size
    else:  # until it lies inside the threshold
        width, room = max(ns - low, high - ns), allowed - size
    return (width / room) ** 2 if room > 0 else None


def _windows(
    baseline: Sequence[Time], candidate: Sequence[Time], paired: bool
) -> tuple[list[list[float]], list[list[float]], bool]:
    """Step times a run, and whether they are paired by round: not where a run has no round in common."""
    base, cand = [_kept(time) for time in baseline], [_kept(time) for time in candidate]
    if paired:
        rounds = [sorted(b.keys() & c.keys()) for b, c in zip(base, cand, strict=True)]
        paired = all(rounds)
        if paired:
            base, cand = (
                [{number: run[number] for number in of} for run, of in zip(side, rounds, strict=True)]
                for side in (base, cand)
            )
    return [list(run.values()) for run in base], [list(run.values()) for run in cand], paired


def _kept(time: Time) -> dict[int, float]:
    """Step time by position or round, without throttled windows (unless all were)."""
    windows = dict(zip(time.round, time.step_ns, strict=True))
    calm = {number: windows[number] for number, hot in zip(time.round, time.throttled, strict=True) if not hot}
    return calm or windows
