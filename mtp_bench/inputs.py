"""The tensors of a workload: the same bits for a seed on every device that holds real values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from mtp_bench.workloads import Layout, Workload

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Larger tensors repeat one block, so that production sizes need no minutes of drawing. A prime length, or the rows of
# a head whose width divides it would be copies of each other and their logits would tie.
_BLOCK = 1_048_573
_MOST_KEPT = 2**20  # elements of a tensor that is kept a second time


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a step reads. S is ``layout.row_length``, B ``layout.rows``, D the MTP depths, H and V the model's."""

    hidden_states: torch.Tensor  # [(1 + D) * S, B, H], params_dtype, a leaf that requires grad
    head_weight: torch.Tensor  # [V, H], params_dtype
    input_ids: torch.Tensor  # [B, S] int64
    labels: torch.Tensor  # [B, S] int64: labels[i] is the token after input_ids[i]
    position_ids: torch.Tensor  # [B, S] int64
    loss_mask: torch.Tensor  # [B, S] float32
    layout: Layout


class Given:
    """What a variant is given and must not change, as it was: the config, and tensors of up to 2**20 elements.

    Larger ones would take their memory twice; where values are judged, all are small.
    """

    def __init__(self, config: Any, packed_seq_params: Any, **tensors: torch.Tensor) -> None:
        if packed_seq_params is not None:
            tensors["cu_seqlens_q"] = packed_seq_params.cu_seqlens_q
        self._config, self._settings = config, dict(vars(config))
        self._tensors = {name: tensor for name, tensor in tensors.items() if tensor.numel() <= _MOST_KEPT}
        self._were = {name: tensor.detach().clone() for name, tensor in self._tensors.items()}

    def restore(self) -> None:
        """Undo what a variant wrote into it."""
        vars(self._config).clear()
        vars(self._config).update(self._settings)
        with torch.no_grad():
            for name, tensor in self._tensors.items():
                tensor.copy_(self._were[name])

    def changed(self) -> list[str]:
        """Names of what is not as it was (reads the device)."""
        pairs = ((name, tensor.detach().cpu(), self._were[name].cpu()) for name, tensor in self._tensors.items())
        changed = [name for name, is_now, was in pairs if not torch.equal(is_now, was)]
        return changed if vars(self._config) == self._settings else [*changed, "config"]


def make_inputs(workload: Workload, device: torch.device) -> Inputs:
    """Draw the tensors of ``workload`` on the CPU, always in the same order, and put them on ``device``."""
    generator = torch.Generator().manual_seed(workload.seed)
    layout = workload.layout()
    rows, row_length = layout.rows, layout.row_length
    input_ids, labels = _tokens(workload, layout, generator)
    dtype = DTYPES[workload.params_dtype]
    chunks = 1 + workload.mtp_num_layers
    hidden_size = workload.hidden_size
    hidden_states = normal((chunks * row_length, rows, hidden_size), 1.0, dtype, device, generator)
    head_weight = normal((workload.vocab_size, hidden_size), 1 / math.sqrt(hidden_size), dtype, device, generator)
    return Inputs(
        hidden_states=hidden_states.requires_grad_(),
        head_weight=head_weight,
        input_ids=input_ids.to(device),
        labels=labels.to(device),
        position_ids=torch.from_numpy(layout.position_ids).to(device),
        loss_mask=torch.from_numpy(layout.loss_mask).to(device),
        layout=layout,
    )


def _tokens(workload: Workload, layout: Layout, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """``input_ids`` and ``labels``; a sequence's last label is a token of its own, and padding is token 0."""
    input_ids = torch.zeros(layout.rows, layout.row_length, dtype=torch.int64)
    labels = torch.zeros_like(input_ids)
    for (row, column), length in zip(layout.starts, workload.lengths, strict=True):
        tokens = torch.randint(workload.vocab_size, (length + 1,), generator=generator)
        input_ids[row, column : column + length] = tokens[:-1]
        labels[row, column : column + length] = tokens[1:]
    return input_ids, labels


def normal(
    shape: tuple[int, ...], scale: float, dtype: torch.dtype, device: torch.device, generator: torch.Generator
) -> torch.Tensor:
    """Return normal values of ``shape`` on ``device``; beyond ``_BLOCK`` elements they repeat."""
    size = math.prod(shape)
    block = (torch.randn(min(size, _BLOCK), generator=generator) * scale).to(dtype)
    if size <= _BLOCK:
        return block.to(device).reshape(shape)
    flat = torch.empty(size, dtype=dtype, device=device)
    if device.type == "sim":
        from mtp_bench.devices.sim import is_shape_only

        if is_shape_only(flat):
            return flat.view(shape)
    block = block.to(device)
    whole = size // _BLOCK
    flat[: whole * _BLOCK].view(whole, _BLOCK).copy_(block)
    flat[whole * _BLOCK :].copy_(block[: size % _BLOCK])
    return flat.view(shape)
