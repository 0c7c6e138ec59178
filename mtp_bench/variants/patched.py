"""``patched``: the loss of verl from 0.9.0. Finite on an empty mask, at the price of a host read of the token count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mtp_bench.variants.common import Config, Model, add_to_backward, log, megatron_roll, predict, rescaled_loss, split


def patched(
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
    original_num_tokens = start.loss_mask.sum()
    model = Model(
        output_layer, output_weight, runtime_gather_output, compute_language_model_loss, scale_logits_fn, tp_group
    )
    for depth in predict(start, model, megatron_roll, packed_seq_params, cp_group, config):
        logged = torch.sum(depth.loss) / depth.num_tokens if depth.num_tokens > 0 else depth.loss.new_tensor(0.0)
        if is_training:
            log(logged, depth, model, config)
        main = add_to_backward(main, rescaled_loss(depth, original_num_tokens, config))
    return main
