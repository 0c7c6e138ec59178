"""Pre-train a small Megatron GPT model with an MTP block; with --ab the job compares variants of its MTP loss.

    torchrun --standalone --nproc-per-node=8 examples/megatron_ab.py --iterations 2010 --ab patched,boundary_roll
    mtp-bench compare ab

Without a GPU, on a simulated one over Gloo: add ``--device sim``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
    get_gpt_mtp_block_spec,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import Float16Module

VOCABULARY = 128
SEQUENCE_LENGTH = 64  # of a row, which holds one sequence, or several with --packed
MICRO_BATCH_SIZE = 2  # rows; packed, it is one row
LOG_INTERVAL = 10  # iterations; reading a loss makes the host wait, so it is not done in each


def main() -> None:
    """Run the command line."""
    args = parse_arguments()
    if args.device == "sim":
        import mtp_bench

        session: Any = mtp_bench.record_syncs("sim")  # inside, "cuda" means the simulated device
    else:
        session = nullcontext()
    with session:
        initialize(args)
        train(args)
        torch.distributed.destroy_process_group()


def train(args: argparse.Namespace) -> None:
    """The training loop."""
    config = make_config(args)
    model = make_model(args, config)
    optimizer = make_optimizer(args, config, model)
    data_iterator = microbatches(args)
    forward_backward = get_forward_backward_func()

    if args.ab:
        # The two lines. Everything else here is as it would be without them.
        import mtp_bench

        mtp_bench.ab([model], args.ab, steps=args.steps, window=args.window, out=args.out, optimizer=optimizer)

    losses: list[torch.Tensor] = []
    for iteration in range(1, args.iterations + 1):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        reduced = forward_backward(
            forward_step_func=forward_step,
            data_iterator=data_iterator,
            model=[model],
            num_microbatches=args.microbatches,
            seq_length=SEQUENCE_LENGTH,
            micro_batch_size=1 if args.packed else MICRO_BATCH_SIZE,
            forward_only=False,
        )
        optimizer.step()
        losses.append(mean_loss(reduced))
        if iteration % LOG_INTERVAL == 0 or iteration == args.iterations:
            log(iteration, losses)
            losses.clear()
    if args.save_weights and torch.distributed.get_rank() == 0:
        torch.save({name: weight.detach().cpu() for name, weight in model.named_parameters()}, args.save_weights)


def forward_step(data_iterator: Iterator[dict[str, Any]], model: Any) -> tuple[torch.Tensor, Any]:
    """A microbatch: the model's losses per token, and what makes a loss of them."""
    batch = next(data_iterator)
    losses = model(
        batch["tokens"],
        batch["position_ids"],
        batch["attention_mask"],
        labels=batch["labels"],
        loss_mask=batch["loss_mask"],
        packed_seq_params=batch["packed_seq_params"],
    )
    return losses, partial(loss_function, batch["loss_mask"])


def loss_function(loss_mask: torch.Tensor, losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Sum and number of tokens, by which Megatron divides; and the same for the log."""
    loss = torch.sum(losses.float() * loss_mask)
    num_tokens = loss_mask.sum().to(torch.int)
    return loss, num_tokens, {"lm loss": torch.stack((loss.detach(), num_tokens.float()))}


def mean_loss(reduced: list[dict[str, Any]]) -> torch.Tensor:
    """The mean over all tokens of an iteration, on the device."""
    total = torch.stack([microbatch["lm loss"] for microbatch in reduced]).sum(dim=0)
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    torch.distributed.all_reduce(total, group=group)
    return total[0] / total[1]


def log(iteration: int, losses: list[torch.Tensor]) -> None:
    """Print the losses of the iterations up to ``iteration``."""
    values = torch.stack(losses).tolist()
    if torch.distributed.get_rank() == 0:
        for number, loss in enumerate(values, start=iteration - len(values) + 1):
            print(f"iteration {number:4} | lm loss {loss:.6f}", flush=True)


def initialize(args: argparse.Namespace) -> None:
    """Process groups and random seeds."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl")
    # Gloo groups would be for checkpoints.
    parallel_state.initialize_model_parallel(
        context_parallel_size=args.context_parallel, create_gloo_process_groups=False
    )
    torch.manual_seed(args.seed)
    tensor_parallel.model_parallel_cuda_manual_seed(args.seed)


def make_config(args: argparse.Namespace) -> TransformerConfig:
    """Megatron's configuration. Fusions that need Apex are off."""
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    return TransformerConfig(
        num_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        ffn_hidden_size=128,
        mtp_num_layers=1,
        mtp_loss_scaling_factor=0.3,
        context_parallel_size=args.context_parallel,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=args.dtype == "bf16",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
    )


def make_model(args: argparse.Namespace, config: TransformerConfig) -> Any:
    """GPTModel with an MTP block, in Float16Module and Megatron's DDP."""
    use_te = args.device == "cuda" and find_spec("transformer_engine") is not None
    layer = get_gpt_layer_with_transformer_engine_spec() if use_te else get_gpt_layer_local_spec()
    if args.packed and not use_te:
        from mtp_bench.megatron.attention import PackedAttention  # Megatron's local attention refuses packed sequences

        layer.submodules.self_attention.submodules.core_attention = PackedAttention
    model: Any = GPTModel(
        config,
        layer,
        vocab_size=VOCABULARY,
        max_sequence_length=SEQUENCE_LENGTH,
        mtp_block_spec=get_gpt_mtp_block_spec(config, layer, use_transformer_engine=use_te),
    ).cuda()
    if args.dtype == "bf16":
        model = Float16Module(config, model)
    buckets = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True)
    return DistributedDataParallel(config, buckets, model)


