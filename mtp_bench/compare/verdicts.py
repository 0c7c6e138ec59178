"""The difference of two sides' step times, and what it allows to say: no torch, no I/O, no rendering.

Differences are candidate less baseline, of medians, in nanoseconds a step.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mtp_bench.errors import InputError
from mtp_bench.results import Time
from mtp_bench.statistics import mann_whitney, pooled_difference, student_t

Verdict = Literal["faster", "slower", "same", "unclear", "incomparable"]

# From here on at most 5 in 100 equal pairs are called faster or slower; of 5 windows 6 are, of 3 windows 25.
_LEAST_WINDOWS = 6

_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6}
_NORMAL = statistics.NormalDist()
_HALF = _NORMAL.inv_cdf(0.99)  # half an interval of 98 %, in standard errors
_SURE = _NORMAL.inv_cdf(0.9)  # what is said to decide does so nine times in ten
_ENDLESS_NS = 1e100
_MANY_WINDOWS, _MANY_RUNS = 1_000_000, 1_000  # more than anyone measures: the difference lies on the threshold


@dataclass(frozen=True, slots=True)
class Threshold:
    """A difference that nobody would change code for: the larger of ``ns`` and ``fraction`` of the baseline's step.

    10 us, since a guard costs 15 to 45 us; 0.5 %, since of a step of a second nobody misses 10 us. Both are what
    `run` measures until it knows (`measure.Policy`).
    """

    ns: float = 10_000.0
    fraction: float = 0.005

    @classmethod
    def parse(cls, text: str, option: str = "--threshold") -> Threshold:
        """``10us``, ``0.5%``, ``20us,1%`` (the larger of the two) or ``0``; InputError for anything else."""
        parts = [re.fullmatch(r"\s*(\d{1,9}(?:\.\d*)?|\.\d+)\s*(ns|us|ms|%)?\s*", word) for word in text.split(",")]
        limits = {part[2] == "%": (float(part[1]), part[2]) for part in parts if part}
        without_unit = [number for number, unit in limits.values() if number and unit is None]
        if None in parts or len(limits) < len(parts) or without_unit:
            raise InputError(f"{option} {text!r}: expected a time, a percentage or both, as in 10us, 0.5% or 20us,1%")
        time, unit = limits.get(False, (0.0, None))
        return cls(time * _NS[unit or "us"], limits.get(True, (0.0, "%"))[0] / 100)

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
    """Candidate less baseline. ``low`` and ``high`` bound it with 98 %; None where times are modelled, or too few.

    ``windows`` and ``runs`` are (of the baseline, of the candidate). ``paired``: every run has both sides.
    ``run_deviation_ns`` is the standard deviation of a run's median (of its difference, where paired) from run to run,
    0 where both sides have one run.
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
    paired: bool = False
    run_deviation_ns: float = 0.0
    alone: int = 0  # windows left out since the other side has none of their round


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict and why; where it is ``unclear``, how many windows (of several runs a side: runs) would decide.

    That many decide nine times in ten, if the difference and the noise are what they seem.
    """

    verdict: Verdict
    reason: str
    windows_to_decide: int | None = None
    runs_to_decide: int | None = None


def difference(baseline: Sequence[Time], candidate: Sequence[Time], paired: bool) -> Difference:
    """The difference of two sides' step times, one ``Time`` a run.

    ``paired``: run i holds both sides, whose windows are paired by round. All times are modelled, or none is.
    """
    base, cand, paired = _windows(baseline, candidate, paired)
    dropped = sum(len(time.step_ns) - len(kept(time)) for time in (*baseline, *candidate))
    windows = sum(map(len, base)), sum(map(len, cand))
    alone = sum(len(kept(time)) for time in (*baseline, *candidate)) - sum(windows)
    base_level, cand_level = (statistics.fmean(map(statistics.median, side)) for side in (base, cand))
    ratio = cand_level / base_level if base_level else math.nan
    runs = len(base), len(cand)
    levels = Difference(
        cand_level - base_level,
        None,
        None,
        ratio,
        None,
        None,
        base_level,
        cand_level,
        windows,
        runs,
        dropped,
        paired,
        alone=alone,
    )
    if baseline[0].modelled or min(map(len, (*base, *cand))) < 2:
        return levels
    found = pooled_difference(base, cand, paired=paired)
    return replace(
        levels,
        low=found.low,
        high=found.high,
        ratio_low=found.ratio_low,
        ratio_high=found.ratio_high,
        run_deviation_ns=found.run_deviation,
    )


def mann_whitney_p(baseline: Sequence[Time], candidate: Sequence[Time]) -> float | None:
    """Mann and Whitney's p of the windows, of the runs' medians where a side has several runs; it decides nothing.

    None where the times are modelled or single.
    """
    base, cand, _ = _windows(baseline, candidate, paired=False)
    if baseline[0].modelled or min(map(len, (*base, *cand))) < 2:
        return None
    if len(base) == len(cand) == 1:
        return mann_whitney(base[0], cand[0])
    return mann_whitney(*([statistics.median(run) for run in side] for side in (base, cand)))


def judge(found: Difference, threshold: Threshold, modelled: bool) -> Finding:
    """Interval and threshold alone decide.

    ``faster`` and ``slower``: the interval excludes 0 and the difference passes the threshold. ``same``: the interval
    lies inside the threshold. Else ``unclear``. Modelled times are exact: their interval is the difference.
    """
    allowed = threshold.of(found.baseline_ns)
    bound = f"the threshold of {_us(allowed)} us"
    if not modelled and (least := too_few(found)):
        return Finding("unclear", f"fewer than {least} windows a side", windows_to_decide=least)
    if found.low is None or found.high is None:
        low = high = found.ns
    else:
        low, high = found.low, found.high
    what = "modelled difference" if modelled else "interval"
    if (low > 0 or high < 0) and abs(found.ns) > allowed:
        side: Verdict = "slower" if low > 0 else "faster"
        return Finding(side, f"the {what} {'' if modelled else 'excludes 0 and the difference '}passes {bound}")
    if max(-low, high) <= allowed:
        return Finding("same", f"the {what} lies within {bound}")
    if low > 0 or high < 0:
        why = f"the interval excludes 0 and reaches past {bound}, which the difference does not pass"
    else:
        why = f"the interval holds 0 and reaches past {bound}"
    if max(found.runs) > 1:
        return _until_runs_decide(why, found, allowed)
    return _until_windows_decide(why, found, low, high, allowed)


def too_few(found: Difference) -> int:
    """How many windows a measured side must have for its interval to mean anything, where one has fewer; else 0."""
    least = _LEAST_WINDOWS if max(found.runs) == 1 else 2
    return least if found.low is None or min(found.windows) < least else 0


def median_ns(time: Time) -> float:
    """Median step time over the windows in which the GPU was not throttled."""
    return statistics.median(kept(time).values())


def kept(time: Time) -> dict[int, float]:
    """Nanoseconds a step by round, in the order measured, without windows that were throttled unless all were."""
    windows = dict(zip(time.round, time.step_ns, strict=True))
    calm = {number: windows[number] for number, hot in zip(time.round, time.throttled, strict=True) if not hot}
    return calm or windows


def finite(time: Time) -> bool:
    """Whether the times allow to say anything: a median over NaN depends on the order of the windows.

    Numbers whose squares or sums would overflow are as good as infinite.
    """
    return all(abs(ns) < _ENDLESS_NS for ns in time.step_ns)


def _until_windows_decide(why: str, found: Difference, low: float, high: float, allowed: float) -> Finding:
    """The interval narrows with the square root of the number of windows."""
    have = statistics.harmonic_mean(found.windows)  # as wide an interval as both sides with this number have
    size = abs(found.ns)
    if size == allowed:
        return Finding("unclear", f"{why}; more windows would not decide")
    if size > allowed:  # until it excludes 0, and the difference passes
        half = found.ns - low if found.ns > 0 else high - found.ns
        sure = half * _SURE / _HALF
        growth = max((half + sure) / size, sure / (size - allowed)) ** 2
    else:  # until both ends lie within the threshold
        ends = (high - found.ns) / (allowed - found.ns), (found.ns - low) / (allowed + found.ns)
        growth = ((1 + _SURE / _HALF) * max(ends)) ** 2
    windows = math.ceil(have * growth)
    if windows > _MANY_WINDOWS:
        return Finding("unclear", f"{why}; more windows would not decide")
    return Finding("unclear", f"{why}; about {windows:,} windows a side would decide", windows_to_decide=windows)


def _until_runs_decide(why: str, found: Difference, allowed: float) -> Finding:
    """Of several runs a side, more windows would not narrow what the runs differ by: then runs are counted."""
    size, sides = abs(found.ns), 1 if found.paired else 2
    for runs in range(max(found.runs) + 1, _MANY_RUNS + 1):
        error = found.run_deviation_ns * math.sqrt(sides / runs)
        half, sure = student_t(sides * (runs - 1)) * error, _SURE * error
        if sure < size - allowed and half + sure < size:  # until the interval excludes 0, and the difference passes
            break
        if half + sure <= allowed - size:  # until it lies within the threshold
            break
    else:
        return Finding("unclear", f"{why}; more runs would not decide")
    return Finding("unclear", f"{why}; about {runs:,} runs a side would decide", runs_to_decide=runs)


def _us(ns: float) -> str:
    return f"{ns / 1e3:,.1f}" if ns >= 1e3 else f"{ns / 1e3:.3g}"


def _windows(
    baseline: Sequence[Time], candidate: Sequence[Time], paired: bool
) -> tuple[list[list[float]], list[list[float]], bool]:
    """Step times a run, and whether they are paired by round: not where a run has no round in common."""
    base, cand = [kept(time) for time in baseline], [kept(time) for time in candidate]
    if paired:
        rounds = [sorted(b.keys() & c.keys()) for b, c in zip(base, cand, strict=True)]
        paired = all(rounds)
        if paired:
            base, cand = (
                [{number: run[number] for number in of} for run, of in zip(side, rounds, strict=True)]
                for side in (base, cand)
            )
    return [list(run.values()) for run in base], [list(run.values()) for run in cand], paired
