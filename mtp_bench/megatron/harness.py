"""What surrounds the loss in a real job: the host reads of a micro-batch in Megatron's and in verl's training loops.

``bare`` has none. ``megatron`` asks what the loss function of Megatron's ``pretrain_gpt.py`` asks by default: is the
loss NaN, is it infinite. ``verl`` reads the layout of the batch before the model and scalars after it, as often as a
micro-batch of verl 0.9 does (``models/mcore/util.py``, ``trainer/ppo/core_algos.py`` and
``workers/engine/megatron/transformer_impl.py`` there).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from mtp_bench.megatron.state import quiet


class Bare:
    """No host read of its own."""

    def before_model(self) -> None:
        """Run before the model, once a micro-batch."""

    def after_logits(self) -> None:
        """Run when the model has returned its losses, before they are summed up."""

    def after_loss(self, losses: Tensor, loss_mask: Tensor, loss: Tensor) -> None:
        """Run on the per-token ``losses`` and ``loss_mask`` [B * S] and the sum ``loss`` (0-d)."""


class Megatron(Bare):
    """One branch on NaN and one on Inf, through Megatron's own rerun state machine."""

    def after_loss(self, losses: Tensor, loss_mask: Tensor, loss: Tensor) -> None:
        """Raise RuntimeError where the main loss is not finite."""
        from megatron.core import rerun_state_machine as rerun

        if rerun._GLOBAL_RERUN_STATE_MACHINE is None:
            with quiet():
                rerun.initialize_rerun_state_machine(mode=rerun.RerunMode.DISABLED)
        machine = rerun.get_rerun_state_machine()
        result = readable(loss.detach())
        machine.validate_result(result=result, rejection_func=torch.isnan, message="the main loss is NaN")
        machine.validate_result(result=result, rejection_func=torch.isinf, message="the main loss is infinite")


class Verl(Bare):
    """Lists of lengths for the packing, a check of the temperature, three metrics, and the loss."""

    def __init__(self, lengths: Sequence[int], starts: Sequence[int], device: torch.device) -> None:
        self.lengths = torch.tensor(lengths, dtype=torch.int32).to(device)
        self.padded_lengths = torch.tensor([end - start for start, end in pairwise(starts)], dtype=torch.int32).to(
            device
        )
        self.starts = torch.tensor(starts, dtype=torch.int32).to(device)
        self.temperature = torch.ones(len(lengths)).to(device)

    def before_model(self) -> None:
        """Read the layout of the batch."""
        self.lengths.tolist()
        self.padded_lengths.tolist()
        self.starts.tolist()

    def after_logits(self) -> None:
        """Check the temperature by which the logits are divided."""
        if not torch.all(self.temperature > 0).item():
            raise ValueError("the temperature must be positive")

    def after_loss(self, losses: Tensor, loss_mask: Tensor, loss: Tensor) -> None:
        """Read three metrics and the loss."""
        num_tokens = torch.clamp(loss_mask.sum(), min=1)
        losses = losses.detach()
        clipped = torch.sum((losses > 1.0) * loss_mask) / num_tokens
        clipped_low = torch.sum((losses < 0.0) * loss_mask) / num_tokens
        divergence = torch.sum(losses * loss_mask) / num_tokens
        for metric in (clipped, clipped_low, divergence):
            readable(metric).item()
        readable(loss.detach()).item()


def readable(scalar: Tensor) -> Tensor:
    """``scalar``, or a 0 in its place where a simulated device holds no value for it: reading still waits."""
    if scalar.device.type == "sim":
        from mtp_bench.devices.sim import is_shape_only

        if is_shape_only(scalar):
            return torch.zeros(scalar.shape, dtype=scalar.dtype, device=scalar.device)
    return scalar


def make_harness(name: str, lengths: Sequence[int], starts: Sequence[int], device: torch.device) -> Bare:
    """Make the harness ``name`` for sequences of ``lengths`` tokens; ``starts`` has one more entry, the end."""
    if name == "verl":
        return Verl(lengths, starts, device)
    return {"bare": Bare, "megatron": Megatron}[name]()
