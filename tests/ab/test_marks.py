"""Where device time lies on the host's clock, and marks on the simulated device."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mtp_bench.ab.marks import DRIFT, RESOLUTION_NS, HostTime, SimMarks

MS = 1e6
UNKNOWN = math.inf

gaps_ns = st.floats(-100 * MS, 60_000 * MS)  # a mark on another stream may come earlier
slacks_ns = st.floats(0, 100 * MS) | st.just(UNKNOWN)


@given(
    drift=st.floats(-DRIFT, DRIFT),
    marks=st.lists(st.tuples(gaps_ns, st.floats(-0.99, 0.99), slacks_ns, slacks_ns), min_size=1, max_size=30),
)
def test_the_true_time_is_always_between_the_bounds(drift, marks):
    passed = HostTime()
    true_ns = 1e9
    for device_ns, rounding, seen_before_ns, seen_after_ns in marks:
        true_ns += device_ns * (1 + drift)
        measured_ns = device_ns + rounding * RESOLUTION_NS
        passed.follow(measured_ns, true_ns - seen_before_ns, true_ns + seen_after_ns)
        rounding_of_doubles_ns = 1e-2
        assert passed.not_before_ns <= true_ns + rounding_of_doubles_ns
        assert passed.not_after_ns >= true_ns - rounding_of_doubles_ns


def test_a_mark_is_placed_by_what_is_known_of_it():
    passed = HostTime()
    passed.follow(0.0, 100.0, 5_100.0)
    assert (passed.not_before_ns, passed.not_after_ns) == (100.0, 5_100.0)


def test_what_an_earlier_mark_said_holds_for_a_later_one_widened_by_drift_and_resolution():
    passed = HostTime()
    passed.follow(0.0, 1_000.0, 3_000.0)
    passed.follow(10 * MS, -UNKNOWN, UNKNOWN)
    assert passed.not_before_ns == pytest.approx(1_000 + 10 * MS - 1_000 - 500)
    assert passed.not_after_ns == pytest.approx(3_000 + 10 * MS + 1_000 + 500)


def test_a_mark_that_comes_before_the_last_one_is_placed_as_far_back_as_it_may_be():
    passed = HostTime()
    passed.follow(0.0, 20 * MS, 20 * MS)
    passed.follow(-10 * MS, -UNKNOWN, UNKNOWN)
    assert passed.not_before_ns == pytest.approx(10 * MS - 1_500)
    assert passed.not_after_ns == pytest.approx(10 * MS + 1_500)


def test_the_closest_of_all_bounds_count():
    passed = HostTime()
    passed.follow(0.0, 0.0, 40 * MS)
    passed.follow(10 * MS, 12 * MS, 90 * MS)
    assert passed.not_before_ns == 12 * MS
    assert passed.not_after_ns == pytest.approx(50 * MS, abs=2_000)


def test_a_mark_that_contradicts_the_ones_before_counts_alone():
    passed = HostTime()
    passed.follow(0.0, 0.0, 1_000.0)
    passed.follow(10 * MS, 900 * MS, 901 * MS)  # the host's clock was set 890 ms ahead
    assert (passed.not_before_ns, passed.not_after_ns) == (900 * MS, 901 * MS)


def test_after_a_gap_nothing_is_known():
    passed = HostTime()
    passed.follow(0.0, 5.0, 6.0)
    passed.restart()
    passed.follow(0.0, 2 * MS, UNKNOWN)
    assert (passed.not_before_ns, passed.not_after_ns) == (2 * MS, UNKNOWN)


def test_marks_on_sim_have_the_model_s_times_at_once(sim):
    marks = SimMarks(2)
    x = torch.ones(2**14, device="cuda")
    marks.record(0)
    for _ in range(10):
        x.add_(1)
    marks.record(1)
    marks.close()
    assert marks.has_passed(1)
    profile = sim.profile
    assert marks.host_ns(1) - marks.host_ns(0) == pytest.approx(10 * profile.host_op_ns)
    begin_ns, end_ns = marks.bounds_ns(0)[0], marks.bounds_ns(1)[1]
    assert marks.elapsed_ns(0, 1) == end_ns - begin_ns > 0


def test_no_time_passes_on_sim_after_the_marks_are_closed(sim):
    marks = SimMarks(1)
    marks.close()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.ones(8, device="cuda").add_(1)
    end.record()
    assert start.elapsed_time(end) == 0


def test_the_job_s_clock_on_sim_keeps_nothing(sim):
    marks = SimMarks(1)
    torch.ones(8, device="cuda").add_(1).sum().item()
    assert list(marks._timeline.events) == []
    marks.close()


def test_time_that_somebody_records_meanwhile_passes_on_the_job_s_clock_too(sim):
    x = torch.ones(8, device="cuda")

    def host_ns(watched):
        marks = SimMarks(2)
        marks.record(0)
        if watched:
            with sim.record_syncs():
                x.add_(1).sum().item()
        else:
            x.add_(1).sum().item()
        marks.record(1)
        marks.close()
        return marks.host_ns(1) - marks.host_ns(0)

    assert host_ns(watched=True) == pytest.approx(host_ns(watched=False), abs=1)


def test_a_mark_made_while_somebody_else_records_has_no_time(sim):
    marks = SimMarks(1)
    with sim.record_syncs():
        marks.record(0)
    assert not marks.has_passed(0)
    marks.close()
