"""Inside a session ``cuda`` means the simulated device; outside nothing is left of it."""

import subprocess
import sys

import pytest
import torch

from mtp_bench.devices.sim import SimDevice
from mtp_bench.errors import InputError


def namespaces():
    import torch.utils._device

    owners = [torch, torch.Tensor, torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.nvtx, torch.autograd]
    owners += [torch.autocast, torch.distributed, torch.utils._device.DeviceContext]
    return [dict(vars(owner)) for owner in owners]


def switches():
    return (
        torch.__future__.get_swap_module_params_on_conversion(),
        torch.autograd.is_multithreading_enabled(),
        torch.get_num_threads(),
        list(torch.utils._foreach_utils._foreach_supported_types),
    )


def test_everything_is_restored_also_after_an_exception():
    with SimDevice.from_spec("h100").session():
        torch.ones(1, device="cuda")
    before = namespaces(), switches()
    with pytest.raises(RuntimeError, match="negative dimension"), SimDevice.from_spec("h100").session():
        torch.ones(-1, device="cuda")
    after = namespaces(), switches()
    assert before[1] == after[1]
    for was, now in zip(before[0], after[0], strict=True):
        assert {name for name in was if was[name] is not now.get(name)} == set()


def test_sessions_nest(sim):
    with SimDevice.from_spec("a100-80").session():
        assert torch.ones(1, device="cuda").is_cuda
    assert torch.ones(1, device="cuda").is_cuda


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, device="cuda"),
        lambda: torch.ones(2, device=torch.device("cuda", 1)),
        lambda: torch.ones(2, device=torch.cuda.current_device()),
        lambda: torch.ones(2, device=f"cuda:{torch.cuda.current_device()}"),
        lambda: torch.ones(2).cuda(),
        lambda: torch.ones(2).cuda(non_blocking=True),
        lambda: torch.ones(2).to("cuda"),
        lambda: torch.ones(2).to(device="cuda", dtype=torch.float16),
        lambda: torch.ones(2).to(torch.device("cuda")),
        lambda: torch.ones(2, pin_memory=True).to("cuda", non_blocking=True),
        lambda: torch.zeros_like(torch.ones(2), device="cuda"),
        lambda: torch.ones(2, device="sim").new_zeros(3, device="cuda"),
        lambda: torch.nn.Linear(2, 2, device="cuda").weight,
        lambda: torch.nn.Linear(2, 2).cuda().weight,
        lambda: torch.nn.Linear(2, 2).to("cuda", torch.bfloat16).weight,
    ],
)
def test_cuda_means_sim(sim, make):
    tensor = make()
    assert (tensor.device, tensor.is_cuda) == (torch.device("sim:0"), True)


def test_device_contexts(sim):
    with torch.device("cuda"):
        assert torch.ones(1).is_cuda
    with torch.cuda.device(0):
        assert torch.cuda.current_device() == 0


def test_torch_cuda_answers_from_the_profile(sim):
    assert torch.cuda.is_available()
    assert torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.get_device_properties(0).multi_processor_count == 132
    assert torch.cuda.get_device_name() == "NVIDIA H100 80GB HBM3"
    assert torch.cuda.memory_allocated() == 0
    assert torch.ones(1, device="cuda").type() == "torch.cuda.FloatTensor"


def test_streams_and_events(sim):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() is stream
    assert torch.cuda.current_stream() is torch.cuda.default_stream()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with sim.record_syncs() as syncs:
        start.record()
        torch.ones(8, device="cuda") + 1
        end.record()
        stream.wait_event(end)
        assert end.query()
        assert syncs == []
        end.synchronize()
    assert [sync.kind for sync in syncs] == ["event_sync"]
    assert start.elapsed_time(end) > 0


def test_an_idle_device_reaches_an_event_when_the_host_has_launched_it(sim):
    event = torch.cuda.Event(enable_timing=True)
    x = torch.ones(8, device="cuda")
    with sim.record_syncs():
        x.sum().item()
        event.record()
    assert event.device_ns == pytest.approx(event.issue_ns + sim.profile.launch_latency_ns)


@pytest.mark.parametrize("name", ["memory_snapshot", "utilization", "graph_pool_handle", "CUDAGraph", "graph"])
def test_what_is_not_redirected_fails_by_name(sim, name):
    with pytest.raises(NotImplementedError, match=f"torch.cuda.{name} is not supported on the simulated device"):
        getattr(torch.cuda, name)()


def test_importing_the_module_registers_nothing():
    script = """
import torch, mtp_bench.devices.sim as sim
assert torch._C._get_privateuse1_backend_name() == "privateuseone"
device = sim.SimDevice.from_spec("h100")
assert torch._C._get_privateuse1_backend_name() == "privateuseone"
with device.session():
    assert torch.device("sim").type == "sim"
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_process_that_has_started_cuda_is_refused():
    script = """
import torch, mtp_bench.devices.sim as sim
torch.cuda.is_initialized = lambda: True
with sim.SimDevice.from_spec("h100").session():
    pass
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "InputError: the simulated device cannot run in a process that has started CUDA" in done.stderr


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("h10", r"--device sim:h10: no such device profile; did you mean 'h100'\?"),
        ("/no/such.toml", "/no/such.toml: No such file"),
    ],
)
def test_unknown_profiles(spec, message):
    with pytest.raises(InputError, match=message):
        SimDevice.from_spec(spec)
