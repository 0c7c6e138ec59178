"""How windows are interleaved and when measuring stops, with made-up timers and a made-up clock."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from mtp_bench.devices import Window
from mtp_bench.measure import Policy, interleave
from mtp_bench.statistics import paired_difference


def constant(step_ns: float) -> Callable[[], Window]:
    return lambda: Window(step_ns=step_ns, host_ns=step_ns, lead_ns=0.0)


def noisy(step_ns: float, spread_ns: float, seed: int) -> Callable[[], Window]:
    rng = random.Random(seed)
    return lambda: Window(step_ns=rng.gauss(step_ns, spread_ns), host_ns=0.0, lead_ns=0.0)


def ticking(seconds_a_call: float) -> Callable[[], float]:
    ticks = itertools.count()
    return lambda: next(ticks) * seconds_a_call


def test_quiet_samples_stop_at_the_smallest_number_of_windows_by_noise():
    samples = interleave({"a": constant(1e6), "b": constant(2e6)}, "a", Policy(min_windows=20), now=ticking(0.0))
    assert {name: (len(s.windows), s.stop_reason) for name, s in samples.items()} == {
        "a": (20, "noise"),
        "b": (20, "noise"),
    }


def test_noisy_samples_stop_by_time_with_every_window_kept():
    timers = {"a": noisy(1e6, 4e5, 1), "b": noisy(1e6, 4e5, 2)}
    samples = interleave(timers, "a", Policy(min_windows=20, max_seconds=40), now=ticking(1.0))
    assert [s.stop_reason for s in samples.values()] == ["time", "time"]
    assert [len(s.windows) for s in samples.values()] == [40, 40]


def test_intervals_are_looked_at_every_five_rounds_and_of_many_rounds_at_every_tenth_more(monkeypatch):
    looked_at = []

    def wide(base, candidate):
        looked_at.append(len(base))
        return paired_difference([0.0, 1e9], [1e9, 0.0])

    monkeypatch.setattr("mtp_bench.measure.paired_difference", wide)
    interleave({"a": constant(1e6), "b": constant(1e6)}, "a", Policy(max_seconds=200), now=ticking(1.0))
    assert looked_at == [20, 25, 30, 35, 40, 45, 50, 55, 60, 66, 72, 79, 86, 94, 103, 113, 124, 136, 149, 163, 179, 196]


def test_a_slow_machine_still_gives_the_smallest_number_of_windows():
    samples = interleave({"a": constant(1e6)}, "a", Policy(min_windows=20, max_seconds=5), now=ticking(100.0))
    assert len(samples["a"].windows) == 20
    assert samples["a"].stop_reason == "time"


def test_each_round_times_every_variant_once_in_an_order_that_the_seed_decides():
    def order_with(seed: int) -> list[str]:
        called: list[str] = []
        timers = {name: constant(1e6) for name in "abcd"}
        interleave(timers, "a", Policy(seed=seed), now=ticking(0.0), on_window=lambda name, _: called.append(name))
        return called

    called = order_with(7)
    rounds = [called[i : i + 4] for i in range(0, len(called), 4)]
    assert all(sorted(names) == list("abcd") for names in rounds)
    assert len({tuple(names) for names in rounds}) > 5
    assert called == order_with(7)
    assert called != order_with(8)


def test_rounds_are_recorded_beside_the_windows():
    samples = interleave({"a": constant(1.0), "b": constant(1.0)}, "b", Policy(min_windows=3, check_every=1))
    assert samples["a"].rounds == samples["b"].rounds == [0, 1, 2]


def test_a_timer_that_raises_is_not_swallowed():
    def broken() -> Window:
        raise RuntimeError("lost the device")

    with pytest.raises(RuntimeError, match="lost the device"):
        interleave({"a": broken}, "a", Policy())
