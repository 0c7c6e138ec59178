"""``original``: the loss of verl up to 0.8.0. It divides by a token count that may be 0, and rescales nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mtp_bench.variants.common import Config, Model, add_to_backward, log, megatron_roll, predict, split


def original(
    *,
    hidden_states: Tensor,
    labels: Tensor,
    loss_mask: Tensor | None,
    output_layer: torch.nn.Module,
    output_weight: Tensor | None,
    runtime_gather_output: bool | None,
    is_training: bool,
    compute_language_model_loss: Callable[[Tensor, Tensor], Tensor],
    config: Config,
    cp_group: Any = None,
    tp_group: Any = None,
    packed_seq_params: Any = None,
    scale_logits_fn: Callable[[Tensor], Tensor] | None = None,
    **_: Any,
) -> Tensor:
    """Return the main model's hidden states [S, B, H], with the MTP losses attached to their backward pass."""
    start = split(hidden_states, labels, loss_mask, config)
    main = start.hidden_states
    model = Model(
        output_layer, output_weight, runtime_gather_output, compute_language_model_loss, scale_logits_fn, tp_group
    )
    for depth in predict(start, model, megatron_roll, packed_seq_params, cp_group, config):
        if is_training:
            log(torch.sum(depth.loss) / depth.num_tokens, depth, model, config)
        weight = config.mtp_loss_scaling_factor / config.mtp_num_layers
        if config.calculate_per_token_loss:
            main = add_to_backward(main, weight * depth.loss)
        else:
            main = add_to_backward(main, weight * depth.loss / depth.num_tokens)
    return main
