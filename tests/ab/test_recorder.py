"""What one rank records, on a made-up device with exact times and on the simulated one."""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mtp_bench.ab import recorder as recorder_module
from mtp_bench.ab.recorder import MAX_WINDOWS, Recorder
from mtp_bench.devices.nvml import Clock
from mtp_bench.patching import replaced
from tests.ab.made_up import MS, US, MadeUpMarks

GPU = torch.device("cuda", 0)


@pytest.fixture
def made_up(monkeypatch):
    """A recorder of windows of three iterations, and the machine that it runs on."""

    def make(windows=100, window=3, **machine):
        monkeypatch.setattr(recorder_module, "marks_on", functools.partial(MadeUpMarks, **machine))
        recorder = Recorder(GPU, windows, window)
        return recorder, recorder._marks

    return make


def iteration(recorder, machine, device_ns=10 * MS, *, loss_ns=1 * MS, calls=1, host_ns=1 * MS, waits=False):
    """One iteration: most of its work, the loss, the rest of the host's time; perhaps a wait at the end."""
    recorder.begin_step()
    machine.host(host_ns / 2)
    machine.device(device_ns - calls * loss_ns)
    for _ in range(calls):
        recorder.enter_loss()
        machine.device(loss_ns)
        recorder.leave_loss()
    machine.host(host_ns / 2)
    if waits:
        machine.wait()


