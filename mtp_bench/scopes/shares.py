"""Scope ``loss`` under context parallelism: a rank's share of the inputs, and the gradient of all ranks together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from mtp_bench.inputs import Inputs
from mtp_bench.ranks.zigzag import zigzag_columns

if TYPE_CHECKING:
    from mtp_bench.workloads import Workload


def share_of(inputs: Inputs, workload: Workload) -> Inputs:
    """This rank's tokens of ``inputs``; the layout stays that of all. A share of one rank is the whole."""
    if workload.cp_size == 1:
        return inputs
    from megatron.core import parallel_state

    columns = _columns(workload)[parallel_state.get_context_parallel_rank()]
    index = torch.tensor(columns).to(inputs.labels.device)

    def cut(rows: Tensor) -> Tensor:
        return rows.index_select(1, index)

    return replace(
        inputs,
        hidden_states=_chunks(inputs.hidden_states.detach(), workload)
        .index_select(1, index)
        .flatten(0, 1)
        .requires_grad_(),
        input_ids=cut(inputs.input_ids),
        labels=cut(inputs.labels),
        position_ids=cut(inputs.position_ids),
        loss_mask=cut(inputs.loss_mask),
    )


def whole_gradient(own: Tensor, workload: Workload) -> Tensor:
    """The gradient of the hidden states of all ranks, [(1 + D) * S, B, H], from every rank's ``own``.

    Without ``calculate_per_token_loss`` Megatron averages gradients over context-parallel ranks too; else it adds them.
    """
    from megatron.core import parallel_state

    group = parallel_state.get_context_parallel_group()
    parts = torch.empty((workload.cp_size, *own.shape), dtype=own.dtype, device=own.device)
    dist.all_gather_into_tensor(parts, own.unsqueeze(0).contiguous(), group=group)
    chunks = torch.stack([_chunks(part, workload) for part in parts.unbind()])  # [cp_size, 1 + D, S / cp_size, B, H]
    by_rank = chunks.transpose(0, 1).flatten(1, 2)
    order = [column for columns in _columns(workload) for column in columns]
    home = torch.tensor(order).to(own.device)
    whole = torch.empty_like(by_rank).index_copy_(1, home, by_rank).flatten(0, 1)
    return whole if workload.calculate_per_token_loss else whole / workload.cp_size


def _columns(workload: Workload) -> list[list[int]]:
    layout = workload.layout()
    return zigzag_columns(layout.cu_seqlens or (0, layout.row_length), workload.cp_size)


def _chunks(hidden_states: Tensor, workload: Workload) -> Tensor:
    """[(1 + D) * S, B, H] as [1 + D, S, B, H]."""
    return hidden_states.view(1 + workload.mtp_num_layers, -1, *hidden_states.shape[1:])
