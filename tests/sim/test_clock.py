"""The modelled clock: a host running ahead of one queue, and what a wait costs it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mtp_bench.devices.sim import SimDevice
from mtp_bench.devices.sim.clock import Event, Timeline, replay
from mtp_bench.devices.sim.kernels import Work
from mtp_bench.devices.sim.profile import load_profile
from mtp_bench.errors import InputError
from mtp_bench.profiles import profile_dir

HOST, LATENCY, SYNC = 8000.0, 5000.0, 10000.0


def shipped(name: str) -> Path:
    return profile_dir("devices") / f"{name}.toml"


@pytest.fixture
def h100():
    profile = load_profile("h100")
    assert (profile.host_op_ns, profile.launch_latency_ns, profile.sync_ns) == (HOST, LATENCY, SYNC)
    return profile


def test_short_kernels_wait_for_the_host(h100):
    timeline = Timeline(h100)
    timeline.enqueue([2000.0])
    gap_ns = timeline.enqueue([2000.0])
    assert timeline.end_ns == 2 * HOST + LATENCY + 2000.0
    assert gap_ns == HOST - 2000.0


def test_long_kernels_let_the_host_run_ahead(h100):
    timeline = Timeline(h100)
    for _ in range(3):
        timeline.enqueue([100_000.0])
    assert timeline.issue_ns == 3 * HOST
    assert timeline.end_ns == HOST + LATENCY + 300_000.0
    assert timeline.idle_ns == 0


def test_a_wait_costs_the_host_its_lead(h100):
    timeline = Timeline(h100, lead_ns=1_000_000.0)
    timeline.enqueue([2000.0])
    assert timeline.wait() == 1_002_000.0 - HOST + SYNC
    assert timeline.enqueue([2000.0]) == SYNC + HOST + LATENCY


def test_views_cost_host_time_and_no_kernel(h100):
    timeline = Timeline(h100)
    timeline.enqueue([])
    assert (timeline.issue_ns, timeline.end_ns) == (HOST, 0.0)


def test_replay_does_not_count_the_queued_work(h100):
    step = [Event(HOST, (2000.0,))] * 10
    behind_much = replay(step, h100, lead_ns=10_000_000.0)
    assert behind_much.step_ns == 20_000.0  # the host has enqueued all of it before the device begins
    assert behind_much.device_idle_ns == 0
    assert behind_much.lead_ns > 0
    behind_nothing = replay(step, h100, lead_ns=0.0)
    assert behind_nothing.step_ns == 10 * HOST  # steps follow each other as fast as the host issues them
    assert behind_nothing.host_ns == 10 * HOST


def test_a_wait_in_a_host_bound_step_costs_more_than_itself(h100):
    step = [Event(HOST, (2000.0,))] * 10
    waiting = [*step[:5], Event(0.0, waits=True), *step[5:]]
    lost_ns = replay(waiting, h100, 1_000_000.0).step_ns - replay(step, h100, 1_000_000.0).step_ns
    assert lost_ns > SYNC + LATENCY


def test_roofline_takes_the_slowest_of_bytes_flops_and_floor(h100):
    bytes_bound = Work(1, 3_350_000_000, 1, torch.bfloat16)
    flops_bound = Work(1, 1, 989_000_000_000, torch.bfloat16)
    tiny = Work(3, 8, 0, torch.float32)
    assert h100.kernel_ns(bytes_bound) == (1_000_000.0,)
    assert h100.kernel_ns(flops_bound) == (1_000_000.0,)
    assert h100.kernel_ns(tiny) == (2000.0,) * 3


def test_matrix_products_are_bound_by_flops(sim):
    left = torch.empty(8192, 8192, device="sim", dtype=torch.bfloat16)
    window = sim.time_window(lambda: left @ left, steps=8)
    assert window.step_ns == pytest.approx(2 * 8192**3 / 989e3, rel=1e-6)


def test_observe_reports_blocked_and_idle_time_of_each_sync(sim):
    x = torch.ones(4, device="sim")

    def step():
        (x + 1).sum().item()
        return x + 1

    (at_once,) = sim.observe(step).syncs
    (behind,) = sim.observe(step, lead_ms=1.0).syncs
    assert behind.blocked_ns - at_once.blocked_ns > 900_000
    assert behind.device_idle_ns == SYNC + HOST + LATENCY
    assert sim.observe(step).ops == 4


def test_time_window_shows_what_a_sync_costs(sim):
    x = torch.ones(4, device="sim")

    def plain():
        for _ in range(20):
            x.add_(1)

    def reading():
        plain()
        x[0].item()
        plain()

    def twice():
        plain()
        plain()

    lead_ms = 1.0
    assert sim.time_window(reading, 8, lead_ms).step_ns > sim.time_window(twice, 8, lead_ms).step_ns + SYNC
    assert sim.time_window(twice, 8, lead_ms) == sim.time_window(twice, 99, lead_ms)


def test_graph_capture_is_refused_at_the_first_wait(sim):
    x = torch.ones(4, device="sim")
    assert sim.graph_capture(lambda: x + 1).possible
    refused = sim.graph_capture(lambda: x.sum().item())
    assert not refused.possible
    assert refused.site.path == __file__
    assert refused.reason == "aten::_local_scalar_dense waits for the device (item)"


def test_what_the_device_says_of_itself():
    device = SimDevice.from_spec("h200")
    assert (device.spec, device.modelled, device.detectors, device.backend()) == ("sim:h200", True, ("sim",), "gloo")
    assert device.describe() == {
        "kind": "sim",
        "name": "NVIDIA H200",
        "modelled": True,
        "driver": None,
        "cuda": None,
        "profile": f"h200 {device.profile.digest()}",
    }


def test_profiles_that_differ_in_a_constant_have_different_digests():
    profile = load_profile("h100")
    assert profile.digest() == load_profile("h100").digest()
    assert profile.digest() != replace(profile, host_op_ns=profile.host_op_ns + 1).digest()


@pytest.mark.parametrize("name", ["h100", "h200", "a100-80"])
def test_built_in_profiles_load_and_say_where_each_figure_comes_from(name):
    assert load_profile(name).name.startswith("NVIDIA")
    lines = shipped(name).read_text().splitlines()
    for at, line in enumerate(lines):
        if "=" in line and not line.startswith(("#", "name")):
            before = lines[:at][::-1]
            block = before[: before.index("")] if "" in before else before
            assert "#" in line or any(other.startswith("#") for other in block), line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("sync_ns = 10000.0", "sync_ns = -1"), "sync_ns is -1, should be a number above 0"),
        (("sync_ns = 10000.0", "sync_n = 1.0"), r"unknown key 'sync_n'; did you mean 'sync_ns'\?"),
        (("sync_ns = 10000.0", ""), "key 'sync_ns' is missing"),
        (("sync_ns = 10000.0", "sync_ns = 'x'"), "sync_ns is 'x', should be a number above 0"),
        (("sync_ns = 10000.0", "sync_ns ="), "not TOML"),
    ],
)
def test_a_wrong_profile_is_an_input_error_that_names_the_key(tmp_path, change, message):
    file = tmp_path / "mine.toml"
    file.write_text(shipped("h100").read_text().replace(*change))
    with pytest.raises(InputError, match=message):
        SimDevice.from_spec(str(file))


def test_a_profile_of_the_users_own(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(shipped("h100").read_text())
    assert SimDevice.from_spec(str(file)).profile == load_profile("h100")
