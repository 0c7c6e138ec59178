"""``boundary_roll``: as ``sync_free``, packed rolls in a constant number of operations and without a host read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mtp_bench.variants.common import megatron_roll
from mtp_bench.variants.sync_free import sync_free
from mtp_bench.variants.zigzag import ZigzagBoundaries, find_zigzag_boundaries


def boundary_roll(*, packed_seq_params: Any = None, labels: Tensor, cp_group: Any = None, **arguments: Any) -> Tensor:
    """Return the main model's hidden states [S, B, H], with the MTP losses attached to their backward pass."""
    roll = megatron_roll
    if packed_seq_params is not None:
        # All depths roll within the same boundaries, so these are found once.
        boundaries = find_boundaries(packed_seq_params.cu_seqlens_q, labels.shape[-1], cp_group)

        def roll(tensor: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
            return boundaries.roll(tensor)

    return sync_free(packed_seq_params=packed_seq_params, labels=labels, cp_group=cp_group, **arguments, roll=roll)


def packed_roll(
    tensor: Tensor | None, shifts: int = -1, dims: int = -1, cp_group: Any = None, packed_seq_params: Any = None
) -> tuple[Any, Any]:
    """Stand in for megatron-core's ``roll_tensor`` (one token to the left along the last dimension, where packed).

    Padded rows are Megatron's: its own roll is constant there, with one exchange with each neighbour.
    """
    if tensor is None:
        return None, None
    if packed_seq_params is None:
        return megatron_roll(tensor, shifts=shifts, dims=dims, cp_group=cp_group)
    return find_boundaries(packed_seq_params.cu_seqlens_q, tensor.shape[-1], cp_group).roll(tensor)


@dataclass(frozen=True)
class Boundaries:
    """Where each position of a row [S] gets its next value from, and whether its sequence ends there."""

    source: Tensor  # [S], integer
    ends: Tensor  # [S], bool

    def roll(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Shift every sequence of ``tensor`` [..., S] one to the left, 0 at its end; return the result and its sum."""
        rolled = tensor.index_select(-1, self.source).masked_fill_(self.ends, 0)
        return rolled, rolled.sum()


def find_boundaries(cu_seqlens: Tensor, row_length: int, cp_group: Any = None) -> Boundaries | ZigzagBoundaries:
    """Find the boundaries of the sequences in a row from their cumulative lengths [B + 1], on the device.

    With a ``cp_group`` of several ranks the row is one rank's share in Megatron's zigzag layout.

    Positions before the first and after the last bound keep their values, as in megatron-core's loop; empty sequences
    and bounds beyond the row need no case of their own.
    """
    if cp_group is not None and cp_group.size() > 1:
        return find_zigzag_boundaries(cu_seqlens, row_length, cp_group)
    position = torch.arange(row_length, dtype=cu_seqlens.dtype, device=cu_seqlens.device)
    # How many bounds lie at or before a position: equal for two positions exactly where no bound is between them.
    sequence = torch.bucketize(position, cu_seqlens, right=True)
    following = torch.nn.functional.pad(sequence[1:], (0, 1), value=-1)
    inside = (sequence > 0) & (sequence < cu_seqlens.shape[0])
    ends = inside & (sequence != following)
    return Boundaries(source=position + (inside & ~ends), ends=ends)
