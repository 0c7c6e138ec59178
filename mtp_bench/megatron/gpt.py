"""Scope ``step``: a real Megatron GPT model with an MTP block, through Megatron's own forward-backward function."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mtp_bench import ranges
from mtp_bench.errors import InputError
from mtp_bench.inputs import Given, make_inputs, normal
from mtp_bench.megatron import versions
from mtp_bench.megatron.attention import PackedAttention
from mtp_bench.megatron.depths import depth_ranges
from mtp_bench.megatron.harness import make_harness
from mtp_bench.megatron.head import make_packed_seq_params, transformer_config
from mtp_bench.megatron.placement import mtp_loss_in_place
from mtp_bench.megatron.state import quiet
from mtp_bench.patching import replaced

if TYPE_CHECKING:
    from mtp_bench.megatron.state import Place
    from mtp_bench.variants import Variant
    from mtp_bench.workloads import Workload


class GPT:
    """Model, data and schedule of a workload, shared by the steps of all variants; to be built in isolated state."""

    def __init__(self, workload: Workload, device: Place) -> None:
        reason = versions.packed_unsupported()
        if workload.packed and reason:
            raise InputError(reason)
        from megatron.core import parallel_state
        from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
        from megatron.core.distributed.finalize_model_grads import finalize_model_grads

        self.workload = workload
        self.tp_group = parallel_state.get_tensor_model_parallel_group()
        self.num_microbatches = workload.num_microbatches
        self.config = transformer_config(workload)
        self.config.finalize_model_grads_func = partial(_in_range, "finalize", finalize_model_grads)
        self.batch = Batch(workload, device.torch_device)
        with quiet():
            self.model = build_model(workload, self.config, device.torch_device)
        # Megatron accumulates and reduces the gradients of bf16 models in fp32 by default.
        buckets = DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=False)
        self.ddp = DistributedDataParallel(config=self.config, ddp_config=buckets, module=self.model)
        self.given = Given(
            self.config,
            self.batch.packed_seq_params,
            labels=self.batch.labels,
            loss_mask=self.batch.loss_mask,
            input_ids=self.batch.input_ids,
            position_ids=self.batch.position_ids,
            output_weight=self.model.output_layer.weight,
        )
        lengths, starts = _sequences(workload)
        self.harness = make_harness(workload.harness, lengths, starts, device.torch_device)

    def step(self, variant: Variant) -> GPTStep:
        """Return the step that runs ``variant`` in place of the model's MTP loss."""
        return GPTStep(self, variant)

    def named_gradients(self) -> dict[str, Tensor]:
        """What the last step left in Megatron's gradient buffers, fp32, by parameter (the head too)."""
        return {name: parameter.main_grad for name, parameter in self.model.named_parameters()}


