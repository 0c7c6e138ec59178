"""The difference of two sides' step times, and what it allows to say: no torch, no I/O, no rendering.

Differences are candidate less baseline, of medians, in nanoseconds a step.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Literal

from mtp_bench.results import Time
from mtp_bench.statistics import paired_difference, unpaired_difference

Verdict = Literal["faster", "slower", "same", "unclear", "incomparable"]

# A difference inside these is none that anyone would change code for: a guard costs 15 to 45 us.
SAME_NS = 10_000.0
SAME_FRACTION = 0.005


@dataclass(frozen=True, slots=True)
class Difference:
    """Candidate less baseline. ``low`` and ``high`` bound it with 98 %; None where the times are modelled."""

    ns: float
    low: float | None
    high: float | None
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    dropped: int = 0  # windows left out on both sides together because the GPU was throttled


def difference(baseline: Time, candidate: Time, paired: bool) -> Difference:
    """The difference of two sides' step times, paired by round where both come from one run."""
    base, cand = _kept(baseline), _kept(candidate)
    dropped = len(baseline.step_ns) + len(candidate.step_ns) - len(base) - len(cand)
    paired = paired and bool(base.keys() & cand.keys())
    if paired:
        rounds = sorted(base.keys() & cand.keys())
        base, cand = ({number: side[number] for number in rounds} for side in (base, cand))
    base_ns, cand_ns = list(base.values()), list(cand.values())
    if baseline.modelled or min(len(base_ns), len(cand_ns)) < 2:
        low_side, high_side = statistics.median(base_ns), statistics.median(cand_ns)
        ratio = high_side / low_side if low_side else math.nan
        return Difference(high_side - low_side, None, None, ratio, None, None, dropped)
    interval = (paired_difference if paired else unpaired_difference)(base_ns, cand_ns)
    return Difference(
        interval.difference,
        interval.low,
        interval.high,
        interval.ratio,
        interval.ratio_low,
        interval.ratio_high,
        dropped,
    )


def verdict(found: Difference, baseline_ns: float, modelled: bool) -> tuple[Verdict, str]:
    """Interval and threshold alone decide: ``same`` inside 10 us, else a side of 0, else ``same`` inside 0.5 %."""
    if found.low is None or found.high is None:
        if not modelled:
            return "unclear", "fewer than 2 windows"
        low = high = found.ns
    else:
        low, high = found.low, found.high
    if max(-low, high) <= SAME_NS:
        return "same", "within 10 us"
    if low > 0:
        return "slower", ""
    if high < 0:
        return "faster", ""
    if max(-low, high) <= SAME_FRACTION * baseline_ns:
        return "same", "within 0.5 %"
    return "unclear", "the interval holds 0 and is wider than the threshold"


def median_ns(time: Time) -> float:
    """Median step time over the windows in which the GPU was not throttled."""
    return statistics.median(_kept(time).values())


def finite(time: Time) -> bool:
    """Whether the times allow to say anything: a median over NaN depends on the order of the windows."""
    return all(math.isfinite(ns) for ns in time.step_ns)


def _kept(time: Time) -> dict[int, float]:
    """Step time by position or round, without throttled windows (unless all were)."""
    windows = dict(zip(time.round, time.step_ns, strict=True))
    calm = {number: windows[number] for number, hot in zip(time.round, time.throttled, strict=True) if not hot}
    return calm or windows
