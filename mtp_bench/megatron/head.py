"""The end of a GPT model, where the MTP loss lives: output layer and cross entropy, built by Megatron itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from mtp_bench.inputs import DTYPES
from mtp_bench.megatron.state import quiet

if TYPE_CHECKING:
    from mtp_bench.workloads import Workload


def transformer_config(workload: Workload, *, dtype: torch.dtype | None = None, on_host: bool = False) -> Any:
    """Megatron's ``TransformerConfig`` of a workload.

    Weights are left uninitialised: they are set from seeds afterwards, or stay shape-only on a simulated device.
    ``on_host`` puts them on the CPU whatever the device, ``dtype`` overrides the workload's.
    """
    from megatron.core.transformer.transformer_config import TransformerConfig

    dtype = dtype or DTYPES[workload.params_dtype]
    with quiet():
        return TransformerConfig(
            num_layers=workload.num_layers,
            hidden_size=workload.hidden_size,
            num_attention_heads=workload.num_attention_heads,
            ffn_hidden_size=workload.ffn_hidden_size,
            mtp_num_layers=workload.mtp_num_layers,
            mtp_loss_scaling_factor=workload.mtp_loss_scaling_factor,
            calculate_per_token_loss=workload.calculate_per_token_loss,
            params_dtype=dtype,
            pipeline_dtype=dtype,
            bf16=dtype is torch.bfloat16,
            use_cpu_initialization=on_host,
            perform_initialization=False,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            add_bias_linear=False,
            # Fusions that are compiled or need Transformer Engine would differ between machines.
            bias_activation_fusion=False,
            bias_dropout_fusion=False,
            masked_softmax_fusion=False,
            gradient_accumulation_fusion=False,
            cross_entropy_loss_fusion=False,
            apply_rope_fusion=False,
        )


class LossHead:
    """What a variant is called with, beside the inputs: the keyword arguments that come from a model.

    ``weight`` is the output layer's, [vocab_size, hidden_size]. To be built inside ``isolated_state``.
    """

    def __init__(self, workload: Workload, weight: torch.Tensor) -> None:
        from megatron.core import parallel_state
        from megatron.core.models.common.language_module.language_module import LanguageModule
        from megatron.core.tensor_parallel.layers import ColumnParallelLinear

        self.config = transformer_config(workload)
        self.cp_group = parallel_state.get_context_parallel_group()
        self.tp_group = parallel_state.get_tensor_model_parallel_group()
        # The layer is given its weight instead of one more allocation of vocabulary times hidden size.
        self.output_layer = ColumnParallelLinear(
            workload.hidden_size,
            workload.vocab_size,
            config=self.config,
            init_method=lambda _: None,
            bias=False,
            skip_weight_param_allocation=True,
            tp_group=self.tp_group,
        )
        self.output_layer.weight = torch.nn.Parameter(weight)
        self.compute_language_model_loss = LanguageModule(self.config).compute_language_model_loss

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of ``process_mtp_loss`` that do not depend on the inputs."""
        return {
            "output_layer": self.output_layer,
            "output_weight": None,
            "runtime_gather_output": None,
            "is_training": True,
            "compute_language_model_loss": self.compute_language_model_loss,
            "config": self.config,
            "cp_group": self.cp_group,
            "tp_group": self.tp_group,
            "scale_logits_fn": None,
        }


def make_packed_seq_params(
    padded: Sequence[int], actual: Sequence[int], *, convention: str, device: torch.device
) -> Any:
    """Megatron's ``PackedSeqParams`` of one THD row.

    ``padded`` and ``actual`` are cumulative lengths, with and without each sequence's padding. By the convention
    ``"padded"`` (verl's) all boundaries are the padded ones; by ``"actual"`` (Transformer Engine's) those of the
    lengths alone are in ``cu_seqlens_q``. The attribute ``cu_seqlens_q_host`` is the same list on the host.
    """
    from megatron.core.packed_seq_params import PackedSeqParams

    bounds = list(padded if convention == "padded" else actual)
    cu_seqlens = torch.tensor(bounds, dtype=torch.int32).to(device)
    cu_seqlens_padded = torch.tensor(list(padded), dtype=torch.int32).to(device)
    longest = max(end - start for start, end in pairwise(padded))
    params = PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=cu_seqlens,
        cu_seqlens_kv=cu_seqlens,
        cu_seqlens_q_padded=cu_seqlens_padded,
        cu_seqlens_kv_padded=cu_seqlens_padded,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )
    params.cu_seqlens_q_host = bounds
    return params
