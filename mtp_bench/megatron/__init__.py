"""All contact with megatron-core, 0.14 to 0.19: versions, process-wide state, the model's parts, what it logs.

Importing this package imports neither torch nor Megatron; its functions do where they need to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mtp_bench.megatron.depths import depth_ranges
from mtp_bench.megatron.state import HostPlace, isolated_state
from mtp_bench.megatron.tracker import (
    acceptance_counts,
    clear_logged_losses,
    logged_losses,
    reduce_logged_losses,
    save_mtp_loss,
)
from mtp_bench.megatron.versions import has_packed_roll, has_process_mtp_loss, packed_unsupported, require, version

if TYPE_CHECKING:
    from mtp_bench.megatron.head import LossHead, make_packed_seq_params, transformer_config

__all__ = [
    "HostPlace",
    "LossHead",
    "acceptance_counts",
    "clear_logged_losses",
    "depth_ranges",
    "has_packed_roll",
    "has_process_mtp_loss",
    "isolated_state",
    "logged_losses",
    "make_packed_seq_params",
    "packed_unsupported",
    "reduce_logged_losses",
    "require",
    "save_mtp_loss",
    "transformer_config",
    "version",
]

_LAZY = dict.fromkeys(("LossHead", "make_packed_seq_params", "transformer_config"), "mtp_bench.megatron.head")


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
