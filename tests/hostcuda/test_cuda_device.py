"""The CUDA device beside its windows: what it is, warm-up, observation, graph capture, memory."""

import hostcuda
import pytest
import torch

from mtp_bench.devices import resolve
from mtp_bench.devices.cuda import CudaDevice
from mtp_bench.devices.nvml import Nvml
from mtp_bench.errors import InputError


class ReadsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient.sum().item()
        return gradient


@pytest.mark.parametrize("spec", ["cuda", "cuda:0"])
def test_specs(spec):
    assert resolve(spec) == CudaDevice(0)
    assert resolve(spec).spec == "cuda:0"


@pytest.mark.parametrize("rest", ["1", "x", "-1", "0:0"])
def test_a_gpu_that_is_not_there(rest):
    with pytest.raises(InputError, match=rf"^--device cuda:{rest}: no such GPU; PyTorch sees cuda:0$"):
        CudaDevice.from_spec(rest)


def test_no_gpu_at_all(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"no GPU is visible to PyTorch .*; use --device sim"):
        resolve("cuda")


def test_description(device):
    assert device.describe() == {
        "kind": "cuda",
        "name": "hostcuda (no GPU)",
        "modelled": False,
        "driver": None,
        "cuda": torch.version.cuda,
    }
    assert device.backend() == "cpu:gloo,cuda:nccl"
    assert device.torch_device == torch.device("cuda:0")


def test_a_process_that_used_the_simulated_device_is_refused(device, monkeypatch):
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "sim")
    with pytest.raises(InputError, match="one accelerator a process"), device.session():
        pass


def test_warm_up_ends_when_no_more_memory_is_taken(device):
    kept, calls = [], []

    def step():
        calls.append(None)
        if len(calls) <= 4:
            kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))

    torch.cuda.empty_cache()
    device.warm_up(step)
    assert len(calls) == 5


def test_warm_up_of_a_step_that_leaks_ends_too(device):
    kept = []
    torch.cuda.empty_cache()
    device.warm_up(lambda: kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda")))
    assert len(kept) == 12


def test_an_observation_holds_the_syncs_of_one_step(device):
    x = torch.ones(4, device="cuda")
    calls = []

    def step():
        calls.append(None)
        if x.sum() > 0:
            x.add_(1)

    hostcuda.reads(1)
    observation = device.observe(step, lead_ms=1)
    assert len(calls) == 1
    assert [(sync.kind, sync.code) for sync in observation.syncs] == [("item", "if x.sum() > 0:")]
    assert observation.ops == 4


def test_peak_memory_of_a_step(device):
    held = torch.empty(10 << 20, dtype=torch.uint8, device="cuda")
    base = torch.cuda.memory_allocated()

    def step():
        torch.empty(30 << 20, dtype=torch.uint8, device="cuda")

    assert device.peak_memory_bytes(step) == base + (30 << 20)
    del held


def test_a_step_that_never_waits_can_be_captured(device):
    x = torch.ones(4, device="cuda", requires_grad=True)

    def step():
        x.grad = None
        (x * 2).sum().backward()

    capture = device.graph_capture(step)
    assert (capture.possible, capture.site, capture.reason) == (True, None, "")


def usable_after(device):
    """Memory, random numbers, streams and captures all still work."""
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    x = torch.rand(4, device="cuda")
    torch.nn.functional.dropout(x)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert not torch.cuda.is_current_stream_capturing()
    assert device.graph_capture(lambda: x.add_(1)).possible


def test_the_line_that_forbids_capture(device):
    x = torch.ones(4, device="cuda")

    def step():
        x.add_(1)
        x[0].item()

    capture = device.graph_capture(step)
    assert not capture.possible
    assert capture.site.path == __file__
    assert capture.site.line == step.__code__.co_firstlineno + 2
    assert "aten::_local_scalar_dense" in capture.reason
    assert "operation not permitted when stream is capturing" in capture.reason
    usable_after(device)


def test_the_line_that_forbids_capture_in_backward(device):
    x = torch.ones(4, device="cuda", requires_grad=True)

    def step():
        x.grad = None
        ReadsInBackward.apply(x).sum().backward()

    capture = device.graph_capture(step)
    assert not capture.possible
    assert capture.site.function == "ReadsInBackward.backward"
    usable_after(device)


def test_a_wait_for_the_device_forbids_capture(device):
    def step():
        torch.cuda.synchronize()

    capture = device.graph_capture(step)
    assert not capture.possible
    assert capture.site.line == step.__code__.co_firstlineno + 1
    assert capture.reason == "torch.cuda.synchronize: CUDA error: operation not permitted when stream is capturing"
    usable_after(device)


def test_a_step_that_fails_by_itself_is_not_capturable_either(device):
    calls = []

    def step():
        calls.append(None)
        if len(calls) > 1:
            raise ValueError("second call")

    capture = device.graph_capture(step)
    assert (capture.possible, capture.reason) == (False, "second call")
    assert capture.site.function.endswith("step")
    usable_after(device)


def test_a_refused_capture_holds_no_memory(device):
    def step():
        x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        x[0].item()

    device.graph_capture(lambda: torch.ones(4, device="cuda").add_(1))  # makes what captures keep
    before = torch.cuda.memory_allocated()
    assert not device.graph_capture(step).possible
    assert torch.cuda.memory_allocated() == before


def test_a_state_that_a_capture_must_not_change_forbids_it(device):
    """Not every refusal is a wait."""
    state = torch.cuda.get_rng_state()

    def step():
        torch.cuda.manual_seed(1)
        torch.cuda.manual_seed(2)

    capture = device.graph_capture(step)
    assert not capture.possible
    assert "set_current_seed" in capture.reason
    assert capture.site.function.endswith("step")
    usable_after(device)
    torch.cuda.set_rng_state(state)


class Library:
    """pynvml, as far as it is asked."""

    NVML_CLOCK_SM = 1
    NVMLError = OSError
    nvmlClocksThrottleReasonSwPowerCap = 0x4
    nvmlClocksThrottleReasonHwSlowdown = 0x8
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80

    def __init__(self, reasons):
        self.reasons = reasons

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        if self.reasons is None:
            raise OSError("not supported")
        return self.reasons

    def nvmlSystemGetDriverVersion(self):
        return b"570.86.15"


@pytest.mark.parametrize(
    ("reasons", "throttled"), [(0, False), (0x4, False), (0x20, True), (0x44, True), (0x80, True), (None, False)]
)
def test_clock_and_throttling(reasons, throttled):
    nvml = Nvml(Library(reasons), handle=object())
    clock = nvml.clock()
    assert (clock.sm_mhz, clock.throttled, nvml.driver_version) == (1980, throttled, "570.86.15")


def test_without_nvml_nothing_is_known():
    assert Nvml.of(0).clock().sm_mhz is None
    assert Nvml.of(0).driver_version is None
