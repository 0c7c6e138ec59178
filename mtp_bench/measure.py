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
    """When to stop: from ``min_windows`` on, once every interval's half-width is small, or at ``max_seconds``."""

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
    round_number = 0
    while True:
        for name in order.sample(list(timers), len(timers)):
            on_window(name, round_number)
            samples[name].windows.append(timers[name]())
            samples[name].rounds.append(round_number)
        round_number += 1
        reason = _why_stop(samples, baseline, policy, round_number, now() - started)
        if reason:
            for measured in samples.values():
                measured.stop_reason = reason
            return samples


def _why_stop(samples: Mapping[str, Samples], baseline: str, policy: Policy, rounds: int, seconds: float) -> str:
    if rounds < policy.min_windows:
        return ""
    if seconds >= policy.max_seconds:
        return "time"
    if rounds % policy.check_every:
        return ""
    base = samples[baseline].step_ns
    allowed = max(policy.half_width_ns, policy.half_width_fraction * float(np.median(base)))
    return "noise" if all(_half_width(base, s.step_ns) <= allowed for s in samples.values()) else ""


def _half_width(base: Sequence[float], candidate: Sequence[float]) -> float:
    interval = paired_difference(base, candidate)
    return (interval.high - interval.low) / 2
