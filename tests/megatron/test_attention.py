"""Packed attention equals attention over each sequence alone, and reads nothing on the host."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from mtp_bench.megatron.attention import PackedAttention
from tests.variants.recording import Operations


@pytest.mark.parametrize("bounds", [[0, 7], [0, 1, 2, 7], [0, 3, 3, 7], [0, 4]])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_equals_attention_sequence_by_sequence(bounds, dtype):
    torch.manual_seed(0)
    query, key, value = (torch.randn(7, 2, 8, dtype=torch.float64).to(dtype).requires_grad_() for _ in range(3))
    params = SimpleNamespace(cu_seqlens_q=torch.tensor(bounds), cu_seqlens_q_padded=None)
    operations = Operations()
    with operations:
        mixed = PackedAttention(SimpleNamespace(kv_channels=8))(query, key, value, None, packed_seq_params=params)
    assert "aten._local_scalar_dense.default" not in {name for name, *_ in operations.seen}
    assert mixed.dtype is dtype
    for start, end in pairwise(bounds):
        alone = (tensor[start:end].double().transpose(0, 1) for tensor in (query, key, value))
        expected = torch.nn.functional.scaled_dot_product_attention(*alone, is_causal=True).transpose(0, 1)
        tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}[dtype]
        torch.testing.assert_close(mixed[start:end].double(), expected, rtol=tolerance, atol=tolerance)


def test_padded_bounds_are_the_ones_that_count():
    params = SimpleNamespace(cu_seqlens_q=torch.tensor([0, 2, 4]), cu_seqlens_q_padded=torch.tensor([0, 3, 6]))
    value = torch.eye(6).view(6, 1, 6)
    attention = PackedAttention(SimpleNamespace(kv_channels=6))
    seen = attention(torch.zeros(6, 1, 6), torch.zeros(6, 1, 6), value, packed_seq_params=params)[:, 0] > 0
    assert seen.int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1, 1],
    ]
