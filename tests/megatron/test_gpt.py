"""Scope ``step``: where a whole training step waits, what its gradients are, and that it leaves Megatron as it was."""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from pathlib import Path

import pytest

from mtp_bench.megatron import HostPlace, isolated_state, transformer_config
from mtp_bench.megatron.gpt import build_model
from tests.megatron.versions import INSTALLED, VERSIONS, run_with
from tests.variants.recording import bits, workload

SCRIPT = Path(__file__).with_name("gpt_steps.py")
B, D, M = 3, 2, 2  # sequences, depths, microbatches
TINY = {"sequences": [6, 4, 3], "num_layers": 2, "num_microbatches": M, "mtp_num_layers": D}
PADDED, PACKED = {**TINY, "packed": False}, {**TINY, "packed": True}
PER_TOKEN = {"calculate_per_token_loss": True}
ALL = ["original", "patched", "sync_free", "host_lens", "boundary_roll", "megatron"]
# bf16 is judged at the size at which a run judges values: its errors average out over channels and tokens.
VALUES_SIZE = {"params_dtype": "bf16", "hidden_size": 64, "vocab_size": 512}
RIGHT = ["patched", "boundary_roll"]
CASES = {
    "padded mean": {"keys": PADDED, "names": ALL, "values": True},
    "padded per token": {"keys": PADDED | PER_TOKEN, "names": ALL, "values": True},
    "packed mean": {"keys": PACKED, "names": ALL, "values": True},
    "packed per token": {"keys": PACKED | PER_TOKEN, "names": ALL, "values": True},
    "packed empty": {"keys": PACKED | {"mask": "empty"}, "names": ["patched", "boundary_roll"], "values": True},
}
MORE = {
    **{
        f"{layout} bf16 {depths} {per_token}": {
            "keys": keys | VALUES_SIZE | {"mtp_num_layers": depths, "calculate_per_token_loss": per_token},
            "names": RIGHT,
            "values": True,
        }
        for layout, keys in (("padded", PADDED), ("packed", PACKED))
        for depths in (1, 2, 3)
        for per_token in (False, True)
    },
    "packed rope": {"keys": PACKED | {"position_embedding_type": "rope"}, "names": ["boundary_roll"], "values": True},
    "actual bounds": {
        "keys": PACKED | {"pad_to_multiple": 4, "cu_seqlens": "actual"},
        "names": ["patched", "boundary_roll"],
        "values": True,
    },
    "megatron harness": {"keys": PACKED | {"harness": "megatron"}, "names": ["boundary_roll"]},
    "verl harness": {"keys": PACKED | {"harness": "verl"}, "names": ["boundary_roll"]},
    "production": {"profile": "packed-sft", "names": ["patched", "boundary_roll"]},
    "deepseek-v3": {"profile": "deepseek-v3", "names": ["patched"]},
}  # fmt: skip


@functools.cache
def steps(version):
    asked = CASES | (MORE if version == INSTALLED else {})
    answer = run_with(version, SCRIPT, list(asked.values()))
    assert answer["version"] == version
    return dict(zip(asked, answer["cases"], strict=True))


def by_range(version, case, name):
    return Counter(range_ for range_, *_ in steps(version)[case][name]["syncs"])


def rolls(packed, own_roll):
    """Syncs of packed rolls: the MTP block's of tokens and positions, and the loss's of labels and mask."""
    if not packed or own_roll:
        return Counter()
    in_loss = {f"step/forward/mtp_loss/depth:{depth}": 8 * B * M for depth in range(1, D + 1)}
    return Counter({"step/forward": 8 * B * D * M, **in_loss})


GUARDS = Counter({f"step/forward/mtp_loss/depth:{depth}": M for depth in range(1, D + 1)})
FINALIZE = Counter({"step/finalize": 1})


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("version", ["0.16.1", "0.17.1", "0.18.2", "0.19.2"])
def test_the_syncs_of_a_step(version, per_token, packed, name):
    case = f"{'packed' if packed else 'padded'} {'per token' if per_token else 'mean'}"
    guarded = name == "patched" or (name == "megatron" and version == "0.17.1")
    expected = rolls(packed, own_roll=name in ("host_lens", "boundary_roll"))
    expected += GUARDS if guarded else Counter()
    expected += FINALIZE if per_token and version < "0.18" else Counter()
    assert by_range(version, case, name) == expected


def test_with_boundary_roll_the_last_sync_is_in_finalize_model_grads():
    assert steps(INSTALLED)["packed per token"]["boundary_roll"]["syncs"] == [
        ["step/finalize", "item", "megatron/core/distributed/finalize_model_grads.py", "if num_tokens > 0:", "finalize"]
    ]


