"""How much runs around a variant: ``loss`` (the losses alone) or ``step`` (a real Megatron GPT model)."""

from mtp_bench.scopes.loss import LossStep, VariantError

__all__ = ["SCOPES", "LossStep", "VariantError"]

SCOPES = ("loss", "step")
