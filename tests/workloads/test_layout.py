"""How the tokens of a microbatch lie in its rows, which of them carry loss, and the tensors made of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mtp_bench import workloads
from mtp_bench.inputs import _BLOCK, make_inputs
from mtp_bench.workloads import Workload

CPU = torch.device("cpu")


def of(**keys):
    return Workload.from_dict("w", {"hidden_size": 8, "num_attention_heads": 2, "vocab_size": 11, **keys})


def test_packed_sequences_lie_in_one_row_each_padded_to_the_multiple():
    layout = of(sequences=[3, 2, 0, 4], packed=True, pad_to_multiple=4).layout()
    assert (layout.rows, layout.row_length) == (1, 12)
    assert layout.cu_seqlens == (0, 4, 8, 8, 12)
    assert layout.cu_seqlens_actual == (0, 3, 5, 5, 9)
    assert layout.loss_mask.tolist() == [[1, 1, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1]]
    assert layout.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]]


def test_rows_that_are_not_packed_are_padded_to_the_longest():
    layout = of(sequences=[3, 1]).layout()
    assert (layout.rows, layout.row_length, layout.cu_seqlens) == (2, 3, ())
    assert layout.loss_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert layout.position_ids.tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("full", [1, 1, 1, 1, 1, 1, 1]),
        ("empty", [0, 0, 0, 0, 0, 0, 0]),
        ("prompt:0.5", [0, 0, 1, 1, 0, 1, 1]),
        ("prompt:0", [1, 1, 1, 1, 1, 1, 1]),
        ("prompt:1", [0, 0, 0, 0, 0, 0, 0]),
        ("tail:1", [0, 0, 0, 1, 0, 0, 1]),
        ("tail:9", [1, 1, 1, 1, 1, 1, 1]),
        ("tail:0", [0, 0, 0, 0, 0, 0, 0]),
        ([1, 0, 0.5, True, 0, 0, 2], [1, 0, 0.5, 1, 0, 0, 2]),
    ],
)
def test_the_mask_is_laid_on_each_sequence(mask, expected):
    assert of(sequences=[4, 3], packed=True, mask=mask).layout().loss_mask.tolist() == [expected]


@given(st.integers(1, 40), st.integers(0, 4000), st.integers(0, 2**63 - 1))
def test_lognormal_lengths_fill_the_tokens_whatever_the_seed(count, more, seed):
    lengths = of(sequences=f"lognormal:{count}x{count + more}", packed=True, seed=seed).lengths
    assert len(lengths) == count
    assert sum(lengths) == count + more
    assert min(lengths) >= 1


def test_lognormal_lengths_are_the_same_for_a_seed():
    drawn = of(sequences="lognormal:5x100", packed=True, seed=7).lengths
    assert drawn == (17, 10, 38, 7, 28)
    assert of(sequences="lognormal:5x100", packed=True, seed=8).lengths != drawn


def test_labels_are_the_next_tokens_within_each_sequence():
    inputs = make_inputs(of(sequences=[4, 3], packed=True, pad_to_multiple=4, vocab_size=1000), CPU)
    ids, labels = inputs.input_ids[0].tolist(), inputs.labels[0].tolist()
    assert labels[:3] == ids[1:4]
    assert labels[4:6] == ids[5:7]
    assert ids[7] == labels[7] == 0
    assert labels[3] not in (0, ids[4])


def test_shapes_and_scales_of_the_tensors():
    workload = of(sequences=[600, 300], mtp_num_layers=2, hidden_size=64, vocab_size=500, params_dtype="fp32")
    inputs = make_inputs(workload, CPU)
    assert inputs.hidden_states.shape == (3 * 600, 2, 64)
    assert inputs.head_weight.shape == (500, 64)
    assert {inputs.hidden_states.dtype, inputs.head_weight.dtype, inputs.loss_mask.dtype} == {torch.float32}
    assert {inputs.input_ids.dtype, inputs.labels.dtype, inputs.position_ids.dtype} == {torch.int64}
    assert inputs.hidden_states.requires_grad
    assert inputs.hidden_states.is_leaf
    assert float(inputs.hidden_states.detach().std()) == pytest.approx(1, abs=0.02)
    assert float(inputs.head_weight.std()) == pytest.approx(1 / 8, abs=0.005)
    assert int(inputs.input_ids.max()) < 500


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    first, again = (make_inputs(of(sequences=[5, 4]), CPU) for _ in range(2))
    for name in ("hidden_states", "head_weight", "input_ids", "labels", "loss_mask", "position_ids"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(first.hidden_states, make_inputs(of(sequences=[5, 4], seed=1), CPU).hidden_states)


def test_large_tensors_repeat_a_block_and_no_two_rows_of_the_head_are_alike():
    weight = make_inputs(of(sequences=[2], hidden_size=1024, vocab_size=2050), CPU).head_weight
    flat = weight.flatten()
    assert flat.numel() > 2 * _BLOCK - 1024
    assert torch.equal(flat[_BLOCK : 2 * _BLOCK], flat[: flat.numel() - _BLOCK][:_BLOCK])
    assert len(np.unique(weight.float().numpy(), axis=0)) == 2050


def test_the_small_size_keeps_the_tokens_and_shrinks_the_model():
    workload = workloads.load("deepseek-v3", ["sequences=[8, 5]"])
    small = workload.small()
    assert (small.hidden_size, small.vocab_size) == (64, 512)
    assert small.hidden_size % small.num_attention_heads == 0
    shrunk = {
        "hidden_size",
        "vocab_size",
        "num_layers",
        "num_attention_heads",
        "ffn_hidden_size",
        "num_microbatches",
    }
    before, after = workload.describe(), small.describe()
    assert {key for key in before if before[key] != after[key]} == shrunk
    del after["lengths"]
    assert Workload.from_dict("deepseek-v3", after) == small


def test_a_workload_that_is_small_already_stays_as_it_is():
    tiny = of(sequences=[4], ffn_hidden_size=16, num_attention_heads=1, num_microbatches=2)
    assert tiny.small() == tiny
