"""Rows of tokens as a whole where every context-parallel rank holds a part of them, gathered once for all depths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mtp_bench.variants.boundary_roll import Boundaries, find_boundaries


@dataclass(frozen=True)
class WholeRows:
    """Rows [B, W] of W = cp_size * S tokens in their natural order, of which this rank holds [B, S].

    Positions of padding and those after the last sequence are in no sequence.
    """

    boundaries: Boundaries
    in_sequence: Tensor | None  # [W], bool; None where every position is
    home: Tensor | None  # [cp_size, S], the positions in the whole of every rank's tokens; None for one rank
    cp_group: Any

    def gather(self, own: Tensor) -> Tensor:
        """The whole [B, W] of every rank's ``own`` [B, S]; that itself for one rank."""
        if self.home is None:
            return own
        cp_size = len(self.home)
        parts = torch.empty((cp_size, *own.shape), dtype=own.dtype, device=own.device)
        dist.all_gather_into_tensor(parts, own.unsqueeze(0).contiguous(), group=self.cp_group)
        whole = torch.zeros((own.shape[0], self.home.numel()), dtype=own.dtype, device=own.device)
        return whole.index_copy_(-1, self.home.flatten(), parts.transpose(0, 1).flatten(1))

    def own(self, whole: Tensor) -> Tensor:
        """This rank's part [B, S] of ``whole`` [B, W]."""
        return whole if self.home is None else whole.index_select(-1, self.home[dist.get_rank(self.cp_group)])

    def shift(self, whole: Tensor) -> Tensor:
        """Every sequence of ``whole`` [B, W] one token to the left, 0 at its end."""
        return self.boundaries.roll(whole)[0]


def find_whole_rows(own_length: int, packed_seq_params: Any, cp_group: Any, device: torch.device) -> WholeRows:
    """Find on the device how rows of which this rank holds ``own_length`` S tokens lie in the whole.

    Packed sequences lie between the bounds in ``cu_seqlens_q_padded``, and their tokens end after the lengths that
    ``cu_seqlens_q`` has (Transformer Engine's convention); without the former they fill the row. Ranks share each
    sequence, or each padded row, as Megatron does (zigzag: of 2 * cp_size chunks rank r holds chunks r and
    2 * cp_size - 1 - r), or the row as it is where ``packed_seq_params.cp_partition_mode`` is ``"contiguous"``.
    """
    cp_size = 1 if cp_group is None else cp_group.size()
    whole_length = cp_size * own_length
    if packed_seq_params is None:
        bounds = torch.arange(2, device=device) * whole_length
        in_sequence = None
    else:
        lengths = packed_seq_params.cu_seqlens_q.diff()
        padded = packed_seq_params.cu_seqlens_q_padded
        bounds = packed_seq_params.cu_seqlens_q if padded is None else padded
        in_sequence = _in_sequence(bounds, lengths, whole_length)
    if cp_size == 1:
        home = None
    elif getattr(packed_seq_params, "cp_partition_mode", "zigzag") == "contiguous":
        home = torch.arange(whole_length, device=device).view(cp_size, own_length)
    else:
        home = _zigzag(bounds, own_length, cp_size)
    boundaries = find_boundaries(bounds, whole_length)
    assert isinstance(boundaries, Boundaries)
    return WholeRows(boundaries, in_sequence, home, cp_group)


def _in_sequence(bounds: Tensor, lengths: Tensor, whole_length: int) -> Tensor:
    """[W]: whether a position is one of the ``lengths`` [N] tokens of the sequence that begins at its bound [N + 1]."""
    position = torch.arange(whole_length, dtype=bounds.dtype, device=bounds.device)
    sequence = torch.bucketize(position, bounds, right=True) - 1
    inside = (sequence >= 0) & (sequence < lengths.shape[0])
    sequence = sequence.clamp(0, lengths.shape[0] - 1)
    return inside & (position - bounds[sequence] < lengths[sequence])


def _zigzag(bounds: Tensor, own_length: int, cp_size: int) -> Tensor:
    """[cp_size, S]: where every rank's tokens are in the whole, Megatron's layout.

    A rank's part of a sequence lies between the bounds over ``cp_size``, its first chunk first; where it cannot be
    halved that is the longer one. What is before the first and after the last bound counts as sequences too.
    """
    own_bounds = torch.nn.functional.pad(bounds // cp_size, (1, 0)).clamp(max=own_length)
    own_bounds = torch.nn.functional.pad(own_bounds, (0, 1), value=own_length)
    position = torch.arange(own_length, dtype=bounds.dtype, device=bounds.device)
    sequence = torch.bucketize(position, own_bounds, right=True) - 1
    begin, end = own_bounds[sequence], own_bounds[sequence + 1]
    second = (end - begin) // 2
    first = end - begin - second
    offset = position - begin
    rank = torch.arange(cp_size, dtype=bounds.dtype, device=bounds.device).unsqueeze(-1)
    in_first = rank * first + offset
    in_second = cp_size * first + (cp_size - 1 - rank) * second + offset - first
    return (cp_size * begin + torch.where(offset < first, in_first, in_second)).long()
