"""Packed attention equals attention over each sequence alone, and reads nothing on the host."""

from __future__ import annotations

import functools
import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mtp_bench.megatron.attention import PackedAttention
from tests.torchrun import torchrun
from tests.variants.recording import Operations

CP_SCRIPT = Path(__file__).with_name("cp_attention.py")
CP_CASES = [
    ([0, 16], "float64"),
    ([0, 8, 8, 24, 64], "float64"),  # 8 tokens on 4 ranks: chunks of one token; an empty sequence
    ([0, 8, 8, 24, 64], "float32"),
    ([0, 24, 40], "bfloat16"),
]
TOLERANCE = {"float64": 1e-14, "float32": 1e-6, "bfloat16": 2e-2}


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


@functools.cache
def ranks(on_sim, number):
    return json.loads(torchrun(number, CP_SCRIPT, json.dumps([on_sim, CP_CASES])).splitlines()[-1])


@pytest.mark.parametrize(("on_sim", "number"), [(True, 4), (False, 2)])
@pytest.mark.parametrize("case", range(len(CP_CASES)))
def test_ranks_that_share_a_row_compute_and_learn_what_one_rank_does_without_a_sync(case, on_sim, number):
    """Outputs and gradients of query, key and value."""
    tolerance = TOLERANCE[CP_CASES[case][1]]
    errors = [rank[case] for rank in ranks(on_sim, number)]
    assert len(errors) == number
    assert max(errors) < tolerance
