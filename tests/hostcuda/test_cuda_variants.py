"""Every variant on CUDA's host code: how often it waits, at which lines, and whether a graph can hold it."""

import os
import sys
from collections import Counter
from pathlib import Path

import hostcuda
import pytest

from mtp_bench import variants
from mtp_bench.megatron import isolated_state
from mtp_bench.scopes.loss import LossBench
from mtp_bench.variants import Variant, verl
from tests.releases import release
from tests.variants.recording import workload

B = 4  # sequences of tests.variants.recording.workload
ROLL = "_roll_tensor_packed_seq"


@pytest.fixture
def on_cuda(device):
    with isolated_state(device):
        yield device


def observe(device, variant, small):
    step = LossBench(small, device).step(variant)
    step()
    return device.observe(step).syncs


def expected(name, packed, depths, empty):
    rolls = 8 * B * depths if packed and name not in ("host_lens", "boundary_roll", "exact") else 0
    guards = (2 if empty else 1) * depths if name == "patched" else 0
    return rolls, guards


@pytest.mark.parametrize(
    "name", ["original", "patched", "sync_free", "host_lens", "boundary_roll", "exact", "megatron"]
)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("depths", "empty"), [(1, False), (2, False), (2, True)])
def test_waits_of_a_variant(on_cuda, name, packed, depths, empty):
    hostcuda.reads(0 if empty else 1)
    syncs = observe(on_cuda, variants.load(name), workload(packed=packed, mtp_num_layers=depths))
    rolls, guards = expected(name, packed, depths, empty)
    by_function = Counter(sync.function for sync in syncs)
    assert by_function.pop(ROLL, 0) == rolls
    assert sum(by_function.values()) == guards
    assert {sync.phase for sync in syncs} <= {"forward"}
    for sync in syncs:
        here = "multi_token_prediction.py" if sync.function == ROLL else "patched.py"
        assert Path(sync.file).name == here


def test_the_guard_is_one_read_and_on_an_empty_shard_one_copy_more(on_cuda):
    hostcuda.reads(0)
    read, copy = observe(on_cuda, variants.load("patched"), workload(packed=False, mask="empty"))
    assert (read.kind, read.range[-2:]) == ("item", ("mtp_loss", "depth:1"))
    assert (copy.kind, "new_tensor" in copy.code) == ("htod", True)


@pytest.mark.parametrize(("ours", "version"), [("original", "0.8.0"), ("patched", "0.9.1")])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("depths", [1, 2, 3])
@pytest.mark.parametrize("reads", [0, 1])
@pytest.mark.parametrize("per_token", [False, True])
def test_the_released_verl_waits_at_the_same_places(on_cuda, ours, version, packed, depths, reads, per_token):
    hostcuda.reads(reads)
    small = workload(packed=packed, mtp_num_layers=depths, calculate_per_token_loss=per_token)
    theirs = Variant("verl", verl.load_loss(release("verl", version) / "verl"))

    def places(variant):
        # A line of Megatron is itself; one of the loss is known by what it does.
        return [
            (sync.op, sync.kind, sync.phase, sync.range, (sync.file, sync.line) if sync.function == ROLL else None)
            for sync in observe(on_cuda, variant, small)
        ]

    assert places(variants.load(ours)) == places(theirs)


@pytest.mark.parametrize(
    ("name", "packed", "possible"),
    [
        ("original", False, True),
        ("patched", False, False),
        ("sync_free", False, True),
        ("sync_free", True, False),
        ("host_lens", True, True),
        ("boundary_roll", True, True),
        ("exact", True, True),
    ],
)
def test_which_variants_a_graph_can_hold(on_cuda, name, packed, possible):
    hostcuda.reads(1)
    step = LossBench(workload(packed=packed), on_cuda).step(variants.load(name))
    on_cuda.warm_up(step)
    capture = on_cuda.graph_capture(step)
    assert capture.possible is possible
    if not possible:
        assert (
            capture.site.function == ROLL
            if packed
            else capture.site.path == variants.load(name).fn.__code__.co_filename
        )


MEGATRON = """
import hostcuda
from mtp_bench import variants
from mtp_bench.devices import resolve
from mtp_bench.megatron import isolated_state
from mtp_bench.scopes.loss import LossBench
from tests.variants.recording import workload

hostcuda.reads(1)
device = resolve("cuda")
with device.session(), isolated_state(device):
    for packed in (False, True):
        step = LossBench(workload(packed=packed, mtp_num_layers=2), device).step(variants.load("megatron"))
        step()
        print(len(device.observe(step).syncs), end=" ")
print(variants.load("megatron").version)
"""


@pytest.mark.parametrize(("version", "padded", "packed"), [("0.17.1", 2, 66), ("0.18.2", 0, 64), ("0.19.2", 0, 64)])
def test_waits_of_later_megatron(in_child, version, padded, packed):
    """0.17 has the guard that verl has; 0.18 clamps."""
    path = os.pathsep.join([str(release("megatron_core", version)), *filter(None, sys.path)])
    assert in_child(MEGATRON, PYTHONPATH=path) == f"{padded} {packed} {version}\n"
