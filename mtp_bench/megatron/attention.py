"""A core attention for packed sequences on any device: Megatron's own refuses them, Transformer Engine needs CUDA."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class PackedAttention(torch.nn.Module):
    """Scaled dot product with a block-diagonal causal mask, in place of ``DotProductAttention`` in a layer spec.

    Under context parallelism every rank gathers the keys and values of all, which is right and slow. The mask is built
    on the device: the host does not read ``cu_seqlens``.
    """

    def __init__(self, config: Any, softmax_scale: float | None = None, pg_collection: Any = None, **_: Any) -> None:
        super().__init__()
        self.scale = softmax_scale or 1 / math.sqrt(config.kv_channels)
        self.cp_group = getattr(pg_collection, "cp", None)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, packed_seq_params: Any, **__: Any) -> Tensor:
        """Attend within each sequence; all are [T, heads, channels], T the tokens of the row that this rank holds."""
        ranks, rank = (1, 0) if self.cp_group is None else (self.cp_group.size(), self.cp_group.rank())
        sequence, position = _placed(packed_seq_params, query.shape[0], ranks)
        if ranks > 1:
            key, value = _gathered(key, value, self.cp_group)
        query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
        scores = torch.matmul(query, key.transpose(1, 2)) * self.scale
        later = position.flatten().unsqueeze(0) > position[rank].unsqueeze(1)
        of_another = sequence.repeat(ranks).unsqueeze(0) != sequence.unsqueeze(1)
        scores = scores.masked_fill(later | of_another, -math.inf)
        # As Megatron's does with attention_softmax_in_fp32.
        weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        return torch.matmul(weights.to(value.dtype), value).transpose(0, 1)


def _placed(packed_seq_params: Any, tokens: int, ranks: int) -> tuple[Tensor, Tensor]:
    """Which sequence each token of a row is in, [T], the same on all ranks; and its place there, [ranks, T].

    Rank r holds chunks r and 2 * ranks - 1 - r of a sequence, one behind the other. Tokens before the first and after
    the last bound count as sequences of their own.
    """
    cu_seqlens = packed_seq_params.cu_seqlens_q_padded
    if cu_seqlens is None:
        cu_seqlens = packed_seq_params.cu_seqlens_q
    bounds = cu_seqlens // ranks
    place = torch.arange(tokens, dtype=bounds.dtype, device=bounds.device)
    sequence = torch.bucketize(place, bounds, right=True)
    if ranks == 1:
        return sequence, place.unsqueeze(0)
    rank = torch.arange(ranks, dtype=bounds.dtype, device=bounds.device).unsqueeze(1)
    index = (sequence - 1).clamp(0, bounds.shape[0] - 2)
    begin, half = bounds[:-1][index], ((bounds[1:] - bounds[:-1]) // 2)[index]
    in_second = place >= begin + half
    chunk = torch.where(in_second, 2 * ranks - 1 - rank, rank)
    position = chunk * half + place - begin - half * in_second
    in_none = (sequence == 0) | (sequence == bounds.shape[0])
    return sequence, torch.where(in_none, rank * tokens + place, position)


def _gathered(key: Tensor, value: Tensor, group: Any) -> tuple[Tensor, Tensor]:
    """Keys and values of all ranks, one rank behind the other, by one message."""
    gathered = _Gather.apply(torch.stack((key, value)), group)  # type: ignore[no-untyped-call]
    of_rank: Tensor = gathered.unflatten(0, (-1, 2))
    keys, values = of_rank.transpose(0, 1).flatten(1, 2)
    return keys, values


class _Gather(torch.autograd.Function):
    """Tensors of all ranks along the first dimension; each rank's gradient is the sum of what all ranks ask of it."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        gathered = tensor.new_empty((group.size() * tensor.shape[0], *tensor.shape[1:]))
        dist.all_gather_into_tensor(gathered, tensor.contiguous(), group=group)
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        summed = gradient.new_empty((gradient.shape[0] // ctx.group.size(), *gradient.shape[1:]))
        dist.reduce_scatter_tensor(summed, gradient.contiguous(), group=ctx.group)
        return summed, None
