"""The right values of scope ``step``: the same model in float64 on the CPU, its losses written as plain mathematics.

Both ways to normalise come to the same gradient once Megatron has finalised it, that of

    sum_i m_0 l_0 / max(n_0, 1)  +  lambda / D * sum_k sum_i m_k l_k / max(n_k, 1)

with l_k, m_k and n_k as in :mod:`mtp_bench.numerics`. Every microbatch is the same one, so one suffices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mtp_bench.megatron.gpt import GPT, Batch, build_model
from mtp_bench.megatron.head import transformer_config
from mtp_bench.megatron.placement import mtp_loss_in_place
from mtp_bench.megatron.state import HostPlace, isolated_state, quiet
from mtp_bench.patching import replaced

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from mtp_bench.workloads import Workload

    Array = npt.NDArray[np.float64]

# Transformer Engine fuses a norm into the linear layer behind it.
_FUSED_NORMS = {
    "self_attention.linear_qkv.layer_norm_": "input_layernorm.",
    "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm.",
}


@dataclass(frozen=True)
class GPTValues:
    """What a step comes to: the logged loss of each depth, and the float64 gradients of all matrices (the head too).

    Scales and biases of norms are left out: PyTorch's CPU kernel sums their bf16 gradients in bf16.
    """

    losses: tuple[float, ...]
    gradients: dict[str, Array]


def gradients(gpt: GPT) -> dict[str, Array]:
    """The gradients that the last step of ``gpt`` left, float64 on the host, by name as in the local layer spec."""
    return {_local_name(name): _float64(gradient).numpy() for name, gradient in gpt.named_gradients().items()}


def mtp_parameters(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that belong to the MTP block: their gradients come from the MTP losses alone."""
    return [name for name in names if name.startswith("mtp.")]


def reference(gpt: GPT) -> GPTValues:
    """Compute the right values for the weights that ``gpt`` has."""
    weights = {_local_name(name): _float64(parameter) for name, parameter in gpt.model.named_parameters()}
    host = HostPlace()
    with isolated_state(host), quiet():
        config = transformer_config(gpt.workload, dtype=torch.float64, on_host=True)
        model = build_model(gpt.workload, config, host.torch_device, core_attention=_SequenceAttention)
        model.load_state_dict(weights, strict=False)
        losses = _run(gpt.workload, model, Batch(gpt.workload, host.torch_device))
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert set(found) == set(weights)
    return GPTValues(
        losses, {name: grad.numpy() for name, grad in found.items() if grad is not None and grad.dim() > 1}
    )


def _run(workload: Workload, model: Any, batch: Batch) -> tuple[float, ...]:
    """Run forward and backward of the objective; return the loss of each depth."""
    from megatron.core.transformer import multi_token_prediction

    depths: list[Tensor] = []

    def roll(tensor: Tensor | None, **_: Any) -> tuple[Tensor | None, None]:
        return (None if tensor is None else _shift(tensor, 1, workload)), None

    def mtp_loss(*, hidden_states: Tensor, **_: Any) -> Tensor:
        main, *chunks = hidden_states.chunk(1 + workload.mtp_num_layers)
        for depth, chunk in enumerate(chunks, 1):
            loss_mask = _shift(batch.loss_mask, depth, workload)
            losses = _cross_entropy(_shift(batch.labels, depth, workload), chunk @ model.output_layer.weight.T)
            depths.append(_mean(losses, loss_mask))
        return main

    with (
        mtp_loss_in_place(model, mtp_loss),
        replaced(model, "compute_language_model_loss", _cross_entropy),
        replaced(multi_token_prediction, "roll_tensor", roll),
    ):
        objective = _mean(batch.run(model), batch.loss_mask)
    weight = workload.mtp_loss_scaling_factor / workload.mtp_num_layers
    (objective + weight * sum(depths)).backward()  # type: ignore[no-untyped-call]
    return tuple(float(loss) for loss in depths)


class _SequenceAttention(torch.nn.Module):
    """Core attention of packed sequences, one sequence after the other."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, packed_seq_params: Any, **__: Any) -> Tensor:
        """Attend; all are [T, heads, channels]."""
        mixed = torch.zeros_like(value)
        for start, end in pairwise(packed_seq_params.cu_seqlens_q_padded.tolist()):
            if end > start:
                q, k, v = (tensor[start:end].transpose(0, 1) for tensor in (query, key, value))
                attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                mixed[start:end] = attended.transpose(0, 1)
        return mixed


def _shift(values: Tensor, by: int, workload: Workload) -> Tensor:
    from mtp_bench.numerics import shift_within_sequences

    return torch.from_numpy(shift_within_sequences(values.numpy(), by, workload))


def _cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """Per-token losses [B, S] of ``logits`` [S, B, V]."""
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.T.reshape(-1), reduction="none")
    return losses.view(labels.T.shape).T


def _mean(losses: Tensor, loss_mask: Tensor) -> Tensor:
    return torch.sum(losses * loss_mask) / torch.clamp(loss_mask.double().sum(), min=1)


def _local_name(name: str) -> str:
    for fused, norm in _FUSED_NORMS.items():
        name = name.replace(fused, norm)
    return name


def _float64(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double()
