"""``megatron``: the MTP loss of the megatron-core that is installed, whichever function holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mtp_bench.megatron import has_process_mtp_loss
from mtp_bench.variants.borrowed import run_postprocess


def load_loss() -> tuple[Callable[..., Tensor], str]:
    """Return Megatron's loss, and the name of the function that holds it."""
    if not has_process_mtp_loss():
        return _from_postprocess, "GPTModel._postprocess"
    from megatron.core.transformer.multi_token_prediction import process_mtp_loss

    return process_mtp_loss, "process_mtp_loss"


def _from_postprocess(**arguments: Any) -> Tensor:
    """Return the main model's hidden states [S, B, H], with the MTP losses attached to their backward pass."""
    from megatron.core.models.gpt.gpt_model import GPTModel

    return run_postprocess(GPTModel._postprocess, arguments)
