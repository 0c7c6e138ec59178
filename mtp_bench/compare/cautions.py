"""What makes a comparison of times less sure than its interval says: a closed list, each with what to do about it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from mtp_bench.results import Result, Run, Time

_FEW = 20  # below it, the ends of a 98 % interval rest on single windows
_DRIFT_P = 0.001
_TWO_MODES = 0.85  # of the variance lies between the halves: 0.64 for a Gaussian, 0.75 for a uniform distribution
_SMALLER_MODE = 0.15
_CLOCKS_APART = 0.02


class Kind(StrEnum):
    """All there is to warn of."""

    TOO_FEW_SAMPLES = "too few samples"
    DRIFT = "drift"
    BIMODAL = "bimodal samples"
    THROTTLED = "throttling"
    CLOCKS_DIFFER = "clocks differ"
    DRIVER_DIFFERS = "driver differs"
    PROFILED = "profiled"
    VERSIONS_DIFFER = "different versions"


ADVICE: Mapping[Kind, str] = {
    Kind.TOO_FEW_SAMPLES: f"measure at least {_FEW} windows a variant",
    Kind.DRIFT: "interleaving cancels it in one run, not between runs: warm the GPU up, and look for other jobs on it",
    Kind.BIMODAL: "a median between two modes jumps: look for a clock, a NUMA node or a second job that switches",
    Kind.THROTTLED: "throttled windows are left out: lower the power or the temperature, or lock the clock "
    "(nvidia-smi --lock-gpu-clocks)",
    Kind.CLOCKS_DIFFER: "lock the clock (nvidia-smi --lock-gpu-clocks) and measure both sides again",
    Kind.DRIVER_DIFFERS: "measure both sides with one driver, or take the difference for that of the drivers too",
    Kind.PROFILED: "a profiler slows the host: measure without it",
    Kind.VERSIONS_DIFFER: "the difference is that of all of these together: change one at a time",
}


@dataclass(frozen=True, slots=True)
class Caution:
    """One thing to know about a row. ``subject`` is the side it is about, "" where about both."""

    kind: Kind
    subject: str
    detail: str

    @property
    def advice(self) -> str:
        """What to do about it."""
        return ADVICE[self.kind]


def subjects(name: str, runs: int) -> list[str]:
    """What cautions call the runs of one side."""
    return [name] if runs == 1 else [f"{name}, run {index} of {runs}" for index in range(1, runs + 1)]


def of_times(name: str, results: Sequence[Result]) -> Iterator[Caution]:
    """Cautions about one side's measured windows, one result a run."""
    for index, result in enumerate(results):
        time = result.time
        if time is None or time.modelled:
            continue
        subject = subjects(name, len(results))[index]
        steps = np.asarray([ns for ns, hot in zip(time.step_ns, time.throttled, strict=True) if not hot], dtype=float)
        if any(time.throttled):
            yield Caution(Kind.THROTTLED, subject, f"{sum(time.throttled)} of {len(time.throttled)} windows")
        if len(steps) < _FEW:
            yield Caution(Kind.TOO_FEW_SAMPLES, subject, f"{len(steps)} windows")
        elif np.isfinite(steps).all():
            yield from _shape(subject, steps)
        if time.profiled:
            yield Caution(Kind.PROFILED, subject, "timed under a profiler")


def of_clocks(sides: Sequence[tuple[str, Sequence[Result]]]) -> Iterator[Caution]:
    """A caution where the sides' median clocks are further apart than the threshold of steps would let pass."""
    clocks = [(name, clock) for name, results in sides if (clock := _clock([r.time for r in results if r.time]))]
    if len(clocks) == 2 and abs(clocks[0][1] - clocks[1][1]) > _CLOCKS_APART * clocks[0][1]:
        yield Caution(Kind.CLOCKS_DIFFER, "", ", ".join(f"{clock:.0f} MHz ({name})" for name, clock in clocks))


def of_environments(runs: Sequence[Run]) -> Iterator[Caution]:
    """Cautions about runs that differ in driver, CUDA or versions."""
    device = [run.environment.device for run in runs]
    drivers = [f"{found.driver or 'none'} with CUDA {found.cuda or 'none'}" for found in device]
    if len(set(drivers)) > 1:
        yield Caution(Kind.DRIVER_DIFFERS, "", " and ".join(dict.fromkeys(drivers)))
    versions = [_versions(run) for run in runs]
    names = dict.fromkeys(name for found in versions for name in found)
    different = {name: dict.fromkeys(found.get(name, "none") for found in versions) for name in names}
    told = [f"{name} {' and '.join(values)}" for name, values in different.items() if len(values) > 1]
    if told:
        yield Caution(Kind.VERSIONS_DIFFER, "", "; ".join(told))


def _shape(subject: str, steps: npt.NDArray[np.float64]) -> Iterator[Caution]:
    from scipy import stats

    if np.ptp(steps) == 0:
        return
    trend = stats.kendalltau(np.arange(len(steps)), steps)
    if trend.pvalue < _DRIFT_P:
        quarter = len(steps) // 4
        change = float(np.median(steps[-quarter:]) - np.median(steps[:quarter]))
        yield Caution(Kind.DRIFT, subject, f"{change / 1e3:+,.1f} us from the first quarter of windows to the last")
    modes = _modes(steps)
    if modes:
        yield Caution(Kind.BIMODAL, subject, f"around {modes[0] / 1e3:,.1f} and {modes[1] / 1e3:,.1f} us")


def _modes(steps: npt.NDArray[np.float64]) -> tuple[float, float] | None:
    """Medians of two modes, if there are two, at the cut that leaves least variance inside (Otsu, 1979)."""
    ordered = np.sort(steps)
    count = len(ordered)
    below = np.arange(1, count)
    sums = np.cumsum(ordered)
    means = sums[:-1] / below, (sums[-1] - sums[:-1]) / (count - below)
    between = below * (count - below) / count**2 * (means[1] - means[0]) ** 2
    cut = int(np.argmax(between)) + 1
    if between[cut - 1] < _TWO_MODES * ordered.var() or min(cut, count - cut) < _SMALLER_MODE * count:
        return None
    return float(np.median(ordered[:cut])), float(np.median(ordered[cut:]))


def _clock(times: Sequence[Time]) -> float | None:
    known = [clock for time in times for clock in time.sm_clock_mhz if clock is not None]
    return statistics.median(known) if known else None


def _versions(run: Run) -> dict[str, str]:
    environment = run.environment
    named = {
        "torch": environment.torch,
        "megatron-core": environment.megatron_core,
        "verl": environment.verl,
        "Python": environment.python,
    }
    return {name: version for name, version in {**named, **environment.packages}.items() if version}
