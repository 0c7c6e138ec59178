"""What a step of scope ``loss`` dispatches and leaves behind, to hold two implementations against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mtp_bench.megatron import clear_logged_losses, logged_losses
from mtp_bench.scopes.loss import LossBench
from mtp_bench.syncs import Sync
from mtp_bench.variants import Variant
from mtp_bench.workloads import Workload


class Operations(TorchDispatchMode):
    """Every operation in order: name, shape and dtype of each tensor argument, value of every other argument."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.seen.append((str(func), *(_described(leaf) for leaf in tree_leaves((args, kwargs)))))
        return func(*args, **kwargs)


def _described(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.dtype, leaf.requires_grad
    return leaf if isinstance(leaf, int | float | str | bool | torch.dtype | type(None)) else type(leaf).__name__


@dataclass(frozen=True)
class Outcome:
    """The operations of a step, forward and backward, and the bits of what it computed."""

    operations: list[tuple[Any, ...]]
    logged: list[bytes]
    hidden_states_grad: bytes
    head_grad: bytes


def run(bench: LossBench, variant: Variant) -> Outcome:
    """Run ``variant`` once."""
    step = bench.step(variant)
    clear_logged_losses()
    operations = Operations()
    with operations:
        step()
    logged = [bits(loss) for loss in logged_losses()]
    head_grad = bench.head.output_layer.weight.grad
    assert bench.inputs.hidden_states.grad is not None
    assert head_grad is not None
    return Outcome(operations.seen, logged, bits(bench.inputs.hidden_states.grad), bits(head_grad))


def syncs(bench: LossBench, variant: Variant) -> list[Sync]:
    """The syncs of one step of ``variant`` on the simulated device, in order.

    A run apart from :func:`run`: a dispatch mode's frames would stand between an operation and the line that asks for
    it.
    """
    step = bench.step(variant)
    clear_logged_losses()
    with bench.device.record_syncs() as seen:
        step()
    return seen


def bits(tensor: torch.Tensor) -> bytes:
    """The tensor's memory, so that NaN equals the same NaN and 0 differs from -0."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def workload(**changes: Any) -> Workload:
    """A small packed workload with short, single-token and ordinary sequences."""
    keys = {
        "sequences": (6, 4, 1, 2),
        "packed": True,
        "hidden_size": 16,
        "vocab_size": 32,
        "num_attention_heads": 2,
        "ffn_hidden_size": 32,
        "params_dtype": "fp32",
    }
    return Workload("tiny", **{**keys, **changes})
