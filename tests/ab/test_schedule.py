"""Which variant a window runs."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from mtp_bench.ab.schedule import Schedule
from mtp_bench.errors import InputError

THREE = {"variants": 3, "steps": 120, "window": 10, "seed": 1234}


def order(**changes):
    schedule = Schedule.of(**{**THREE, **changes})
    return [schedule.variant(window) for window in range(schedule.windows)]


def test_every_round_runs_every_variant_once():
    assert order() == [1, 0, 2, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    drawn = order(steps=3 * 10 * 300)
    assert all(sorted(drawn[at : at + 3]) == [0, 1, 2] for at in range(0, 900, 3))


def test_every_order_is_drawn_about_as_often():
    drawn = order(steps=3 * 2 * 1200, window=2)
    counts = Counter(tuple(drawn[at : at + 3]) for at in range(0, 3600, 3))
    assert len(counts) == 6
    assert all(160 <= count <= 240 for count in counts.values())  # 200 expected, 3 standard deviations are 39


def test_the_order_depends_on_the_seed():
    assert order(seed=1) != order(seed=2)


def test_another_process_draws_the_same():
    code = (
        "from mtp_bench.ab.schedule import Schedule; s = Schedule.of(variants=3, steps=120, window=10, seed=1234);"
        "print([s.variant(w) for w in range(s.windows)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(order())


def test_a_round_that_does_not_fit_is_not_begun():
    schedule = Schedule.of(**{**THREE, "steps": 119})
    assert (schedule.windows, schedule.rounds) == (9, 3)
    assert [schedule.round(window) for window in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"steps": 29},
            "steps=29: a window of 10 iterations for each variant takes 30 iterations; use more steps or a smaller "
            "window",
        ),
        ({"steps": 0}, "steps=0: expected a whole number of iterations, 1 or more"),
        ({"steps": 1e3}, "steps=1000.0: expected a whole number of iterations, 1 or more"),
        ({"steps": True}, "steps=True: expected a whole number of iterations, 1 or more"),
        ({"window": 1}, "window=1: expected a whole number of iterations, 2 or more"),
        ({"seed": "a"}, "seed='a': expected a whole number"),
        (
            {"steps": 200_000, "window": 10},
            "window=10: 200000 steps are 20000 windows, and 10000 can be kept; use window=20",
        ),
    ],
)
def test_numbers_that_cannot_be(changes, message):
    with pytest.raises(InputError) as error:
        Schedule.of(**{**THREE, **changes})
    assert str(error.value) == message
