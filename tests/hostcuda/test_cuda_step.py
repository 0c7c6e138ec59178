"""Scope ``step`` on CUDA's host code: a real GPT model with its MTP block, forward, backward and finalisation."""

from collections import Counter

import hostcuda
import pytest

from mtp_bench import variants
from mtp_bench.megatron import isolated_state
from mtp_bench.megatron.gpt import GPT
from tests.variants.recording import workload

B, D, MICROBATCHES = 4, 2, 2
ROLL = "_roll_tensor_packed_seq"


@pytest.fixture
def gpt(device, request):
    hostcuda.reads(1)
    keys = {"num_layers": 1, "num_microbatches": MICROBATCHES, "mtp_num_layers": D, "calculate_per_token_loss": True}
    with isolated_state(device):
        yield GPT(workload(**keys, **request.param), device)


@pytest.mark.parametrize("gpt", [{"packed": True}], indirect=True)
@pytest.mark.parametrize(
    ("name", "rolls", "guards"),
    [
        ("original", 2 * 8 * B * D, 0),  # the block's own rolls and the variant's
        ("patched", 2 * 8 * B * D, D),
        ("sync_free", 2 * 8 * B * D, 0),
        ("boundary_roll", 0, 0),  # replaces the block's rolls too
    ],
)
def test_waits_of_a_packed_step(device, gpt, name, rolls, guards):
    step = gpt.step(variants.load(name))
    device.warm_up(step)
    found = Counter((sync.function, sync.phase) for sync in device.observe(step).syncs)
    expected = {(ROLL, "forward"): rolls, (name, "forward"): guards}
    expected = {place: count * MICROBATCHES for place, count in expected.items() if count}
    assert found == expected | {("finalize_model_grads", "finalize"): 1}


@pytest.mark.parametrize("gpt", [{"packed": False}], indirect=True)
@pytest.mark.parametrize(("name", "guards"), [("original", 0), ("patched", D), ("boundary_roll", 0)])
def test_waits_of_a_padded_step(device, gpt, name, guards):
    step = gpt.step(variants.load(name))
    device.warm_up(step)
    found = Counter(sync.function for sync in device.observe(step).syncs)
    assert found == {"finalize_model_grads": 1} | ({name: guards * MICROBATCHES} if guards else {})


@pytest.mark.parametrize("gpt", [{"packed": True}], indirect=True)
def test_a_step_is_timed(device, gpt):
    with hostcuda.durations(kernel_ns=20_000, gemm_ns=20_000):
        step = gpt.step(variants.load("boundary_roll"))
        device.warm_up(step)
        window = device.time_window(step, steps=8, lead_ms=1.0)
    assert window.step_ns > 5e6  # some 600 kernels
    assert window.lead_ns > 0.9e6
    assert device.peak_memory_bytes(step) > 0
