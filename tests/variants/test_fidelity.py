"""``original`` is verl 0.8.0 and ``patched`` verl 0.9.1: the released code beside ours, operation by operation."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from mtp_bench import variants
from mtp_bench.scopes.loss import LossBench
from mtp_bench.variants import Variant, verl
from tests.releases import release
from tests.variants.recording import run, syncs, workload

STANDS_FOR = {"original": "0.8.0", "patched": "0.9.1"}
MASKS = ("full", "prompt:0.6", "empty", "tail:1")
CASES = [
    *itertools.product((False, True), (1, 2, 3), MASKS, (False, True), ("fp32",)),
    *itertools.product((False, True), (2,), MASKS, (False, True), ("bf16",)),
]


def released(version: str) -> Variant:
    package = release("verl", version) / "verl"
    return Variant("verl", verl.load_loss(package), version=verl.version(package))


def case(packed, depths, mask, per_token, dtype):
    return workload(
        packed=packed,
        mtp_num_layers=depths,
        mask=mask,
        calculate_per_token_loss=per_token,
        params_dtype=dtype,
        pad_to_multiple=4 if packed else 1,
    )


@pytest.mark.parametrize("name", STANDS_FOR)
@pytest.mark.parametrize(("packed", "depths", "mask", "per_token", "dtype"), CASES)
def test_issues_the_operations_of_the_release_and_computes_its_bits(
    name, packed, depths, mask, per_token, dtype, place
):
    bench = LossBench(case(packed, depths, mask, per_token, dtype), place)
    theirs = run(bench, released(STANDS_FOR[name]))
    ours = run(bench, variants.load(name))
    assert len(theirs.logged) == depths
    assert ours.operations == theirs.operations
    assert ours == theirs


@pytest.mark.parametrize("name", STANDS_FOR)
@pytest.mark.parametrize(("packed", "depths", "mask", "per_token", "dtype"), CASES)
def test_waits_where_the_release_waits(name, packed, depths, mask, per_token, dtype, on_sim):
    """A line of Megatron's is the same line; the loss's own is known by what it does, once a depth."""
    bench = LossBench(case(packed, depths, mask, per_token, dtype), on_sim)
    theirs = [described(sync) for sync in syncs(bench, released(STANDS_FOR[name]))]
    ours = [described(sync) for sync in syncs(bench, variants.load(name))]
    assert ours == theirs
    rolls = 8 * 4 * depths if packed else 0
    guards = {"original": [], "patched": ["item", "htod"] if mask == "empty" else ["item"]}[name]
    assert len(ours) == rolls + len(guards) * depths
    assert [kind for _, kind, _, _, place in ours if place == GUARD] == guards * depths


GUARD = "the guard"


def described(sync):
    """Operator, kind, phase and range, and the place: Megatron's file and line, or the part of the loss."""
    if Path(sync.file).name == "multi_token_prediction.py":
        place = f"{sync.file}:{sync.line}"
    else:
        assert Path(sync.file).name in {"mtp_patch.py", "patched.py"}
        assert "num_tokens > 0" in sync.code
        place = GUARD
    return sync.op, sync.kind, sync.phase, sync.range, place


@pytest.mark.parametrize("name", STANDS_FOR)
def test_the_comparison_tells_releases_apart(name, place):
    """With the releases exchanged it fails: neither the operations nor the values of the two are the same."""
    (other,) = (version for version in STANDS_FOR.values() if version != STANDS_FOR[name])
    bench = LossBench(workload(mask="empty"), place)
    theirs = run(bench, released(other))
    ours = run(bench, variants.load(name))
    assert ours.operations != theirs.operations
    assert ours.logged != theirs.logged


@pytest.mark.parametrize("version", ["0.8.0", "0.9.1"])
def test_the_release_is_the_one_it_says(version):
    assert verl.version(release("verl", version) / "verl") == version


@pytest.mark.parametrize("mask", ["full", "prompt:0.6"])
@pytest.mark.parametrize("name", ["sync_free", "host_lens", "boundary_roll"])
def test_without_empty_masks_the_sync_free_variants_compute_the_bits_of_patched(name, mask, on_host):
    bench = LossBench(workload(mask=mask, mtp_num_layers=2, pad_to_multiple=4), on_host)
    patched = run(bench, variants.load("patched"))
    ours = run(bench, variants.load(name))
    assert (ours.logged, ours.hidden_states_grad, ours.head_grad) == (
        patched.logged,
        patched.hidden_states_grad,
        patched.head_grad,
    )


def test_host_lens_issues_the_operations_of_sync_free_but_for_reading_bounds(on_host):
    bench = LossBench(workload(mtp_num_layers=2), on_host)
    sync_free = run(bench, variants.load("sync_free")).operations
    host_lens = run(bench, variants.load("host_lens")).operations
    read = [op for op in sync_free if op[0] == "aten._local_scalar_dense.default"]
    assert len(read) == 8 * 4 * 2

    def launches(operations):
        views = ("aten.select.int", "aten._local_scalar_dense.default")  # cu_seqlens[i], and reading it
        return [op for op in operations if op[0] not in views]

    assert launches(host_lens) == launches(sync_free)


@pytest.mark.parametrize("lengths", [(6, 4), (3,) * 20])
def test_boundary_roll_issues_the_same_operations_whatever_the_number_of_sequences(lengths, on_host):
    def names(sequences):
        bench = LossBench(workload(sequences=sequences), on_host)
        return [op[0] for op in run(bench, variants.load("boundary_roll")).operations]

    assert names(lengths) == names((2, 3, 4))
