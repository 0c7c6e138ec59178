"""Variants of the tests' own: each does one thing that the others do not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mtp_bench.variants.sync_free import sync_free

calls: list[dict[str, Any]] = []


def counting(**arguments: Any) -> Tensor:
    """As ``sync_free``; notes its calls."""
    calls.append(arguments)
    return sync_free(**arguments)


def half(**arguments: Any) -> Tensor:
    """The MTP gradient is half of what it should be."""
    config = arguments.pop("config")
    halved = _Config(config, config.mtp_loss_scaling_factor / 2)
    return sync_free(**arguments, config=halved)


def not_finite(*, hidden_states: Tensor, **arguments: Any) -> Tensor:
    """The gradient is NaN."""
    return sync_free(hidden_states=hidden_states * float("nan"), **arguments)


def head_detached(**arguments: Any) -> Tensor:
    """Does not train the output layer."""
    weight = arguments["output_layer"].weight
    return sync_free(**{**arguments, "output_weight": weight.detach()})


def changes_labels(*, labels: Tensor, **arguments: Any) -> Tensor:
    """Writes into what its caller has given."""
    result = sync_free(labels=labels, **arguments)
    labels.zero_()
    return result


def leaves_traces(*, config: Any, **arguments: Any) -> Tensor:
    """Draws random numbers, changes the config and the loss scale."""
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

    result = sync_free(config=config, **arguments)
    random.random(), np.random.rand(), torch.rand(1), torch.rand(1, device="cuda")
    config.mtp_loss_scaling_factor = 7.0
    MTPLossAutoScaler.set_loss_scale(torch.tensor(3.0))
    return result


def raises(**_: Any) -> Tensor:
    """Does not work at all."""
    raise ValueError("planted\nand more lines")


def raises_in_its_third_call(**arguments: Any) -> Tensor:
    """The first call is the check's."""
    calls.append(arguments)
    if len(calls) == 3:
        raise ValueError("planted")
    return sync_free(**arguments)


def raises_on_rank_1(**arguments: Any) -> Tensor:
    """Another rank has nothing against it."""
    if torch.distributed.get_rank() == 1:
        raise ValueError("planted")
    return sync_free(**arguments)


def raises_on_rank_1_in_its_third_call(**arguments: Any) -> Tensor:
    """The first call is the check's."""
    return raises_in_its_third_call(**arguments) if torch.distributed.get_rank() == 1 else sync_free(**arguments)


def wrong_roll(**arguments: Any) -> Tensor:
    """Its loss is right, and the roll that it brings for the MTP block is not."""
    return sync_free(**arguments)


wrong_roll.roll = lambda tensor, **_: (tensor, tensor.sum())  # type: ignore[attr-defined]


class _Config:
    def __init__(self, config: Any, factor: float) -> None:
        self._config, self.mtp_loss_scaling_factor = config, factor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)