@pytest.mark.parametrize("version", ["0.14.0", "0.15.3"])
def test_before_packed_rolls_a_step_runs_padded_only(version):
    for case, found in steps(version).items():
        if case.startswith("packed"):
            reason = f"packed sequences need megatron-core 0.16 or later: {version} has no packed roll"
            assert found == {"refused": reason}
        else:
            expected = FINALIZE if "per token" in case else Counter()
            assert by_range(version, case, "boundary_roll") == expected
            assert by_range(version, case, "patched") == expected + GUARDS


@pytest.mark.parametrize("version", VERSIONS)
def test_gradients_are_those_of_the_objective(version):
    """Both ways to normalise come to one gradient; without rescaling, MTP is under-weighted by its fewer tokens."""
    unscaled = (10 + 7) / (2 * 13)  # tokens left at depths 1 and 2, of 13
    for case in ("padded mean", "padded per token", "packed mean", "packed per token"):
        found = steps(version)[case]
        if "refused" in found:
            continue
        for name in ALL:
            judged = found[name]["judged"]
            if "per token" in case and (name == "original" or (name == "megatron" and version < "0.17")):
                assert judged["status"] == "differs"
                assert judged["grad_scale"] == pytest.approx(unscaled, abs=0.1)
            else:
                assert (judged["status"], judged["detail"]) == ("close", "")
                assert judged["max_rel_err_grad"] < 1e-5


@pytest.mark.parametrize("name", ["patched", "boundary_roll"])
def test_an_empty_mask_gives_zeros(name):
    judged = steps(INSTALLED)["packed empty"][name]["judged"]
    assert (judged["status"], judged["logged_loss"], judged["reference_loss"]) == ("equal", [0.0] * D, [0.0] * D)


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("depths", [1, 2, 3])
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("name", RIGHT)
def test_bf16_is_close(layout, depths, per_token, name):
    judged = steps(INSTALLED)[f"{layout} bf16 {depths} {per_token}"][name]["judged"]
    assert (judged["status"], judged["detail"], len(judged["logged_loss"])) == ("close", "", depths)
    assert 0 < judged["max_rel_err_grad"] < 2e-2
    assert judged["grad_scale"] == pytest.approx(1, abs=5e-3)


def test_unpadded_bounds_make_packed_rolls_wrong():
    """Megatron-LM #6205: targets and mask are rolled within the wrong boundaries, whoever rolls them."""
    found = steps(INSTALLED)["actual bounds"]
    assert [found[name]["judged"]["status"] for name in ("patched", "boundary_roll")] == ["differs"] * 2


def test_rotary_embeddings_of_packed_sequences_are_right_and_wait_four_times_a_layer():
    found = steps(INSTALLED)["packed rope"]["boundary_roll"]
    assert found["judged"]["status"] == "close"
    layers = TINY["num_layers"] + D
    assert Counter(file for _, _, file, _, _ in found["syncs"]) == {
        "megatron/core/models/common/embeddings/rope_utils.py": 4 * layers * M
    }


def test_the_harness_of_megatron_asks_twice_a_microbatch():
    found = steps(INSTALLED)["megatron harness"]["boundary_roll"]["syncs"]
    assert found == [
        ["step/forward", "item", "megatron/core/rerun_state_machine.py", "if result_rejected:", "forward"]
    ] * (2 * M)


def test_the_harness_of_verl_reads_eight_times_a_microbatch():
    found = steps(INSTALLED)["verl harness"]["boundary_roll"]["syncs"]
    assert Counter((kind, file) for _, kind, file, _, _ in found) == {
        ("dtoh", "mtp_bench/megatron/harness.py"): 3 * M,
        ("item", "mtp_bench/megatron/harness.py"): 5 * M,
    }


def test_production_sizes_run_without_their_memory():
    found = steps(INSTALLED)
    assert len(found["deepseek-v3"]["patched"]["syncs"]) == M
    assert len(found["production"]["boundary_roll"]["syncs"]) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_step_leaves_megatron_as_it_was_even_when_its_variant_raises(version):
    assert {found.get("restored", True) for found in steps(version).values()} == {True}


def test_weights_are_the_same_bits_on_every_device():
    tiny = workload(**PACKED)
    with isolated_state(HostPlace()):
        model = build_model(tiny, transformer_config(tiny, on_host=True), HostPlace().torch_device)
        here = {name: zlib.crc32(bits(value)) for name, value in model.named_parameters()}
    assert steps(INSTALLED)["packed mean"]["weights"] == here
