"""Interleaved windows: which variant is timed when, and when enough has been measured.

Windows of the variants are interleaved in seeded random order, so that drift of the machine hits all alike. Rounds go
on until the difference of every variant from the baseline is known well enough, or the time is up; which of the two
ended it is recorded. Knows no device: it calls what it is given, and so is tested without a GPU and without a clock.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mtp_bench.devices import Window
from mtp_bench.statistics import paired_difference

STEPS_PER_WINDOW = 8


@dataclass(frozen=True, slots=True)
class Policy:
    """When to stop: from ``min_windows`` on, once every interval's half-width is small, or at ``max_seconds``.

    Intervals are looked at every ``check_every`` rounds, and of many rounds whenever a tenth has been added: looking
    takes longer the more there are, and the time is for measuring.
    """

    min_windows: int = 20
    max_seconds: float = 60.0
    half_width_ns: float = 10_000.0
    half_width_fraction: float = 0.005
    check_every: int = 5
    seed: int = 0


@dataclass(slots=True)
class Samples:
    """The windows of one variant in the order they were measured, and the round of each."""

    windows: list[Window] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    stop_reason: str = ""

    @property
    def step_ns(self) -> list[float]:
        """Nanoseconds a step, a window each."""
        return [window.step_ns for window in self.windows]


def interleave(
    timers: Mapping[str, Callable[[], Window]],
    baseline: str,
    policy: Policy,
    now: Callable[[], float] = time.monotonic,
    on_window: Callable[[str, int], None] = lambda name, round_number: None,
) -> dict[str, Samples]:
    """Run rounds, one window of each of ``timers`` a round, and return the samples by name.

    ``on_window`` is told the name and the round before each window. A timer that raises ends the measurement.
    """
    order = random.Random(policy.seed)
    samples = {name: Samples() for name in timers}
    started = now()
    round_number, next_check = 0, policy.min_windows
    while True:
        for name in order.sample(list(timers), len(timers)):
            on_window(name, round_number)
            samples[name].windows.append(timers[name]())
            samples[name].rounds.append(round_number)
        round_number += 1
        seconds, reason = now() - started, ""
        if round_number >= policy.min_windows and seconds >= policy.max_seconds:
            reason = "time"
        elif round_number == next_check:
            reason = "noise" if _quiet(samples, baseline, policy) else ""
            next_check += max(policy.check_every, round_number // 10)
        if reason:
            for measured in samples.values():
                measured.stop_reason = reason
            return samples


def _quiet(samples: Mapping[str, Samples], baseline: str, policy: Policy) -> bool:
    """Whether every difference from the baseline is known well enough."""
    base = samples[baseline].step_ns
    allowed = max(policy.half_width_ns, policy.half_width_fraction * float(np.median(base)))
    others = (measured.step_ns for name, measured in samples.items() if name != baseline)
    return all(_half_width(base, other) <= allowed for other in others)


def _half_width(base: Sequence[float], candidate: Sequence[float]) -> float:
    interval = paired_difference(base, candidate)
    return (interval.high - interval.low) / 2
