"""What makes a comparison of times less sure than its interval says: a closed list, each with what to do about it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from mtp_bench.compare.verdicts import Threshold, finite, kept
from mtp_bench.results import Result, Run, Time

_FEW = 20  # what `run` measures at least; of equal pairs, 6 % are called faster or slower at 5 windows, 27 % at 3
_DRIFT_P = 0.001
_SMALLER_MODE = 0.15  # a rarer one is a tail: a median does not see it
_CLOCKS_APART = 0.01  # a step bound by the clock changes by as much, twice the default threshold


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
    REFUSED = "refused"
    FAILED = "failed"
    RANKS_MISSING = "ranks missing"
    NOT_ENDED = "not ended"
    WINDOWS_LOST = "windows lost"


ADVICE: Mapping[Kind, str] = {
    Kind.TOO_FEW_SAMPLES: f"measure at least {_FEW} windows a variant",
    Kind.DRIFT: "interleaving cancels it in one run, not between runs: warm the GPU up, and look for other jobs on it",
    Kind.BIMODAL: "a median between two modes jumps: look for a clock, a NUMA node or a second job that switches",
    Kind.THROTTLED: "throttled windows are left out, unless all are: cool the GPU, raise its power limit, or lock a "
    "lower clock (nvidia-smi --lock-gpu-clocks)",
    Kind.CLOCKS_DIFFER: "lock the clock (nvidia-smi --lock-gpu-clocks) and measure both sides again",
    Kind.DRIVER_DIFFERS: "measure both sides with one driver, or take the difference for that of the drivers too",
    Kind.PROFILED: "a profiler slows the host: measure without it",
    Kind.VERSIONS_DIFFER: "the difference is that of all of these together: change one at a time",
    Kind.REFUSED: "the job ran on with its own loss, and no variant was measured: the reason says what to change",
    Kind.FAILED: "the job ran on with its own loss; what was measured until then counts",
    Kind.RANKS_MISSING: "the slowest rank may be among them: compare the folder that holds those of all ranks",
    Kind.NOT_ENDED: "the job runs still, or was killed: what was written until then counts; read it again later where "
    "the job runs",
    Kind.WINDOWS_LOST: "they were disturbed, or the device was too far behind to read them without a wait: give "
    "mtp_bench.ab a larger window",
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


def subjects(name: str, runs: int, noun: str = "run") -> list[str]:
    """What cautions call the runs of one side, or its jobs."""
    return [name] if runs == 1 else [f"{name}, {noun} {index} of {runs}" for index in range(1, runs + 1)]


def of_times(name: str, results: Sequence[Result], threshold: Threshold | None = None) -> Iterator[Caution]:
    """Cautions about one side's measured windows, one result a run; drift and modes within ``threshold`` do not matter.

    Without ``threshold``, the default one.
    """
    noun = "job" if any(result.scope == "job" for result in results) else "run"
    for subject, result in zip(subjects(name, len(results), noun), results, strict=True):
        time = result.time
        if time is None or time.modelled:
            continue
        steps = np.asarray(list(kept(time).values()))
        if any(time.throttled):
            yield Caution(Kind.THROTTLED, subject, f"{sum(time.throttled)} of {len(time.throttled)} windows")
        if len(steps) < _FEW:
            yield Caution(Kind.TOO_FEW_SAMPLES, subject, f"{len(steps)} windows")
        elif finite(time):
            yield from _shape(subject, steps, (threshold or Threshold()).of(float(np.median(steps))))
        if time.profiled:
            yield Caution(Kind.PROFILED, subject, "timed under a profiler")


def of_clocks(sides: Sequence[tuple[str, Sequence[Result]]]) -> Iterator[Caution]:
    """A caution where the sides' median clocks are apart."""
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


def _shape(subject: str, steps: npt.NDArray[np.float64], allowed: float) -> Iterator[Caution]:
    """Drift and modes of windows in the order they were measured, at least _FEW."""
    quarter = len(steps) // 4
    change = float(np.median(steps[-quarter:]) - np.median(steps[:quarter]))
    if abs(change) > allowed and _trend_p(steps) < _DRIFT_P:
        yield Caution(Kind.DRIFT, subject, f"{change / 1e3:+,.1f} us from the first quarter of windows to the last")
    modes = _modes(steps)
    if modes and modes[1] - modes[0] > allowed:
        yield Caution(Kind.BIMODAL, subject, f"around {modes[0] / 1e3:,.1f} and {modes[1] / 1e3:,.1f} us")


def _trend_p(steps: npt.NDArray[np.float64]) -> float:
    """Two-sided p of Spearman's correlation with time, by Fisher's transformation (Fieller and others, Biometrika 44).

    Not scipy's own, whose import takes as long as comparing a hundred results.
    """
    _, place, together = np.unique(steps, return_inverse=True, return_counts=True)
    if len(together) == 1:
        return 1.0
    ranks = (np.cumsum(together) - (together - 1) / 2)[place]  # equal windows share a rank
    correlation = min(abs(float(np.corrcoef(np.arange(len(steps)), ranks)[0, 1])), 1 - 1e-15)
    return math.erfc(math.atanh(correlation) * math.sqrt((len(steps) - 3) / 1.06 / 2))


def _modes(steps: npt.NDArray[np.float64]) -> tuple[float, float] | None:
    """Medians of two modes, if there are two, at the cut that leaves least variance inside (Otsu, 1979).

    Between the halves lie 64 % of the variance of a Gaussian and 75 % of that of a uniform distribution, more by chance
    where windows are few. The limit of 77 % and more is fitted: of Gaussian samples 0.1 % pass it at 20 windows and
    fewer at 40 to 200, of uniform ones 2 % and fewer; of two modes six of their deviations apart 80 % at 20 windows,
    98 % and more from 40 on.
    """
    ordered = np.sort(steps)
    count = len(ordered)
    below = np.arange(1, count)
    sums = np.cumsum(ordered - ordered[0])
    means = sums[:-1] / below, (sums[-1] - sums[:-1]) / (count - below)
    between = below * (count - below) / count**2 * (means[1] - means[0]) ** 2
    cut = int(np.argmax(between)) + 1
    limit = 0.77 + 0.5 / math.sqrt(count)
    if between[cut - 1] <= limit * ordered.var() or min(cut, count - cut) < _SMALLER_MODE * count:
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
