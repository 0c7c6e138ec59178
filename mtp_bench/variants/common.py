"""What the MTP losses of verl and Megatron have in common: shift targets by one more token, predict, mask, scale.

Their operations come in this order: labels cloned, hidden states split; then for each depth labels rolled, mask rolled,
logits from the output layer with its parameters detached (the MTP loss does not train the head), cross entropy, mask,
logged loss, scaling. What a variant does differently is in its own file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mtp_bench.megatron import acceptance_counts, save_mtp_loss

Roll = Callable[..., tuple[Tensor, Tensor]]
"""Signature of megatron-core's ``roll_tensor``; returns the rolled tensor and its sum."""


class Config(Protocol):
    """What is read of Megatron's ``TransformerConfig``."""

    mtp_num_layers: int
    mtp_loss_scaling_factor: float
    calculate_per_token_loss: bool


@dataclass(frozen=True)
class _Surroundings:
    head_trained: bool = False
    acceptance: bool = False


_around = _Surroundings()


@contextmanager
def surroundings(*, head_trained: bool = False, acceptance: bool = False) -> Iterator[None]:
    """Inside, the variants here do what the job's own loss does beside the loss.

    ``head_trained``: the output layer is called as Megatron calls it, so that the MTP loss trains it; otherwise it is
    called as verl does, with detached parameters. ``acceptance``: megatron-core 0.19's counts of accepted tokens are
    logged by its own function; earlier releases log none. For the whole process: backward threads call layers too.
    """
    global _around
    before, _around = _around, _Surroundings(head_trained, acceptance)
    try:
        yield
    finally:
        _around = before


@dataclass(frozen=True)
class Model:
    """The part of the model that a depth runs: output layer, scaling of the logits and cross entropy."""

    output_layer: torch.nn.Module
    output_weight: Tensor | None
    runtime_gather_output: bool | None
    compute_language_model_loss: Callable[[Tensor, Tensor], Tensor]
    scale_logits_fn: Callable[[Tensor], Tensor] | None = None
    tp_group: Any = None

    def logits(self, hidden_states: Tensor, config: Config) -> Tensor:
        """The logits [S, B, V] of a depth's hidden states [S, B, H]."""
        logits = self._trained(hidden_states, config) if _around.head_trained else self._detached(hidden_states)
        return logits if self.scale_logits_fn is None else self.scale_logits_fn(logits)

    def _trained(self, hidden_states: Tensor, config: Config) -> Tensor:
        layer: Any = self.output_layer
        weight = self.output_weight
        if getattr(config, "mtp_detach_heads", False):  # an option from 0.19 on
            weight = (layer.weight if weight is None else weight).detach()
        logits: Tensor
        logits, _ = layer(hidden_states, weight=weight, runtime_gather_output=self.runtime_gather_output)
        return logits

    def _detached(self, hidden_states: Tensor) -> Tensor:
        layer, weight = self.output_layer, self.output_weight
        detached = {name: parameter.detach() for name, parameter in layer.named_parameters()}
        logits: Tensor
        logits, _ = torch.func.functional_call(
            layer,
            {**detached, **dict(layer.named_buffers())},
            args=(hidden_states,),
            kwargs={
                "weight": None if weight is None else weight.detach(),
                "runtime_gather_output": self.runtime_gather_output,
            },
        )
        return logits


@dataclass(frozen=True)
class Start:
    """The inputs before the first depth: chunks of ``hidden_states`` [S, B, H], labels and mask [B, S]."""

    hidden_states: Tensor
    depth_hidden_states: tuple[Tensor, ...]
    labels: Tensor
    loss_mask: Tensor


@dataclass(frozen=True)
class Depth:
    """One depth: its logits [S, B, V], labels and mask [B, S], loss [B, S] with the masked positions 0.

    ``num_tokens`` is the number of tokens that carry loss (0-d).
    """

    number: int
    logits: Tensor
    labels: Tensor
    loss_mask: Tensor
    loss: Tensor
    num_tokens: Tensor


def split(hidden_states: Tensor, labels: Tensor, loss_mask: Tensor | None, config: Config) -> Start:
    """Split ``hidden_states`` [(1+D)*S, B, H] into the main model's and one chunk a depth."""
    labels = labels.clone()
    main, *depths = torch.chunk(hidden_states, 1 + config.mtp_num_layers, dim=0)
    if loss_mask is None:
        loss_mask = torch.ones_like(labels)
    return Start(main, tuple(depths), labels, loss_mask)


def predict(
    start: Start, model: Model, roll: Roll, packed_seq_params: Any, cp_group: Any, config: Config
) -> Iterator[Depth]:
    """Run the depths one after the other, each against labels and mask rolled by one more token."""
    labels, loss_mask = start.labels, start.loss_mask
    options = {"shifts": -1, "dims": -1, "cp_group": cp_group, "packed_seq_params": packed_seq_params}
    for number, hidden_states in enumerate(start.depth_hidden_states):
        labels, _ = roll(labels, **options)
        loss_mask, num_tokens = roll(loss_mask, **options)
        logits = model.logits(hidden_states, config)
        loss = loss_mask * model.compute_language_model_loss(labels, logits)
        yield Depth(number, logits, labels, loss_mask, loss, num_tokens)


def megatron_roll(tensor: Tensor, *, packed_seq_params: Any = None, **options: Any) -> tuple[Tensor, Tensor]:
    """Call megatron-core's ``roll_tensor``, which up to 0.15 knows no packed sequences."""
    from megatron.core.transformer.multi_token_prediction import roll_tensor

    if packed_seq_params is not None:
        options["packed_seq_params"] = packed_seq_params
    rolled: tuple[Tensor, Tensor] = roll_tensor(tensor, **options)
    return rolled


def add_to_backward(main_hidden_states: Tensor, loss: Tensor) -> Tensor:
    """Return ``main_hidden_states``, whose backward pass now runs that of ``loss`` too."""
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

    attached: Tensor = MTPLossAutoScaler.apply(main_hidden_states, loss)
    return attached


def log(loss: Tensor, depth: Depth, model: Model, config: Config) -> None:
    """Log ``loss`` (0-d) for Megatron's training loop, and with it the tokens accepted where the job logs them."""
    counts = None
    if _around.acceptance:
        counts = acceptance_counts(
            depth.logits,
            depth.labels,
            depth.loss_mask,
            model.output_layer,
            model.runtime_gather_output,
            model.tp_group,
        )
    save_mtp_loss(loss, depth.number, config.mtp_num_layers, counts)


def rescaled_loss(depth: Depth, original_num_tokens: Tensor, config: Config) -> Tensor:
    """The loss of a depth such that its mean over the depth's own tokens has the weight of the main loss's mean.

    With ``calculate_per_token_loss`` all gradients are later divided by the main loss's token count, hence the factor.
    """
    weight = config.mtp_loss_scaling_factor / config.mtp_num_layers
    num_tokens = torch.clamp(depth.num_tokens, min=1)
    if config.calculate_per_token_loss:
        return weight * depth.loss * (original_num_tokens / num_tokens)
    return weight * depth.loss / num_tokens
