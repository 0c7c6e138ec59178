"""Windows of the CUDA device, on an imagined device whose kernels take known times."""

import gc
import time

import hostcuda
import pytest
import torch

KERNEL_NS = 200_000
MS = 1e6


@pytest.fixture
def x(device):
    x = torch.ones(8, device="cuda")
    x.add_(1)
    return x


def quiet_window(device, step, **options):
    """The fastest of five windows: other processes of the machine only ever add to a time."""
    return min((device.time_window(step, **options) for _ in range(5)), key=lambda window: window.step_ns)


def kernels(x, count):
    def step():
        for _ in range(count):
            x.add_(1)

    return step


def test_a_step_takes_as_long_as_its_kernels(device, x):
    with hostcuda.durations(kernel_ns=KERNEL_NS):
        window = quiet_window(device, kernels(x, 10), steps=8)
    assert window.step_ns == pytest.approx(10 * KERNEL_NS, rel=0.1)


def test_a_step_of_a_slow_host_takes_as_long_as_the_host(device, x):
    def step():
        x.add_(1)
        time.sleep(0.003)

    with hostcuda.durations(kernel_ns=KERNEL_NS):
        window = quiet_window(device, step, steps=8)
    assert window.step_ns == pytest.approx(3 * MS, rel=0.3)
    assert window.host_ns == pytest.approx(window.step_ns, rel=0.1)


def test_enqueuing_is_timed_apart_from_running(device, x):
    with hostcuda.durations(kernel_ns=KERNEL_NS):
        window = quiet_window(device, kernels(x, 20), steps=8)
    assert window.host_ns < window.step_ns / 5


def test_the_first_step_of_a_window_is_dropped(device, x):
    calls = []

    def step():
        if not calls:
            time.sleep(0.05)
        calls.append(None)
        x.add_(1)

    with hostcuda.durations(kernel_ns=KERNEL_NS):
        window = device.time_window(step, steps=8)
    assert len(calls) == 9
    assert window.step_ns < 5 * MS


@pytest.mark.parametrize("lead_ms", [0.0, 2.0])
def test_the_host_never_waits_inside_a_window(device, x, lead_ms):
    waits = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaEventElapsedTime")
    seen = []

    def step():
        seen.append(sum(hostcuda.calls().get(name, 0) for name in waits))
        x.add_(1)

    device.time_window(step, steps=8, lead_ms=lead_ms)
    assert len(set(seen)) == 1


def test_the_lead_is_outside_the_time_of_a_step(device, x):
    with hostcuda.durations(kernel_ns=KERNEL_NS):
        window = quiet_window(device, kernels(x, 5), steps=8, lead_ms=5)
    assert window.step_ns == pytest.approx(5 * KERNEL_NS, rel=0.1)


def test_the_lead_at_entry_is_what_was_queued_before_a_step_that_waits(device, x):
    def step():
        x.add_(1)
        x[0].item()

    window = quiet_window(device, step, steps=8, lead_ms=5)
    assert window.lead_ns == pytest.approx(5 * MS, rel=0.1)


def test_without_waits_the_lead_grows_from_step_to_step(device, x):
    window = quiet_window(device, kernels(x, 1), steps=8, lead_ms=5)
    # Steps 1 to 8 find 2 to 9 times 5 ms queued; the median of those.
    assert window.lead_ns == pytest.approx(5.5 * 5 * MS, rel=0.1)


def test_a_host_that_is_behind_has_no_lead(device, x):
    def step():
        x.add_(1)
        x[0].item()
        time.sleep(0.002)

    window = quiet_window(device, step, steps=8)
    assert window.lead_ns < 0.2 * MS


def test_a_sync_costs_what_the_host_could_have_done_ahead(device, x):
    """With the sync in the middle the device idles while the host enqueues the second half."""

    def step(wait):
        def run():
            x.add_(1)
            if wait:
                x[0].item()
            time.sleep(0.002)
            x.add_(1)

        return run

    ahead = quiet_window(device, step(wait=False), steps=8, lead_ms=10)
    waiting = quiet_window(device, step(wait=True), steps=8, lead_ms=10)
    assert ahead.step_ns < 0.5 * MS
    assert waiting.step_ns == pytest.approx(2 * MS, rel=0.3)
    assert waiting.host_ns == pytest.approx(12 * MS, rel=0.2)


def test_the_garbage_collector_rests_inside_a_window_only(device, x):
    seen = []

    def step():
        seen.append(gc.isenabled())
        x.add_(1)

    device.time_window(step, steps=8)
    assert seen == [False] * 9
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_without_nvml_clocks_are_unknown(device, x):
    window = quiet_window(device, kernels(x, 1), steps=8)
    assert window.sm_clock_mhz is None
    assert window.throttled is False
