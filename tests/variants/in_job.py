"""One of two ranks: a real GPT model's gradients and logged losses with Megatron's own MTP loss, and with ours."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer import torch_norm
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, MTPLossLoggingHelper
from megatron.core.transformer.transformer_config import TransformerConfig

from mtp_bench import megatron, variants
from mtp_bench.megatron.attention import PackedAttention
from mtp_bench.megatron.gpt import draw_parameter
from mtp_bench.megatron.placement import mtp_loss_in_place
from mtp_bench.megatron.state import HostPlace, isolated_state, quiet
from mtp_bench.patching import replaced
from mtp_bench.variants.common import surroundings
from tests.megatron.cp_attention import share
from tests.variants.recording import bits

HIDDEN, VOCABULARY = 16, 32
BOUNDS = [0, 8, 24, 32]  # of packed sequences
PADDED = (2, 12)


def make_model(case):
    """A model whose parameters are the same on all ranks but for their tensor-parallel shards."""
    config = TransformerConfig(
        num_layers=1,
        hidden_size=HIDDEN,
        num_attention_heads=2,
        mtp_num_layers=2,
        mtp_loss_scaling_factor=0.3,
        tensor_model_parallel_size=case.get("tp", 1),
        context_parallel_size=case.get("cp", 1),
        sequence_parallel=case.get("tp", 1) > 1,
        params_dtype=torch.bfloat16 if case.get("bf16") else torch.float32,
        bf16=case.get("bf16", False),
        use_cpu_initialization=True,
        perform_initialization=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        calculate_per_token_loss=case.get("per_token", False),
        **case.get("options", {}),
    )
    layer = get_gpt_layer_local_spec()
    if case.get("packed"):
        layer.submodules.self_attention.submodules.core_attention = PackedAttention
    model = GPTModel(
        config,
        layer,
        vocab_size=VOCABULARY,
        max_sequence_length=32,
        share_embeddings_and_output_weights=case.get("tied", False),
        mtp_block_spec=get_gpt_mtp_block_spec(config, layer, use_transformer_engine=False),
    ).to(config.params_dtype)
    for name, parameter in model.named_parameters():
        draw_parameter(name, parameter, seed=dist.get_rank() if case.get("tp") else 0)
    return model


def plain_norm(_, config, hidden_size, eps=1e-5):
    return torch.nn.LayerNorm(hidden_size, eps)


def make_batch(case):
    """What the model is called with; the last tokens of a row and some inside carry no loss."""
    generator = torch.Generator().manual_seed(1)
    shape = (1, BOUNDS[-1]) if case.get("packed") else PADDED
    tokens, labels = (torch.randint(0, VOCABULARY, shape, generator=generator) for _ in range(2))
    loss_mask = (torch.rand(shape, generator=generator) > 0.3).float()
    positions = torch.arange(shape[1]).expand(shape)
    tensors = [tokens, positions, labels, loss_mask]
    if not case.get("packed"):
        later = torch.ones(shape[1], shape[1]).triu(1).bool().view(1, 1, shape[1], shape[1])
        return tensors, {"attention_mask": later}
    group = parallel_state.get_context_parallel_group()
    held = torch.tensor(share(BOUNDS, group.rank(), group.size()))
    cu_seqlens = torch.tensor(BOUNDS, dtype=torch.int32)
    packed = PackedSeqParams(qkv_format="thd", cu_seqlens_q=cu_seqlens, cu_seqlens_kv=cu_seqlens)
    packed.cu_seqlens_q_host = BOUNDS
    return [tensor.index_select(1, held) for tensor in tensors], {"attention_mask": None, "packed_seq_params": packed}


def run(model, batch):
    """One microbatch; the gradients of all parameters, and what was logged."""
    (tokens, positions, labels, loss_mask), more = batch
    model.zero_grad(set_to_none=True)
    MTPLossLoggingHelper.tracker.clear()
    MTPLossAutoScaler.set_loss_scale(torch.tensor(0.5))
    losses = model(tokens, positions, labels=labels, loss_mask=loss_mask, **more)
    (losses.float() * loss_mask).sum().backward()
    tracker = MTPLossLoggingHelper.tracker
    logged = {name: value.tolist() for name, value in tracker.items() if isinstance(value, torch.Tensor)}
    gradients = {name: bits(weight.grad) for name, weight in model.named_parameters() if weight.grad is not None}
    return SimpleNamespace(gradients=gradients, logged=logged, returned=bits(losses))


def compare(case):
    """What of ours differs from Megatron's own, by variant; and what shows that the question was put."""
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=case.get("tp", 1),
        context_parallel_size=case.get("cp", 1),
        create_gloo_process_groups=False,
    )
    found = {}
    with isolated_state(HostPlace()):
        # Megatron's norm without Transformer Engine refuses sequence parallelism; the output layer is what counts.
        with quiet(), replaced(torch_norm.WrappedTorchNorm, "__new__", plain_norm):
            model = make_model(case)
        batch = make_batch(case)
        own = run(model, batch)
        found["logged"] = own.logged
        for name in case["variants"]:
            found[name] = differences(model, batch, variants.load(name), own, head_trained=True)
        head = differences(model, batch, variants.load("sync_free"), own, head_trained=False)
        found["with the head detached"] = head
    parallel_state.destroy_model_parallel()
    return found


def differences(model, batch, variant, own, *, head_trained):
    around = surroundings(head_trained=True, acceptance=True) if head_trained else nullcontext()
    with around, mtp_loss_in_place(model, variant, variant.roll if "packed_seq_params" in batch[1] else None):
        ours = run(model, batch)
    names = sorted(own.gradients.keys() | ours.gradients.keys())
    different = [name for name in names if own.gradients.get(name) != ours.gradients.get(name)]
    different += ["the model's losses"] if own.returned != ours.returned else []
    return different + ([f"logged {ours.logged}"] if own.logged != ours.logged else [])


def main():
    cases = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    mine = {"version": megatron.version(), "cases": [compare(case) for case in cases]}
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    if dist.get_rank() == 0:
        print(json.dumps(everyone))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
