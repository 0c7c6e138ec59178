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


def aborts(**arguments: Any) -> torch.Tensor:
    """Kills the process, as an assertion inside C++ does."""
    print("terminate called after throwing an instance of 'c10::Error'", file=sys.stderr, flush=True)
    os.abort()


def prints(**arguments: Any) -> torch.Tensor:
    """Writes to standard output, which must not get into a JSON document."""
    print("hello from the variant")
    return sync_free(**arguments)
