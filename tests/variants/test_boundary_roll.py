"""A packed roll in a constant number of operations equals megatron-core's loop over sequences, whatever it is given."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mtp_bench.variants.boundary_roll import packed_roll
from mtp_bench.variants.host_lens import host_lens_roll

roll_tensor = pytest.importorskip("megatron.core.transformer.multi_token_prediction").roll_tensor

DTYPES = (torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.bool)


def packed(bounds, dtype=torch.int32):
    return SimpleNamespace(cu_seqlens_q=torch.tensor(bounds, dtype=dtype), cu_seqlens_q_host=list(bounds))


@st.composite
def rows(draw):
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    before = draw(st.integers(0, 2))
    after = draw(st.integers(-3, 3))  # negative: bounds that lie beyond the row
    bounds = [before]
    for length in lengths:
        bounds.append(bounds[-1] + length)
    row_length = max(1, bounds[-1] + after)
    leading = draw(st.sampled_from([(), (1,), (2,), (2, 3)]))
    dtype = draw(st.sampled_from(DTYPES))
    seed = draw(st.integers(0, 2**16))
    values = torch.randint(-9, 10, (*leading, row_length), generator=torch.Generator().manual_seed(seed)).to(dtype)
    if dtype.is_floating_point and draw(st.booleans()):
        values[..., draw(st.integers(0, row_length - 1))] = draw(st.sampled_from([float("nan"), float("inf")]))
    return values, bounds, draw(st.sampled_from([torch.int32, torch.int64]))


@settings(max_examples=300, deadline=None)
@given(rows())
@example((torch.arange(6), [0, 4], torch.int32))  # a tail that belongs to no sequence
@example((torch.arange(6), [0, 0, 6], torch.int32))  # an empty first sequence
@example((torch.arange(6), [0, 6, 6], torch.int32))  # an empty last sequence
@example((torch.arange(3), [0, 1, 2, 3], torch.int64))  # single tokens
@example((torch.arange(4), [0, 3, 9], torch.int32))  # bounds beyond the row
@pytest.mark.parametrize("roll", [packed_roll, host_lens_roll])
def test_equals_the_loop(roll, row):
    values, bounds, dtype = row
    before = values.clone()
    params = packed(bounds, dtype)
    expected, expected_sum = roll_tensor(values, packed_seq_params=params)
    rolled, total = roll(values, packed_seq_params=params)
    assert rolled.dtype == expected.dtype
    assert total.dtype == expected_sum.dtype
    torch.testing.assert_close(rolled, expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(total, expected_sum, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(values, before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("roll", [packed_roll, host_lens_roll])
def test_without_packing_it_is_megatrons(roll):
    values = torch.arange(8).view(2, 4)
    rolled, total = roll(values, shifts=-1, dims=-1, cp_group=None, packed_seq_params=None)
    assert rolled.tolist() == [[1, 2, 3, 0], [5, 6, 7, 0]]
    assert total.item() == 24


@pytest.mark.parametrize("roll", [packed_roll, host_lens_roll])
def test_nothing_rolls_to_nothing(roll):
    assert roll(None, packed_seq_params=packed([0, 4])) == (None, None)
