"""How often verdicts are right: ours beside benchstat's rule and plain means, on made-up noise whose truth is known.

    python benchmarks/verdicts.py [REPETITIONS]

Windows are interleaved by the code that `run` uses, a source of noise goes on over time and hits both sides.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from mtp_bench.compare.verdicts import Threshold, Verdict, difference, judge
from mtp_bench.devices import Window
from mtp_bench.measure import Policy, interleave
from mtp_bench.results import Time

STEP_US = 5_000.0

Noise = Callable[[np.random.Generator, int], np.ndarray]  # microseconds of so many windows, in the order of time
Rule = Callable[[Time, Time, Threshold], Verdict]


@dataclass(frozen=True)
class Case:
    """A slowdown to be found: ``effect_us`` in Gaussian noise of ``spread_us``, by ``windows`` windows a side."""

    effect_us: float
    spread_us: float
    windows: int
    threshold: Threshold
    wanted: float  # how often it must be found

    def __str__(self) -> str:
        allowed = f"threshold {self.threshold.of(STEP_US * 1e3) / 1e3:g} us"
        return f"{self.effect_us:g} us in {self.spread_us:g} us of noise, {self.windows} windows, {allowed}"


def gaussian(spread_us: float) -> Noise:
    return lambda rng, count: rng.normal(0.0, spread_us, count)


def drifting(rng: np.random.Generator, count: int) -> np.ndarray:
    """A machine that gets slower by 10 %, wanders, and has 1 % of noise."""
    wandering = np.cumsum(rng.normal(0.0, 10.0, count))
    return rng.normal(0.0, 50.0, count) + np.linspace(0.0, 500.0, count) + wandering


def bimodal(rng: np.random.Generator, count: int) -> np.ndarray:
    """Three windows in ten take 5 % longer."""
    return rng.normal(0.0, 10.0, count) + 250.0 * (rng.random(count) < 0.3)


def heavy_tailed(rng: np.random.Generator, count: int) -> np.ndarray:
    """Outliers of infinite variance on one side, as those of steps: Student's t with 1.5 degrees of freedom."""
    return 50.0 * np.abs(rng.standard_t(1.5, count))


NOISES: dict[str, Noise] = {
    "Gaussian": gaussian(50.0),
    "drifting": drifting,
    "bimodal": bimodal,
    "heavy-tailed": heavy_tailed,
}
SIZES = (20, 40, 100, 200)
FALSE_ALARMS = 0.05
NOTES = """
mtp-bench: the 98 % interval of the difference of medians, and the threshold; equal sides at a threshold of 0.
benchstat: Mann and Whitney's p below 0.05 alone. Welch's t: of the means, p below 0.05.
means: further apart than the threshold, equal sides than the default one of 25 us."""
POWER = (
    Case(100.0, 50.0, 40, Threshold(), 0.95),
    Case(50.0, 50.0, 40, Threshold(), 0.8),
    Case(20.0, 40.0, 200, Threshold.parse("10us"), 0.95),
)


def measured(noise: Noise, windows: int, effect_us: float, seed: int) -> tuple[Time, Time]:
    """Two sides measured as `run` measures two variants, the second slower by ``effect_us``."""
    source = iter(noise(np.random.default_rng(seed), 2 * windows))

    def timer(extra_us: float) -> Callable[[], Window]:
        return lambda: Window(step_ns=1e3 * (STEP_US + extra_us + next(source)), host_ns=0.0, lead_ns=0.0)

    policy = Policy(min_windows=windows, max_seconds=0.0, seed=seed)
    samples = interleave({"baseline": timer(0.0), "candidate": timer(effect_us)}, "baseline", policy)
    base, cand = (_time(samples[name].step_ns, samples[name].rounds) for name in ("baseline", "candidate"))
    return base, cand


def ours(base: Time, cand: Time, threshold: Threshold) -> Verdict:
    return judge(difference([base], [cand], paired=True), threshold, modelled=False).verdict


