"""A whole optimizer step of a Megatron GPT model with MTP: the simulated device against the CUDA build of PyTorch."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import hostcuda
import pytest

from tests.hostcuda.training import CASES, watch

ROOT = Path(__file__).parents[2]
FINALIZE = ("megatron/core/distributed/finalize_model_grads.py", "finalize")
ROLL = ("megatron/core/transformer/multi_token_prediction.py", "forward")
NORM = ("megatron/core/utils.py", "optimizer")
CLIP = ("megatron/core/optimizer/clip_grads.py", "optimizer")
B, D, MICROBATCHES = 4, 2, 2


@pytest.fixture(scope="module")
def on_sim():
    """What the simulated device says of every case, from a process of its own: PyTorch allows one accelerator each."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.hostcuda.training", "sim"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def on_cuda():
    """What the CUDA build says, a case once."""
    return {}


@pytest.fixture
def both(request, device, on_sim, on_cuda):
    name = request.param
    if name not in on_cuda:
        if CASES[name]["keys"]["packed"]:
            hostcuda.reads(-1)  # the true bounds of the sequences, which the host has written
        on_cuda[name] = watch(device, **CASES[name])
    return on_sim[name], on_cuda[name]


def parametrized(names):
    return pytest.mark.parametrize("both", names, indirect=True)


@parametrized([name for name in CASES if CASES[name]["optimizer"] == "torch"])
def test_the_same_operations_wait_at_the_same_lines_in_the_same_order(both):
    sim, cuda = both
    assert sim["syncs"] == cuda["syncs"]


@parametrized([name for name in CASES if CASES[name]["optimizer"] == "megatron"])
def test_the_same_lines_wait_in_the_same_order_with_megatrons_optimizer(both):
    """Its norm makes a host tensor of a list of device scalars: PyTorch reads those below its dispatch modes, where the
    CUDA detector cannot tell them from the copies that such a call makes otherwise.
    """
    sim, cuda = both
    assert [site for _, _, *site in sim["syncs"]] == [site for _, _, *site in cuda["syncs"]]
    unlike = {tuple(zip(ours, theirs, strict=True)) for ours, theirs in zip(sim["syncs"], cuda["syncs"], strict=True)}
    unlike = {(op, kind) for op, kind, *_ in unlike if op[0] != op[1] or kind[0] != kind[1]}
    assert unlike <= {(("aten::_local_scalar_dense", "aten::_to_copy"), ("item", "htod"))}


@pytest.mark.parametrize(
    ("both", "expected"),
    [
        ("torch fp32", {FINALIZE: 1}),
        ("torch bf16 rope", {FINALIZE: 1}),
        ("torch packed", {FINALIZE: 1, ROLL: 2 * 8 * B * D * MICROBATCHES}),
        ("megatron fp32", {FINALIZE: 1, NORM: 51 + 1, CLIP: 1}),  # a read a parameter
        ("megatron bf16", {FINALIZE: 1, NORM: 51 + 1, CLIP: 1}),
    ],
    indirect=["both"],
)
def test_where_a_step_waits(both, expected):
    for found in both:
        assert Counter((file, phase) for _, _, file, _, phase in found["syncs"]) == expected


@parametrized(CASES)
def test_the_device_is_given_as_much_to_do(both):
    sim, cuda = both
    assert cuda["launches"] > 900
    assert sim["launches"] == pytest.approx(cuda["launches"], rel=0.03)
    assert sim["ops"] == pytest.approx(cuda["ops"], rel=0.1)
