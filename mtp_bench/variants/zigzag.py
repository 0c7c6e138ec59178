"""Packed rolls under context parallelism: one exchange with each neighbour, whatever the number of sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class ZigzagBoundaries:
    """What a rank holds of the sequences of a packed row, and where each position's next value comes from.

    Megatron's layout: of each sequence rank r holds chunks r and 2 * cp_size - 1 - r, one behind the other. The value
    after a rank's first chunk begins the next rank's first chunk (on the last rank its own second one), that after the
    second chunk the previous rank's second one (on rank 0 the sequence is over).
    """

    first: Tensor  # [N], where each sequence's first chunk begins in the row
    second: Tensor  # [N], its second
    second_is_empty: Tensor  # [N], bool
    source: Tensor  # [S], index into the row, then N values after the first chunks, then N after the second ones
    cp_group: Any

    def roll(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Shift every sequence of ``tensor`` [..., S] one to the left, 0 at its end; return the result and its sum.

        The sum is this rank's.
        """
        after_first, after_second = self.exchange(tensor)
        rolled = torch.cat((tensor, after_first, after_second), dim=-1).index_select(-1, self.source)
        return rolled, rolled.sum()

    def exchange(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """The values that follow this rank's first and second chunks, [..., N] each."""
        ranks = dist.get_process_group_ranks(self.cp_group)
        rank = ranks.index(dist.get_rank())
        first, second = (tensor.index_select(-1, index) for index in (self.first, self.second))
        messages = []
        if rank > 0:
            after_second = torch.empty_like(second)
            messages.append(dist.P2POp(dist.isend, first, ranks[rank - 1], self.cp_group))
            messages.append(dist.P2POp(dist.irecv, after_second, ranks[rank - 1], self.cp_group))
        else:
            after_second = torch.zeros_like(second)
        if rank < len(ranks) - 1:
            after_first = torch.empty_like(first)
            messages.append(dist.P2POp(dist.irecv, after_first, ranks[rank + 1], self.cp_group))
            messages.append(dist.P2POp(dist.isend, second, ranks[rank + 1], self.cp_group))
        else:
            after_first = second.masked_fill(self.second_is_empty, 0)
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        return after_first, after_second


def find_zigzag_boundaries(cu_seqlens: Tensor, row_length: int, cp_group: Any) -> ZigzagBoundaries:
    """Find where the chunks of the sequences lie in a rank's row, on the device.

    ``cu_seqlens`` [N + 1] counts the tokens of all ranks, ``row_length`` S those of this one. As in megatron-core's
    loop, a rank's part of a sequence lies between ``cu_seqlens // cp_size`` and its first chunk is the longer one where
    it cannot be halved; positions before the first and after the last bound keep their values. Sequences without a
    token on this rank are skipped, as from 0.17 on. With one token a rank (Megatron raises an error) rank r holds
    token r.
    """
    bounds = (cu_seqlens // cp_group.size()).clamp(max=row_length)
    begin, end = bounds[:-1], bounds[1:]
    middle = end - (end - begin) // 2
    chunks = torch.stack((begin, middle), dim=-1).flatten()  # where chunks begin: first, second, first, ...
    position = torch.arange(row_length, dtype=bounds.dtype, device=bounds.device)
    chunk = torch.bucketize(position, torch.cat((chunks, bounds[-1:])), right=True) - 1  # -1 or 2N: in no sequence
    following = torch.nn.functional.pad(chunk[1:], (0, 1), value=-1)
    inside = (chunk >= 0) & (chunk < chunks.shape[0])
    received = row_length + chunk % 2 * begin.shape[0] + chunk // 2
    source = torch.where(inside & (chunk != following), received, position + inside)
    in_row = {"min": 0, "max": row_length - 1}  # an empty chunk may begin behind the row; its value goes nowhere
    return ZigzagBoundaries(begin.clamp(**in_row), middle.clamp(**in_row), middle == end, source, cp_group)
