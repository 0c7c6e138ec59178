"""The range path and phase that syncs are filed under."""

from __future__ import annotations

import threading

import pytest

from mtp_bench import ranges


def test_ranges_nest_and_close():
    with ranges.open_range("run"), ranges.open_range("workload:w"):
        assert ranges.path() == ("run", "workload:w")
    assert ranges.path() == ()


def test_the_phase_is_the_innermost_one_and_forward_outside_all():
    assert ranges.phase() == "forward"
    with ranges.open_range("step"), ranges.open_range("backward"), ranges.open_range("mtp_loss"):
        assert ranges.phase() == "backward"


def test_other_threads_see_the_same_path():
    seen: list[tuple[str, ...]] = []
    with ranges.open_range("backward"):
        thread = threading.Thread(target=lambda: seen.append(ranges.path()))
        thread.start()
        thread.join()
    assert seen == [("backward",)]


def test_an_exception_closes_what_was_open():
    with pytest.raises(KeyError), ranges.open_range("step"):
        raise KeyError
    assert ranges.path() == ()
