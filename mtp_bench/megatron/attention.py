"""A core attention for packed sequences on any device: Megatron's own refuses them, Transformer Engine needs CUDA."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


class PackedAttention(torch.nn.Module):
    """Scaled dot product with a block-diagonal causal mask, in place of ``DotProductAttention`` in a layer spec.

    The mask is built on the device: the host does not read ``cu_seqlens``.
    """

    def __init__(self, config: Any, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        self.scale = softmax_scale or 1 / math.sqrt(config.kv_channels)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, packed_seq_params: Any, **__: Any) -> Tensor:
        """Attend within each sequence; all are [T, heads, channels], T the tokens of the row."""
        query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
        scores = torch.matmul(query, key.transpose(1, 2)) * self.scale
        scores = scores.masked_fill(_hidden(packed_seq_params, scores.shape[-1]), -math.inf)
        # As Megatron's does with attention_softmax_in_fp32.
        weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        return torch.matmul(weights.to(value.dtype), value).transpose(0, 1)


def _hidden(packed_seq_params: Any, tokens: int) -> Tensor:
    """[T, T] bool: which keys (columns) a query (row) must not see: later ones, and those of other sequences."""
    cu_seqlens = packed_seq_params.cu_seqlens_q_padded
    if cu_seqlens is None:
        cu_seqlens = packed_seq_params.cu_seqlens_q
    position = torch.arange(tokens, dtype=cu_seqlens.dtype, device=cu_seqlens.device)
    sequence = torch.bucketize(position, cu_seqlens, right=True)
    return (position.unsqueeze(0) > position.unsqueeze(1)) | (sequence.unsqueeze(0) != sequence.unsqueeze(1))
