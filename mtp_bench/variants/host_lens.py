"""``host_lens``: as ``sync_free``, packed rolls by Megatron's loop with bounds that the host already has.

The control: what it saves over ``sync_free`` is what syncs cost; what ``boundary_roll`` saves over it, launches.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

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
    """Megatron-core's roll, with the bounds of packed sequences from ``packed_seq_params.cu_seqlens_q_host``.

    Its operations are those of Megatron's loop, but for the slicing with bounds that live on the device.
    """
    if tensor is None:
        return None, None
    if packed_seq_params is None:
        return megatron_roll(tensor, shifts=shifts, dims=dims, cp_group=cp_group)
    bounds = getattr(packed_seq_params, "cu_seqlens_q_host", None)
    if bounds is None:
        raise InputError("host_lens: packed_seq_params.cu_seqlens_q_host is missing; expected a list of the bounds")
    cp_size = cp_group.size() if cp_group is not None else 1
    if cp_size > 1:
        # Up to 0.16 the loop fails on a sequence of which a rank holds no token: leave those out.
        bounds = [bound * cp_size for bound in dict.fromkeys(bound // cp_size for bound in bounds)]
    on_host = SimpleNamespace(cu_seqlens_q=bounds)
    return megatron_roll(tensor, shifts=shifts, dims=dims, cp_group=cp_group, packed_seq_params=on_host)
