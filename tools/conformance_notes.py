"""What docs/conformance.md says beside the results: why a release does not do what a report says."""

from __future__ import annotations

from mtp_bench.conformance.model import Reference

NOTES = {
    "packed-boundary": """\
The report is about attention inside the MTP block; the targets of the loss have the same cause. Up to 0.15 the
MTP layer of megatron-core itself refuses packed sequences, so that training shows the fault only where a
framework removes that assertion.""",
    "packed-empty": """\
The report is about context parallelism (`cp-packed-empty`), where up to 0.16 the packed roll takes the last
element of an empty piece. On one rank shifting an empty slice does nothing, in 0.16 too.""",
    "packed-padding": """\
verl's own training is not affected: it puts the boundaries with padding into `cu_seqlens_q`
(`packed-padded-bounds`). Its loss is, where somebody passes boundaries as Transformer Engine defines them.""",
    "logical-end": """\
The report is about context parallelism, where the padding's mask is shifted along; on one rank what lies behind
the last boundary keeps its own label and a mask of 1 instead (`packed-tail`). With a loss mask that is 0 over
the padding neither happens.""",
    "log-interval": """\
The report is from July 2025 and about megatron-core up to 0.13, which this page does not run. It is fixed in
0.14.0.""",
    "loss-scale": """\
All releases pass: `MTPLossAutoScaler` multiplies by what it was told. The reports are about trainers that do
not tell it, because they scale the main loss outside of Megatron's schedule.""",
    "microbatches": """\
All releases pass, because Megatron's schedule calls `set_loss_scale`. The report is about a trainer with a
schedule of its own.""",
    "mask-fractional": """\
The fault came with the fix of `empty-shard`: before it, nothing was clamped.""",
    "mask-fp16": """\
Up to 0.16 the gradient is right with calculate_per_token_loss, since it is not divided by any count; only the
log is wrong. The rescaling of 0.17 divides infinity by infinity.""",
    "labels-from-ids": """\
Up to 0.16 a call without labels raises, 0.17 and 0.18 return the hidden states without a loss, 0.19 derives
labels. miles passed a mask for labels to code like that of 0.19, and changed its mask.""",
    "ignore-index": """\
The pull request to ms-swift was closed; Megatron trains what the mask says, up to its latest release.""",
    "no-sync": """\
Up to 0.16 there is no guard against an empty count, and so no sync (`empty-shard`); 0.17 guards on the host,
0.18 on the device. verl took over the guard of 0.17.""",
    "no-sync-packed": """\
The 1F1B copy passes because it does not look at the boundaries at all (`packed-boundary`).""",
    "per-token-prompt": """\
All releases pass, those without the rescaling too: the prompt's last position gains a target where the row's
last one loses one, so that the counts are equal.""",
    "dp-counts": """\
The report, with local counts, is about the rescaling of 0.17. Before it nothing is rescaled, and the weight is
wrong by the difference between tokens and targets (`per-token-scale`).""",
    "cp-counts": """\
The weights 2, 1, 1 of the report are those of the rescaling of 0.17. Before it they are equal, and too small
(`per-token-scale`).""",
    "cp-lost-target": """\
Up to 0.16 the target is trained: nothing is rescaled there. The rescaling of 0.17 multiplies by the rank's own
count of tokens, which is 0.""",
    "cp-packed-padding": """\
The reports say that the targets are silently wrong, and that very short sequences raise. These are that short.""",
    "cp-packed-empty": """\
verl calls the roll of the megatron-core that it runs with, here 0.16.1.""",
    "cp-contiguous": """\
No release up to 0.19 reads `cp_partition_mode`; Megatron's development branch does. Sequences longer than these
would not raise, but be rolled wrongly, as by the 1F1B copy.""",
    "head-detach": """\
The pull request to verl that detached the output layer is in 0.8.0 already. The 1F1B copy was not changed.""",
    "mask-chain": """\
No release here follows slime, whose patch of megatron-core (`docker/patch/v0.5.6`) multiplies the mask of each
depth with that of the depth before, and divides by the count of the first.""",
}

NOT_CASES = (
    (
        (Reference("Megatron-LM", 3943), Reference("Megatron-LM", 3959)),
        "Without calculate_per_token_loss the schedule sets the MTP loss scale to 1 over the microbatches, and does "
        "not multiply it by the context-parallel size as that of the MoE loss. All six releases are like this "
        "(`pipeline_parallel/schedules.py`).",
    ),
    (
        (Reference("Megatron-LM", 1585),),
        "With recomputation a loss is logged twice. The MTP loss of these releases is not among what is recomputed.",
    ),
    ((Reference("Megatron-LM", 1650),), "The MTP block shifted input ids, and not position ids."),
    ((Reference("Megatron-LM", 4765),), "Recomputing MTP layers in FP8 loses gradients."),
    (
        (Reference("AReaL", 1670),),
        "Hidden states that are detached between depths cut deeper losses off from earlier MTP blocks.",
    ),
    ((Reference("NeMo-RL", 3889),), "One divisor for a main loss by sequence and an MTP loss by token."),
)