def benchstat(base: Time, cand: Time, threshold: Threshold) -> Verdict:
    """Mann and Whitney's test at 0.05 alone, no threshold (benchstat's default)."""
    p = stats.mannwhitneyu(base.step_ns, cand.step_ns).pvalue
    return _by_sign(float(np.median(cand.step_ns) - np.median(base.step_ns)), p < 0.05)


def welch(base: Time, cand: Time, threshold: Threshold) -> Verdict:
    """Welch's t test of the means at 0.05, no threshold."""
    p = stats.ttest_ind(base.step_ns, cand.step_ns, equal_var=False).pvalue
    return _by_sign(float(np.mean(cand.step_ns) - np.mean(base.step_ns)), p < 0.05)


def means(base: Time, cand: Time, threshold: Threshold) -> Verdict:
    """Means further apart than the threshold (the default one where it is 0), as read off a table in a review."""
    apart = float(np.mean(cand.step_ns) - np.mean(base.step_ns))
    allowed = threshold.of(STEP_US * 1e3) or Threshold().of(STEP_US * 1e3)
    return _by_sign(apart, abs(apart) > allowed)


RULES: dict[str, Rule] = {
    "mtp-bench": ours,
    "benchstat": benchstat,
    "Welch's t": welch,
    "means": means,
}


def false_alarms(noise: Noise, windows: int, seeds: range, rules: Mapping[str, Rule] = RULES) -> dict[str, float]:
    """How often each rule calls two samples of one source faster or slower, at a threshold of 0."""
    pairs = [measured(noise, windows, 0.0, seed) for seed in seeds]
    return {
        name: sum(rule(*pair, Threshold(0.0, 0.0)) in ("faster", "slower") for pair in pairs) / len(seeds)
        for name, rule in rules.items()
    }


def found(case: Case, seeds: range, rules: Mapping[str, Rule] = RULES) -> dict[str, float]:
    """How often each rule calls the slowdown of ``case`` one."""
    pairs = [measured(gaussian(case.spread_us), case.windows, case.effect_us, seed) for seed in seeds]
    return {
        name: sum(rule(*pair, case.threshold) == "slower" for pair in pairs) / len(seeds)
        for name, rule in rules.items()
    }


def _time(step_ns: list[float], rounds: list[int]) -> Time:
    count = len(step_ns)
    return Time(
        modelled=False,
        step_ns=step_ns,
        round=rounds,
        host_ns=[None] * count,
        lead_ns=[None] * count,
        sm_clock_mhz=[None] * count,
        throttled=[False] * count,
    )


def _by_sign(apart: float, significant: bool) -> Verdict:
    return ("slower" if apart > 0 else "faster") if significant else "unclear"


def _line(what: str, cells: Iterable[str], note: str = "") -> str:
    return f"{what:<74}" + "".join(f"{cell:>11}" for cell in cells) + note


def main() -> int:
    """Print the table; 1 where our rule misses what is asked of it by more than two standard errors of the rate."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    seeds = range(repetitions)
    missed = False

    def show(what: str, rates: Mapping[str, float], too_much: float) -> None:
        nonlocal missed
        error = math.sqrt(rates["mtp-bench"] * (1 - rates["mtp-bench"]) / repetitions)
        missed |= too_much > 2 * error
        note = "  missed" if too_much > 2 * error else ""
        print(_line(f"  {what}", [f"{100 * rate:.1f}" for rate in rates.values()], note), flush=True)

    print(f"Steps of {STEP_US:g} us, {repetitions:,} repetitions a number, per cent.\n")
    print(_line(f"Equal sides called faster or slower (at most {100 * FALSE_ALARMS:g})", RULES))
    for name, noise in NOISES.items():
        for windows in SIZES:
            rates = false_alarms(noise, windows, seeds)
            show(f"{name}, {windows} windows", rates, rates["mtp-bench"] - FALSE_ALARMS)
    print()
    print(_line("Slowdowns found", RULES))
    for case in POWER:
        rates = found(case, seeds)
        show(f"{case} (at least {100 * case.wanted:g})", rates, case.wanted - rates["mtp-bench"])
    print(NOTES)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
