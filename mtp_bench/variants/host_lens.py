"""``host_lens``: as ``sync_free``, packed rolls by Megatron's loop with bounds that the host already has.

The control: what it saves over ``sync_free`` is what syncs cost; what ``boundary_roll`` saves over it, launches.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from mtp_bench.errors import InputError
from mtp_bench.variants.common import megatron_roll
from mtp_bench.variants.sync_free import sync_free


def host_lens(**arguments: Any) -> Tensor:
    """Return the main model's hidden states [S, B, H], with the MTP losses attached to their backward pass."""
    return sync_free(**arguments, roll=host_lens_roll)


def host_lens_roll(
    tensor: Tensor | None, shifts: int = -1, dims: int = -1, cp_group: Any = None, packed_seq_params: Any = None
) -> tuple[Any, Any]:
    """Roll each packed sequence on its own; its bounds come from ``packed_seq_params.cu_seqlens_q_host``.

    The operations are those of megatron-core's loop, but for the slicing with bounds that live on the device.
    """
    if tensor is None or packed_seq_params is None:
        return (
            megatron_roll(tensor, shifts=shifts, dims=dims, cp_group=cp_group) if tensor is not None else (None, None)
        )
    bounds = getattr(packed_seq_params, "cu_seqlens_q_host", None)
    if bounds is None:
        raise InputError("host_lens: packed_seq_params.cu_seqlens_q_host is missing; expected a list of the bounds")
    rolled = tensor.clone()
    for start, end in pairwise(bounds):
        shifted = torch.roll(tensor[..., start:end], shifts=shifts, dims=dims)
        shifted[..., shifts:] = 0
        rolled[..., start:end] = shifted
    return rolled, rolled.sum()
