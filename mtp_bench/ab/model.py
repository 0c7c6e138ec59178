"""Finding the GPT model in what a training script has: wrapped, in a list of chunks, inside a multimodal model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtp_bench.errors import InputError
from mtp_bench.megatron import versions

# Where a wrapper (DDP, Megatron-FSDP, Float16Module) and a multimodal model keep what they hold.
_INNER = ("module", "language_model")


def layers_of(chunk: Any) -> list[Any]:
    """A model chunk and what it wraps, from the outermost to the GPTModel. InputError where there is none."""
    from megatron.core.models.gpt.gpt_model import GPTModel

    found = [chunk]
    while not isinstance(found[-1], GPTModel):
        inner = next((getattr(found[-1], name) for name in _INNER if hasattr(found[-1], name)), None)
        if inner is None:
            raise InputError(
                f"model is a {type(chunk).__name__} that holds no GPTModel of megatron-core; expected a GPTModel, what "
                "wraps one, or a list of these"
            )
        found.append(inner)
    return found


def last_gpt_model(modules: Sequence[Any]) -> Any:
    """The GPTModel with the last stage of the pipeline, else the last one. InputError where it has no MTP loss."""
    from megatron.core.models.gpt.gpt_model import GPTModel

    models = [module for module in modules if isinstance(module, GPTModel)]
    if not models:
        raise InputError("model is an empty list; expected the model's chunks")
    model = next((model for model in models if model.post_process), models[-1])
    if not model.config.mtp_num_layers:
        raise InputError(
            "the model has no MTP loss (mtp_num_layers is not set): build it with mtp_num_layers=1 or more"
        )
    with_block = versions.has_packed_roll() or model.mtp_process  # up to 0.15 the loss runs where the block is
    if model.post_process and not with_block:
        raise InputError("the model's last stage has no MTP block: build it with an mtp_block_spec")
    return model
