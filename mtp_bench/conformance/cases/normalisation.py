"""What the loss of a target is multiplied by: the scaling factor over the depth's own number of targets."""

from __future__ import annotations

from mtp_bench.conformance.model import Affected, Case, Inputs, Reference

CASES = (
    Case(
        id="empty-shard",
        title="a microbatch without a single target",
        fault="The logged MTP loss is NaN, and without calculate_per_token_loss every gradient too: one such shard of "
        "one rank ends the training. 0 losses are divided by a count of 0.",
        property="values",
        references=(Reference("Megatron-LM", 3396), Reference("mcore-bridge", 104), Reference("verl", 6464)),
        affected=(Affected("megatron-core", until="0.16.1"), Affected("verl", until="0.8.0")),
        inputs=Inputs(labels=[[5, 6]], loss_mask=[[1, 0]], per_token=False),
        expected={"coefficients": [[[0.0, 0.0]]], "logged": [0.0]},
        arithmetic="Shifted by one, the mask [1, 0] is [0, 0]: no target, so the loss and its gradient are 0.",
    ),
    Case(
        id="per-token-scale",
        title="the weight of the MTP loss with calculate_per_token_loss",
        fault="The MTP loss is trained with too little weight, the less the shorter the sequences: all gradients are "
        "later divided by the main loss's token count, but the MTP loss has fewer tokens.",
        property="gradient",
        references=(Reference("Megatron-LM", 2417), Reference("Megatron-LM", 3159)),
        affected=(Affected("megatron-core", until="0.16.1"), Affected("verl", until="0.8.0")),
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]]),
        expected={"coefficients": [[[4 / 3, 4 / 3, 4 / 3, 0.0]]]},
        arithmetic="4 tokens, 3 targets: 3 coefficients of 4/3, later divided by 4, weigh 1 together, as lambda says.",
    ),
)
