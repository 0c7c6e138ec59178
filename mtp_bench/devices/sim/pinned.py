"""Which host memory counts as page-locked: without CUDA nothing is, so it is only noted."""

from __future__ import annotations

import torch

from mtp_bench.devices.sim.tensor import SimTensor


def mark_pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Take the host memory of ``tensor`` for page-locked from now on; views share the mark."""
    tensor.untyped_storage()._sim_pinned = True  # type: ignore[attr-defined]
    return tensor


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether the host memory of ``tensor`` is taken for page-locked."""
    return not isinstance(tensor, SimTensor) and getattr(tensor.untyped_storage(), "_sim_pinned", False)
