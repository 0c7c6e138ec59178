"""Why a variant cannot be asked something: arguments that it does not take, and what its Megatron has not got."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtp_bench.megatron import versions

if TYPE_CHECKING:
    from mtp_bench.conformance.model import Inputs
    from mtp_bench.variants import Variant


def supported(variant: Variant, inputs: Inputs) -> str | None:
    """Why ``inputs`` mean nothing to ``variant`` here; None where they can be run."""
    if inputs.packed and variant.needs_packed_roll and not versions.has_packed_roll():
        return versions.packed_unsupported()
    return supported_without_packed_roll(variant, inputs)


def supported_without_packed_roll(variant: Variant, inputs: Inputs) -> str | None:
    """As :func:`supported`, for a case that shows what happens where Megatron's roll knows no packed sequences.

    Those of ours that pass packed sequences on to that roll cannot run it even so.
    """
    if variant.refusal:
        return variant.refusal
    if inputs.packed and not versions.has_packed_roll() and variant.needs_packed_roll and variant.name != "megatron":
        return versions.packed_unsupported()
    for name in _needed(inputs):
        if name not in variant.accepts:
            return f"it takes no {name}"
    if inputs.logits_factor is not None and variant.path and "_postprocess" in variant.path:
        return f"{variant.path} scales no logits"
    return _missing_key(inputs)


def _needed(inputs: Inputs) -> list[str]:
    """Arguments of ``process_mtp_loss`` without which the inputs do not reach the variant."""
    needed = {
        "packed_seq_params": inputs.packed,
        "scale_logits_fn": inputs.logits_factor is not None,
        "output_weight": inputs.head == "tied",
        "is_training": not inputs.training,
    }
    return [name for name, is_needed in needed.items() if is_needed]


def _missing_key(inputs: Inputs) -> str | None:
    if not inputs.config:
        return None
    from megatron.core.transformer.transformer_config import TransformerConfig

    missing = [name for name in inputs.config if name not in TransformerConfig.__dataclass_fields__]
    return f"megatron-core {versions.version()} has no {', '.join(missing)}" if missing else None