def make_optimizer(args: argparse.Namespace, config: TransformerConfig, model: Any) -> Any:
    """Megatron's distributed optimizer, and what its schedule needs of it."""
    settings = OptimizerConfig(
        optimizer="adam",
        lr=3e-3,
        weight_decay=0.1,
        bf16=args.dtype == "bf16",
        params_dtype=config.params_dtype,
        use_distributed_optimizer=True,
        clip_grad=1.0,
    )
    optimizer = get_megatron_optimizer(settings, [model], use_gloo_process_groups=False)
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    return optimizer


def microbatches(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Synthetic data without end, other ones on each data-parallel rank.

    A sequence counts upwards by a stride of its own, modulo the vocabulary: the model has something to learn.
    """
    rank = parallel_state.get_data_parallel_rank()
    generator = torch.Generator().manual_seed(args.seed * 1000 + rank)
    while True:
        yield packed_microbatch(generator) if args.packed else padded_microbatch(generator)


def sequence(length: int, generator: torch.Generator) -> torch.Tensor:
    """One token more than ``length``: the last one is a label only."""
    start, stride = torch.randint(1, VOCABULARY, (2,), generator=generator)
    return (start + stride % 8 * torch.arange(length + 1)) % VOCABULARY


def padded_microbatch(generator: torch.Generator) -> dict[str, Any]:
    """Rows of one sequence each, filled up with tokens that carry no loss."""
    rows = torch.stack([sequence(SEQUENCE_LENGTH, generator) for _ in range(MICRO_BATCH_SIZE)])
    lengths = torch.randint(SEQUENCE_LENGTH // 2, SEQUENCE_LENGTH + 1, (MICRO_BATCH_SIZE, 1), generator=generator)
    position = torch.arange(SEQUENCE_LENGTH)
    later = position.unsqueeze(0) > position.unsqueeze(1)
    return {
        "tokens": rows[:, :-1].cuda(),
        "labels": rows[:, 1:].cuda(),
        "loss_mask": (position < lengths).float().cuda(),
        "position_ids": position.expand(MICRO_BATCH_SIZE, -1).cuda(),
        "attention_mask": later.view(1, 1, SEQUENCE_LENGTH, SEQUENCE_LENGTH).cuda(),
        "packed_seq_params": None,
    }


def packed_microbatch(generator: torch.Generator) -> dict[str, Any]:
    """One row of several sequences, each filled up so that the context-parallel ranks can share it."""
    ranks = parallel_state.get_context_parallel_world_size()
    unit = 2 * ranks
    bounds, rows, masks = [0], [], []
    while bounds[-1] < SEQUENCE_LENGTH:
        length = int(torch.randint(2, 24, (1,), generator=generator))
        filled = min(-(-length // unit) * unit, SEQUENCE_LENGTH - bounds[-1])
        bounds.append(bounds[-1] + filled)
        rows.append(sequence(filled, generator))
        masks.append(torch.arange(filled) < length)
    row = {
        "tokens": torch.cat([tokens[:-1] for tokens in rows]),
        "labels": torch.cat([tokens[1:] for tokens in rows]),
        "loss_mask": torch.cat(masks).float(),
        "position_ids": torch.cat([torch.arange(len(tokens) - 1) for tokens in rows]),
    }
    held = share_of_this_rank(bounds)
    cu_seqlens = torch.tensor(bounds, dtype=torch.int32).cuda()
    longest = max(len(tokens) - 1 for tokens in rows)
    packed = PackedSeqParams("thd", cu_seqlens, cu_seqlens, max_seqlen_q=longest, max_seqlen_kv=longest)
    packed.cu_seqlens_q_host = bounds  # what the variant host_lens reads
    return {
        **{name: tensor[held].unsqueeze(0).cuda() for name, tensor in row.items()},
        "attention_mask": None,
        "packed_seq_params": packed,
    }


def share_of_this_rank(bounds: list[int]) -> torch.Tensor:
    """Positions that this context-parallel rank holds: of each sequence, chunk ``rank`` and its mirror image."""
    rank, ranks = parallel_state.get_context_parallel_rank(), parallel_state.get_context_parallel_world_size()
    positions = torch.arange(bounds[-1])
    chunks = [
        chunk
        for start, end in pairwise(bounds)
        for number, chunk in enumerate(positions[start:end].chunk(2 * ranks))
        if number in (rank, 2 * ranks - 1 - rank)
    ]
    return torch.cat(chunks)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "sim"], default="cuda", help="sim: a simulated GPU, no GPU needed")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--context-parallel", type=int, default=1, metavar="N", help="ranks that share a packed row")
    parser.add_argument("--packed", action="store_true", help="several sequences a row")
    parser.add_argument("--microbatches", type=int, default=2, metavar="N", help="gradient accumulation")
    parser.add_argument("--iterations", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--save-weights", metavar="FILE", help="write the final weights")
    parser.add_argument("--ab", type=lambda names: names.split(","), metavar="VARIANT,VARIANT", help="compare these")
    parser.add_argument("--steps", type=int, default=2000, metavar="N", help="iterations of the comparison")
    parser.add_argument("--window", type=int, default=10, metavar="N", help="iterations between two draws")
    parser.add_argument("--out", default="ab", metavar="FOLDER", help="where the comparison goes")
    args = parser.parse_args()
    if "LOCAL_RANK" not in os.environ:
        parser.error("start it with torchrun, as in: torchrun --standalone --nproc-per-node=1 examples/megatron_ab.py")
    if args.context_parallel > 1 and not args.packed:
        parser.error("--context-parallel needs --packed")
    return args


if __name__ == "__main__":
    main()
