"""Variants as users write them: some right, some broken in each way that a run must survive."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from mtp_bench.variants.sync_free import sync_free


def right(**arguments: Any) -> torch.Tensor:
    """A user's own copy that happens to be right."""
    return sync_free(**arguments)


def few_arguments(hidden_states: torch.Tensor, config: Any) -> torch.Tensor:
    """Names only two arguments, and computes no MTP loss."""
    return torch.chunk(hidden_states, 1 + config.mtp_num_layers, dim=0)[0]


def reads(hidden_states: torch.Tensor, loss_mask: torch.Tensor, **arguments: Any) -> torch.Tensor:
    """One host read of its own beside the loss."""
    if loss_mask.sum() < 0:
        raise AssertionError
    return sync_free(hidden_states=hidden_states, loss_mask=loss_mask, **arguments)


def raises(**arguments: Any) -> torch.Tensor:
    """Fails in Python."""
    raise RuntimeError("no such head:\nlm_head")


def whole(hidden_states: torch.Tensor) -> torch.Tensor:
    """Returns all chunks instead of the first."""
    return hidden_states


def nothing(hidden_states: torch.Tensor) -> None:
    """Forgets to return."""


def writes(labels: torch.Tensor, loss_mask: torch.Tensor, **arguments: Any) -> torch.Tensor:
    """Computes the right thing, then writes into its caller's tensors."""
    hidden_states = sync_free(labels=labels, loss_mask=loss_mask, **arguments)
    labels.zero_()
    loss_mask.zero_()
    return hidden_states


def detaches(hidden_states: torch.Tensor, **arguments: Any) -> torch.Tensor:
    """Cuts the main model off from its loss."""
    return sync_free(hidden_states=hidden_states, **arguments).detach()


def triples_lambda(config: Any, **arguments: Any) -> torch.Tensor:
    """Changes the config for good."""
    config.mtp_loss_scaling_factor *= 3
    return sync_free(config=config, **arguments)


def doubles_head(output_layer: torch.nn.Module, **arguments: Any) -> torch.Tensor:
    """Leaves a hook on the output layer, and doubles its weight."""
    output_layer.register_forward_hook(lambda module, inputs, output: (output[0] * 2, output[1]))
    with torch.no_grad():
        output_layer.weight.mul_(2)
    return sync_free(output_layer=output_layer, **arguments)


def replaces_roll(**arguments: Any) -> torch.Tensor:
    """Patches Megatron while it runs."""
    from megatron.core.transformer import multi_token_prediction

    from mtp_bench.variants.boundary_roll import packed_roll

    multi_token_prediction.roll_tensor = packed_roll
    return sync_free(**arguments)


def turns_grad_off(**arguments: Any) -> torch.Tensor:
    """Leaves PyTorch without gradients, and in anomaly mode."""
    hidden_states = sync_free(**arguments)
    torch.autograd.set_detect_anomaly(True)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    return hidden_states


def reads_stdin(**arguments: Any) -> torch.Tensor:
    """Asks a person."""
    input("continue? ")
    return sync_free(**arguments)


def forks(**arguments: Any) -> torch.Tensor:
    """Returns twice."""
    os.fork()
    return sync_free(**arguments)


def exits(**arguments: Any) -> torch.Tensor:
    """Ends the process the Python way."""
    sys.exit(3)


def double_precision(**arguments: Any) -> torch.Tensor:
    """Returns another dtype."""
    return sync_free(**arguments).double()


def aborts(**arguments: Any) -> torch.Tensor:
    """Kills the process, as an assertion inside C++ does."""
    print("terminate called after throwing an instance of 'c10::Error'", file=sys.stderr, flush=True)
    os.abort()


def prints(**arguments: Any) -> torch.Tensor:
    """Writes to standard output, which must not get into a JSON document."""
    print("hello from the variant")
    return sync_free(**arguments)