def run_windows(recorder, machine, *device_ms, **options):
    """Windows of three iterations of so many milliseconds each, one variant after the other."""
    for number, ms in enumerate(device_ms):
        recorder.begin_window(number, number % 2, number // 2)
        for _ in range(3):
            iteration(recorder, machine, ms * MS, **options)
    recorder.begin_step()
    machine.wait()
    recorder.finish(at_most_s=1.0)


def test_windows_of_each_variant_in_order(made_up):
    recorder, machine = made_up()
    run_windows(recorder, machine, 10, 20, 30, 40, waits=True)
    first, second = recorder.times(0), recorder.times(1)
    assert first.step_ns == pytest.approx([10 * MS, 30 * MS], rel=0.1)
    assert second.step_ns == pytest.approx([20 * MS, 40 * MS], rel=0.1)
    assert first.round == second.round == [0, 1]
    assert first.modelled is False
    assert recorder.times(2) is None
    assert (recorder.windows, recorder.windows_lost) == (4, 0)


def test_a_window_s_time_is_the_mean_of_its_iterations_but_the_first(made_up):
    recorder, machine = made_up()
    recorder.begin_window(0, 0, 0)
    for ms in (500, 10, 20):
        iteration(recorder, machine, ms * MS, host_ns=1000.0, waits=True)
    recorder.begin_step()
    recorder.finish(1.0)
    assert recorder.times(0).step_ns == pytest.approx([15 * MS], rel=1e-3)


def test_host_time_is_that_of_the_iteration_on_the_host(made_up):
    recorder, machine = made_up()
    run_windows(recorder, machine, 10, host_ns=2 * MS)
    assert recorder.times(0).host_ns == pytest.approx([2 * MS])


def test_what_lies_behind_the_end_of_a_step_is_no_part_of_it(made_up):
    recorder, machine = made_up()
    for number in range(3):
        recorder.begin_window(number, 0, number)
        for _ in range(3):
            iteration(recorder, machine, 10 * MS, host_ns=2000.0, waits=True)
            recorder.end_step()
            machine.device(70 * MS)  # samples are drawn for the next step, say
            machine.wait()
    recorder.finish(1.0)
    times = recorder.times(0)
    assert times.step_ns == pytest.approx([10 * MS] * 3, rel=1e-3)
    assert times.host_ns == pytest.approx([10 * MS] * 3, rel=1e-3)


def test_steps_that_follow_each_other_closely_have_few_marks(made_up):
    recorder, machine = made_up(windows=4, window=10)
    marks = []
    for number in range(4):
        before = machine.records
        recorder.begin_window(number, 0, number)
        for at in range(10):
            iteration(recorder, machine, (number + 1) * (50 if at == 0 else 10) * MS, host_ns=1 * MS, waits=True)
            recorder.end_step()
            machine.host(100 * US)
        marks.append(machine.records - before)
    recorder.finish(1.0)
    times = recorder.times(0)
    # Each step in the first window, by which the others are judged; then three begins, two calls, the end of all.
    assert marks == [10 + 10 + 4, 7, 7, 7 + 1]
    for measured_ns in (times.step_ns, times.host_ns):
        assert measured_ns == pytest.approx([10.5 * MS, 20.6 * MS, 30.6 * MS, 40.6 * MS], abs=20 * US)
    assert times.loss_ns == pytest.approx([1 * MS] * 4)


def test_a_window_with_an_evaluation_in_it_is_lost_and_the_others_are_right(made_up):
    recorder, machine = made_up(windows=6)
    for number in range(6):
        recorder.begin_window(number, 0, number)
        for at in range(3):
            iteration(recorder, machine, 10 * MS, host_ns=2000.0, waits=True)
            recorder.end_step()
            if (number, at) == (2, 1):
                machine.device(500 * MS)
                machine.wait()
    recorder.finish(1.0)
    times = recorder.times(0)
    assert times.round == [0, 1, 3, 4, 5]
    assert times.step_ns == pytest.approx([10 * MS] * 5, rel=1e-3)
    assert recorder.windows_lost == 1


def test_an_end_said_twice_is_the_first(made_up):
    recorder, machine = made_up()
    recorder.begin_window(0, 0, 0)
    for _ in range(3):
        iteration(recorder, machine, 10 * MS, waits=True)
        recorder.end_step()
        machine.host(50 * MS)
        recorder.end_step()
    recorder.finish(1.0)
    assert recorder.times(0).step_ns == pytest.approx([10 * MS], rel=0.1)


def test_loss_time_is_the_median_of_the_timed_calls(made_up):
    recorder, machine = made_up()
    recorder.begin_window(0, 0, 0)
    for loss_ms in (9, 1, 2):
        iteration(recorder, machine, 20 * MS, loss_ns=loss_ms * MS, waits=True)
    recorder.begin_step()
    recorder.finish(1.0)
    assert recorder.times(0).loss_ns == pytest.approx([1.5 * MS])


def test_each_call_of_an_iteration_is_timed_in_its_turn_the_same_ones_of_every_variant(made_up):
    recorder, machine = made_up()
    for number in range(6):
        recorder.begin_window(number, number % 2, number // 2)
        for _ in range(3):
            recorder.begin_step()
            for call_ms in (1, 5, 50):
                recorder.enter_loss()
                machine.device(call_ms * MS)
                recorder.leave_loss()
            machine.wait()
    recorder.begin_step()
    recorder.finish(1.0)
    pairs_ms = [(1, 5), (50, 1), (5, 50)]
    for variant in (0, 1):
        assert recorder.times(variant).loss_ns == pytest.approx([(a + b) / 2 * MS for a, b in pairs_ms])


def test_two_calls_of_a_window_are_timed_at_most(made_up):
    recorder, machine = made_up(window=21)
    recorder.begin_window(0, 0, 0)
    for at in range(21):
        iteration(recorder, machine, 30 * MS, loss_ns=at * MS, waits=True)
    recorder.begin_step()
    timed = recorder._flight[0].loss_ns
    recorder.finish(1.0)
    assert [ns / MS for ns in timed if ns] == pytest.approx([1, 11])


def test_a_rank_without_the_loss_has_its_steps(made_up):
    recorder, machine = made_up()
    run_windows(recorder, machine, 10, calls=0)
    times = recorder.times(0)
    assert times.step_ns == pytest.approx([10 * MS], rel=0.2)
    assert times.lead_ns == [None]
    assert times.loss_ns is None


def test_the_lead_is_how_long_after_the_host_the_device_comes_to_the_loss(made_up):
    """The host waits at the end of a step: the loss finds the step's first 9 ms queued, less the host's 0.5 ms."""
    recorder, machine = made_up()
    recorder.begin_window(0, 0, 0)
    for _ in range(3):
        iteration(recorder, machine, 10 * MS, host_ns=1 * MS, waits=True)
    recorder.begin_step()
    recorder.finish(1.0)
    assert recorder.times(0).lead_ns == pytest.approx([9 * MS], abs=20 * US)


def test_a_host_that_is_behind_has_no_lead_but_the_latency(made_up):
    recorder, machine = made_up(latency_ns=5 * US)
    recorder.begin_window(0, 0, 0)
    for _ in range(3):
        recorder.begin_step()
        machine.host(5 * MS)
        recorder.enter_loss()
        machine.host(20 * US)
        recorder.leave_loss()
        machine.host(1 * MS)
    recorder.begin_step()
    machine.host(1 * MS)
    recorder.finish(1.0)
    assert recorder.times(0).lead_ns == pytest.approx([5 * US], abs=25 * US)


def test_a_lead_whose_bounds_are_too_far_apart_is_not_given(made_up):
    """The host looks every 60 ms only, and the marks pass some 30 ms from any look."""
    recorder, machine = made_up()
    recorder.begin_window(0, 0, 0)
    machine.device(30 * MS)
    for _ in range(3):
        recorder.begin_step()
        machine.device(59 * MS)
        recorder.enter_loss()
        machine.device(1 * MS)
        recorder.leave_loss()
        machine.host(60 * MS)
    recorder.begin_step()
    machine.wait()
    recorder.finish(1.0)
    times = recorder.times(0)
    assert times.lead_ns == [None]
    assert times.loss_ns == pytest.approx([1 * MS])


def test_the_boundary_never_waits_and_what_is_late_is_read_later(made_up):
    recorder, machine = made_up()
    machine.device(5 * MS)
    for number in (0, 1):
        recorder.begin_window(number, number, 0)
        for _ in range(3):
            iteration(recorder, machine, 10 * MS, host_ns=2 * US)
    assert machine.now_ns == pytest.approx(12 * US)
    assert recorder.windows == 0
    recorder.begin_step()
    machine.wait()
    recorder.finish(1.0)
    assert recorder.windows == 2
    assert recorder.times(1).step_ns == pytest.approx([10 * MS])


def test_what_has_piled_up_is_read_twelve_stretches_at_a_time(made_up):
    recorder, machine = made_up(window=50)
    recorder.begin_window(0, 0, 0)
    for _ in range(30):
        iteration(recorder, machine, 1 * MS, calls=0, host_ns=2 * US)
    machine.wait()
    machine.look()
    read = []
    for _ in range(12):
        before = machine.elapsed_calls
        iteration(recorder, machine, 1 * US, calls=0, host_ns=2 * US)
        read.append(machine.elapsed_calls - before)
    assert read == [12, 12, 8, 0, 0, 0, 0, 0, 0, 0, 8, 0]


def test_a_window_still_pending_two_windows_later_is_lost(made_up):
    recorder, machine = made_up()
    machine.stuck = True
    lost = []
    for number in range(6):
        recorder.begin_window(number, 0, number)
        lost.append(recorder.windows_lost)
        for _ in range(3):
            iteration(recorder, machine)
    assert lost == [0, 0, 0, 1, 2, 3]
    machine.stuck = False
    machine.wait()
    for number in range(6, 9):
        recorder.begin_window(number, 0, number)
        for _ in range(3):
            iteration(recorder, machine, waits=True)
    recorder.begin_step()
    recorder.finish(1.0)
    assert recorder.times(0).round == [3, 4, 5, 6, 7, 8][-recorder.windows :]
    assert recorder.windows + recorder.windows_lost == 9
    assert recorder.times(0).step_ns[-1] == pytest.approx(10 * MS, rel=0.1)


@given(stuck=st.lists(st.integers(0, 12), min_size=1, max_size=8), ends=st.booleans())
def test_whenever_the_device_is_late_windows_are_right_or_lost(stuck, ends):
    """``stuck``: by turns, for how many iterations nothing passes and for how many all does."""
    late = [bool(turn % 2) for turn, iterations in enumerate(stuck) for _ in range(iterations)]
    windows = len(late) // 3 + 1
    with replaced(recorder_module, "marks_on", MadeUpMarks):
        recorder = Recorder(GPU, windows, 3)
    machine = recorder._marks
    for number in range(windows):
        recorder.begin_window(number, 0, number)
        for at in range(3):
            machine.stuck = dict(enumerate(late)).get(3 * number + at, False)
            iteration(recorder, machine, (number + 1) * MS, loss_ns=100 * US, host_ns=2 * US, waits=True)
            if ends:
                recorder.end_step()
    if not ends:
        recorder.begin_step()
    machine.stuck = False
    recorder.finish(1.0)
    times = recorder.times(0)
    assert recorder.windows + recorder.windows_lost == windows
    if times is not None:
        assert times.step_ns == pytest.approx([(number + 1) * MS for number in times.round], rel=0.01)
        assert times.loss_ns == pytest.approx([100 * US] * recorder.windows)


def test_a_dropped_window_counts_as_lost_and_the_next_is_measured(made_up):
    recorder, machine = made_up()
    for number in range(3):
        recorder.begin_window(number, 0, number)
        for at in range(3):
            iteration(recorder, machine, waits=True)
            if (number, at) == (1, 1):
                recorder.drop_window()
    recorder.begin_step()
    recorder.finish(1.0)
    assert recorder.times(0).round == [0, 2]
    assert (recorder.windows, recorder.windows_lost) == (2, 1)


def test_a_window_dropped_twice_is_lost_once(made_up):
    recorder, machine = made_up()
    recorder.begin_window(0, 0, 0)
    iteration(recorder, machine)
    recorder.drop_window()
    recorder.drop_window()
    assert recorder.windows_lost == 1


@pytest.mark.parametrize("ends", [False, True])
def test_a_step_that_was_none_is_not_counted(made_up, ends):
    """verl zeroes the gradients when it leaves a step too, long before the next one begins."""
    recorder, machine = made_up()
    for number in range(4):
        recorder.begin_window(number, 0, number)
        for ms in (900, 10, 20):
            recorder.begin_step()
            machine.host(500 * MS)
            recorder.cancel_step()
            iteration(recorder, machine, ms * MS, host_ns=2000.0, waits=True)
            if ends:
                recorder.end_step()
    if not ends:
        recorder.begin_step()
    recorder.finish(1.0)
    assert recorder.times(0).round == [0, 1, 2, 3]
    assert recorder.times(0).step_ns == pytest.approx([15 * MS] * 4, rel=1e-3)


def test_a_step_that_was_none_among_others_that_follow_closely_loses_its_window(made_up):
    recorder, machine = made_up()
    for number in range(5):
        recorder.begin_window(number, 0, number)
        for at in range(3):
            if (number, at) == (2, 2):
                recorder.begin_step()
                machine.host(500 * MS)
                recorder.cancel_step()
            iteration(recorder, machine, 10 * MS, host_ns=2000.0, waits=True)
    recorder.begin_step()
    recorder.finish(1.0)
    assert 2 not in recorder.times(0).round
    assert recorder.times(0).step_ns == pytest.approx([10 * MS] * 4, rel=1e-3)


def test_a_step_that_was_none_takes_no_turn_of_the_calls(made_up):
    recorder, machine = made_up(window=4)
    recorder.begin_window(0, 0, 0)
    for _ in range(4):
        recorder.begin_step()
        recorder.cancel_step()
        recorder.begin_step()
        for call_ms in (1, 5, 50):
            recorder.enter_loss()
            machine.device(call_ms * MS)
            recorder.leave_loss()
        machine.wait()
    recorder.begin_step()
    recorder.finish(1.0)
    assert recorder.times(0).loss_ns == pytest.approx([3 * MS])


def test_after_what_was_lost_leads_are_right_again(made_up):
    recorder, machine = made_up()
    for number in range(10):
        machine.stuck = 2 <= number < 7
        recorder.begin_window(number, 0, number)
        for _ in range(3):
            iteration(recorder, machine, 10 * MS, host_ns=1 * MS, waits=True)
    recorder.begin_step()
    recorder.finish(1.0)
    times = recorder.times(0)
    assert times.round[0] == 0
    assert times.round[-1] == 9
    assert recorder.windows_lost > 0
    assert [times.lead_ns[0], times.lead_ns[-1]] == pytest.approx([9 * MS, 9 * MS], abs=20 * US)


def test_the_end_waits_for_what_is_pending_no_longer_than_it_is_told(made_up):
    recorder, machine = made_up()
    recorder.begin_window(0, 0, 0)
    for _ in range(3):
        iteration(recorder, machine)
    recorder.begin_step()
    machine.stuck = True
    recorder.finish(at_most_s=0.01)
    assert (recorder.windows, recorder.windows_lost) == (0, 1)
    assert recorder.times(0) is None
    assert machine.closed


def test_a_window_that_the_end_cuts_short_is_neither_measured_nor_lost(made_up):
    recorder, machine = made_up()
    recorder.begin_window(0, 0, 0)
    iteration(recorder, machine, waits=True)
    iteration(recorder, machine, waits=True)
    recorder.finish(1.0)
    assert (recorder.windows, recorder.windows_lost) == (0, 0)


def test_calls_of_the_loss_outside_of_an_iteration_are_not_timed(made_up):
    recorder, machine = made_up()
    recorder.enter_loss()
    recorder.leave_loss()
    run_windows(recorder, machine, 10, waits=True)
    assert recorder.windows == 1


def test_windows_that_have_ended_get_the_clock_of_when_it_is_asked(made_up, monkeypatch):
    recorder, machine = made_up()
    clocks = iter([Clock(1980), Clock(1200, throttled=True)])
    monkeypatch.setattr(recorder._measured, "_ask_clock", lambda: next(clocks))
    recorder.sample_clock()
    for number in range(3):
        recorder.begin_window(number, 0, number)
        if number == 1:
            recorder.sample_clock()
            recorder.sample_clock()
        for _ in range(3):
            iteration(recorder, machine, waits=True)
    recorder.begin_step()
    recorder.finish(1.0)
    recorder.sample_clock()
    times = recorder.times(0)
    assert times.sm_clock_mhz == [1980, 1200, 1200]
    assert times.throttled == [False, True, True]


def test_clocks_that_nobody_asked_for_are_unknown(made_up):
    recorder, machine = made_up()
    run_windows(recorder, machine, 10)
    times = recorder.times(0)
    assert (times.sm_clock_mhz, times.throttled) == ([None], [False])


def test_the_largest_number_of_windows_is_kept(made_up):
    recorder, machine = made_up(windows=MAX_WINDOWS, window=2)
    for number in range(MAX_WINDOWS):
        recorder.begin_window(number, 0, number)
        for _ in range(2):
            recorder.begin_step()
            machine.host(US)
    recorder.begin_step()
    recorder.finish(1.0)
    assert len(recorder.times(0).step_ns) == MAX_WINDOWS == 10_000


def test_on_sim_a_step_takes_what_the_model_says_of_back_to_back_steps(sim):
    x = torch.ones(2**16, device="cuda")

    def step(around_loss=lambda: None):
        for _ in range(20):
            x.mul_(1.5)
        around_loss()
        x.sum().item()
        for _ in range(20):
            x.mul_(1.5)
        around_loss()

    recorder = Recorder(torch.device("sim", 0), windows=4, window=5)
    assert recorder.modelled
    for number in range(4):
        recorder.begin_window(number, 0, number)
        for _ in range(5):
            recorder.begin_step()
            hooks = iter([recorder.enter_loss, recorder.leave_loss])
            step(lambda hooks=hooks: next(hooks)())
    recorder.begin_step()
    recorder.finish(1.0)
    expected = sim.time_window(step, steps=1)
    times = recorder.times(0)
    assert times.modelled is True
    assert times.step_ns == pytest.approx([expected.step_ns] * 4)
    assert times.host_ns == pytest.approx([expected.host_ns] * 4)
    assert times.sm_clock_mhz == [None] * 4
    assert all(lead_ns >= sim.profile.launch_latency_ns for lead_ns in times.lead_ns)
    assert 0 < times.loss_ns[0] < times.step_ns[0]