class GPTStep:
    """One call: gradients zeroed, every microbatch forward and backward, gradients finalised."""

    def __init__(self, gpt: GPT, variant: Variant) -> None:
        self.gpt = gpt
        self.variant = variant

    def __call__(self) -> None:
        """Run the step."""
        from megatron.core.pipeline_parallel.schedules import get_forward_backward_func

        gpt = self.gpt
        with ranges.open_range("step"), _phases(), mtp_loss_in_place(gpt.model, self._mtp_loss, self.variant.roll):
            gpt.ddp.zero_grad_buffer()
            get_forward_backward_func()(
                forward_step_func=self._forward_step,
                data_iterator=iter(()),
                model=gpt.ddp,
                num_microbatches=gpt.num_microbatches,
                seq_length=gpt.batch.labels.shape[1],
                micro_batch_size=gpt.batch.labels.shape[0],
                forward_only=False,
            )

    def _forward_step(self, _data_iterator: Any, model: torch.nn.Module) -> tuple[Tensor, Callable[[Tensor], Any]]:
        self.gpt.harness.before_model()
        return self.gpt.batch.run(model), self._loss

    def _loss(self, losses: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Sum and token count of a microbatch; Megatron's schedule divides by them as the config says."""
        harness = self.gpt.harness
        harness.after_logits()
        losses, loss_mask = losses.view(-1).float(), self.gpt.batch.loss_mask.view(-1)
        loss = torch.sum(losses * loss_mask)
        num_tokens = loss_mask.sum().to(torch.int)
        harness.after_loss(losses, loss_mask, loss)
        return loss, num_tokens, {"lm loss": loss.detach().clone()}

    def _mtp_loss(self, **arguments: Any) -> Tensor:
        # 0.17 and 0.18 do not pass all that 0.19 does, and variants may name any of it.
        arguments.setdefault("input_ids", self.gpt.batch.input_ids)
        arguments.setdefault("tp_group", self.gpt.tp_group)
        with ranges.open_range("mtp_loss"), depth_ranges(self.gpt.config.mtp_num_layers):
            return self.variant(**arguments)


class Batch:
    """The tensors of a microbatch; every microbatch of a step is the same one."""

    def __init__(self, workload: Workload, device: torch.device) -> None:
        inputs = make_inputs(workload, device)
        layout = inputs.layout
        self.input_ids = inputs.input_ids
        self.labels = inputs.labels
        self.position_ids = inputs.position_ids
        self.loss_mask = inputs.loss_mask
        self.packed_seq_params = None
        self.attention_mask = None
        if workload.packed:
            self.packed_seq_params = make_packed_seq_params(
                layout.cu_seqlens, layout.cu_seqlens_actual, convention=workload.cu_seqlens, device=device
            )
        else:
            # [1, 1, S, S], True where a query must not see a key. Megatron's default one would outlive this model.
            later = torch.ones(layout.row_length, layout.row_length).triu_(1).bool()
            self.attention_mask = later.view(1, 1, *later.shape).to(device)

    def run(self, model: torch.nn.Module) -> Tensor:
        """Return the model's per-token losses [B, S]."""
        losses: Tensor = model(
            self.input_ids,
            self.position_ids,
            self.attention_mask,
            labels=self.labels,
            loss_mask=self.loss_mask,
            packed_seq_params=self.packed_seq_params,
        )
        return losses


def build_model(
    workload: Workload, config: Any, device: torch.device, *, core_attention: type[torch.nn.Module] = PackedAttention
) -> Any:
    """Build the GPT model with its MTP block on ``device``, with weights drawn from the workload's seed.

    ``core_attention`` is for packed sequences, which the local layer spec's own does not take.
    """
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_layer_local_spec,
        get_gpt_layer_with_transformer_engine_spec,
        get_gpt_mtp_block_spec,
    )
    from megatron.core.models.gpt.gpt_model import GPTModel

    use_te = device.type == "cuda" and _has_transformer_engine()
    layer = get_gpt_layer_with_transformer_engine_spec() if use_te else get_gpt_layer_local_spec()
    if workload.packed and not use_te:
        layer.submodules.self_attention.submodules.core_attention = core_attention
    model = GPTModel(
        config,
        layer,
        vocab_size=workload.vocab_size,
        max_sequence_length=workload.layout().row_length,
        position_embedding_type=workload.position_embedding_type,
        share_embeddings_and_output_weights=False,
        mtp_block_spec=get_gpt_mtp_block_spec(config, layer, use_transformer_engine=use_te),
    )
    # As Megatron's Float16Module does: the local spec builds its norms in fp32.
    model = model.to(device=device, dtype=config.params_dtype)
    for name, parameter in model.named_parameters():
        draw_parameter(name, parameter, workload.seed)
    return model


def draw_parameter(name: str, parameter: Tensor, seed: int) -> None:
    """Set a parameter to bits that depend on its name, its shape and the seed alone; scales of norms are 1."""
    with torch.no_grad():
        if parameter.dim() == 1:
            parameter.fill_(1.0 if name.endswith("weight") else 0.0)
            return
        generator = torch.Generator().manual_seed(seed ^ zlib.crc32(name.encode()))
        scale = parameter.shape[-1] ** -0.5
        parameter.copy_(normal(tuple(parameter.shape), scale, parameter.dtype, parameter.device, generator))


@contextmanager
def _phases() -> Iterator[None]:
    """Open ranges around what Megatron's schedule calls once a microbatch."""
    from megatron.core.pipeline_parallel import schedules

    with ExitStack() as stack:
        for phase in ("forward", "backward"):
            name = f"{phase}_step"
            stack.enter_context(replaced(schedules, name, partial(_in_range, phase, getattr(schedules, name))))
        yield


def _in_range(text: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with ranges.open_range(text):
        return function(*args, **kwargs)


def _sequences(workload: Workload) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Lengths of the sequences, and where they begin in the microbatch's tokens (and where the last one's row ends)."""
    layout = workload.layout()
    if workload.packed:
        return workload.lengths, layout.cu_seqlens
    return workload.lengths, tuple(row * layout.row_length for row in range(layout.rows + 1))


def _has_transformer_engine() -> bool:
    import importlib.util

    return importlib.util.find_spec("transformer_engine") is not None
