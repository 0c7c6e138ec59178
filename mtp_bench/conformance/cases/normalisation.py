"""What the loss of a target is multiplied by: the scaling factor over the depths and over the depth's own targets."""

from __future__ import annotations

from mtp_bench.conformance.model import Affected, Case, Inputs, Reference

_EMPTY = (Reference("Megatron-LM", 3396), Reference("mcore-bridge", 104), Reference("verl", 6464))
_RESCALING = (Reference("Megatron-LM", 2417), Reference("Megatron-LM", 3159))
_UNFIXED = (Affected("megatron-core", until="0.16.1"), Affected("verl", until="0.8.0"))

CASES = (
    Case(
        id="empty-shard",
        title="a microbatch without a single target",
        fault="The logged MTP loss is NaN, and without calculate_per_token_loss every gradient too: one such shard of "
        "one rank ends the training. A loss of 0 is divided by a count of 0.",
        property="values",
        references=_EMPTY,
        affected=_UNFIXED,
        inputs=Inputs(labels=[[5, 6]], loss_mask=[[1, 0]], per_token=False),
        expected={"coefficients": [[[0.0, 0.0]]], "logged": [0.0]},
        arithmetic="Shifted by one, the mask [1, 0] is [0, 0]: no target, so the loss and its gradient are 0.",
    ),
    Case(
        id="empty-shard-per-token",
        title="a microbatch without a single target, with calculate_per_token_loss",
        fault="The logged MTP loss is NaN; where the gradient is rescaled by the count, it is NaN too. 0 is divided by "
        "a count of 0.",
        property="values",
        references=_EMPTY,
        affected=_UNFIXED,
        inputs=Inputs(labels=[[5, 6]], loss_mask=[[1, 0]]),
        expected={"coefficients": [[[0.0, 0.0]]], "logged": [0.0]},
        arithmetic="Shifted by one, the mask [1, 0] is [0, 0]: no target, so the loss and its gradient are 0.",
    ),
    Case(
        id="all-masked",
        title="a microbatch that carries no loss at all",
        fault="The logged MTP loss is NaN, and without calculate_per_token_loss every gradient too. A loss of 0 is "
        "divided by a count of 0.",
        property="values",
        references=_EMPTY,
        affected=_UNFIXED,
        inputs=Inputs(labels=[[5, 6, 7]], loss_mask=[[0, 0, 0]], per_token=False),
        expected={"coefficients": [[[0.0, 0.0, 0.0]]], "logged": [0.0]},
        arithmetic="The mask is 0 everywhere: no target, so the loss and its gradient are 0.",
    ),
    Case(
        id="one-token",
        title="a sequence of one token",
        fault="The logged MTP loss is NaN, and every gradient with it: one token has no token after its label, so the "
        "count is 0.",
        property="values",
        affected=_UNFIXED,
        inputs=Inputs(labels=[[7]], loss_mask=[[1]], per_token=False),
        expected={"coefficients": [[[0.0]]], "logged": [0.0]},
        arithmetic="Nothing follows the only label: no target, so the loss and its gradient are 0.",
    ),
    Case(
        id="more-depths-than-tokens",
        title="three depths over two tokens",
        fault="The depths that reach beyond the sequence log NaN, and every gradient is NaN: their count is 0.",
        property="values",
        affected=_UNFIXED,
        inputs=Inputs(labels=[[5, 6]], loss_mask=[[1, 1]], depths=3, per_token=False),
        expected={
            "coefficients": [[[1 / 3, 0.0]], [[0.0, 0.0]], [[0.0, 0.0]]],
            "logged": [1.0, 0.0, 0.0],
        },
        arithmetic="The first depth has one target, with a third of lambda = 1. The second and the third have none.",
    ),
    Case(
        id="per-token-scale",
        title="the weight of the MTP loss with calculate_per_token_loss",
        fault="The MTP loss is trained with less weight than lambda says, the less the shorter the sequences: all "
        "gradients are later divided by the main loss's token count, and the MTP loss has fewer targets than that.",
        property="gradient",
        references=_RESCALING,
        affected=_UNFIXED,
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]]),
        expected={"coefficients": [[[4 / 3, 4 / 3, 4 / 3, 0.0]]]},
        arithmetic="4 tokens, 3 targets: 3 coefficients of 4/3, later divided by 4, weigh 1 together, as lambda says.",
    ),
    Case(
        id="per-token-depths",
        title="the weight of each of two depths with calculate_per_token_loss",
        fault="Deeper predictions are trained with too little weight: each depth has one target less a sequence, and "
        "is still divided by the main loss's token count.",
        property="gradient",
        references=_RESCALING,
        affected=_UNFIXED,
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], depths=2),
        expected={"coefficients": [[[2 / 3, 2 / 3, 2 / 3, 0.0]], [[1.0, 1.0, 0.0, 0.0]]]},
        arithmetic="Half of lambda = 1 a depth. The first has 3 targets of 4 tokens: 4/3 * 1/2. The second has 2: "
        "4/2 * 1/2.",
    ),
    Case(
        id="per-token-prompt",
        title="a masked prompt with calculate_per_token_loss",
        fault="The MTP loss has another weight than lambda says wherever a prompt is masked: its last position "
        "predicts, beyond its own masked label, a token of the response.",
        property="gradient",
        references=_RESCALING,
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[0, 0, 1, 1]]),
        expected={"coefficients": [[[0.0, 1.0, 1.0, 0.0]]]},
        arithmetic="The mask shifted by one is [0, 1, 1, 0]. 2 tokens, 2 targets: a coefficient of 2/2 each.",
    ),
    Case(
        id="mean-scale",
        title="the weight of the MTP loss as a mean",
        fault="The MTP loss is divided by another count than that of its own targets, so that its weight is not "
        "lambda.",
        property="gradient",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], per_token=False, scaling_factor=0.3),
        expected={"coefficients": [[[0.1, 0.1, 0.1, 0.0]]]},
        arithmetic="lambda = 0.3 over 3 targets.",
    ),
    Case(
        id="mean-depths",
        title="the weight of each of two depths as a mean",
        fault="Lambda is not shared between the depths, or a depth is divided by the count of another one.",
        property="gradient",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], depths=2, per_token=False),
        expected={"coefficients": [[[1 / 6, 1 / 6, 1 / 6, 0.0]], [[1 / 4, 1 / 4, 0.0, 0.0]]]},
        arithmetic="Half of lambda = 1 a depth: 1/2 over 3 targets, and 1/2 over 2.",
    ),
    Case(
        id="unequal-rows",
        title="rows of different lengths in one microbatch",
        fault="Targets of short rows weigh more than those of long ones: each row is averaged on its own.",
        property="gradient",
        inputs=Inputs(labels=[[1, 2, 3, 4], [5, 6, 9, 9]], loss_mask=[[1, 1, 1, 1], [1, 1, 0, 0]], per_token=False),
        expected={"coefficients": [[[1 / 4, 1 / 4, 1 / 4, 0.0], [1 / 4, 0.0, 0.0, 0.0]]]},
        arithmetic="3 targets in the first row and 1 in the second: 1 over 4 each.",
    ),
    Case(
        id="repeated-layer",
        title="one MTP layer that is used for two depths",
        fault="With mtp_use_repeated_layer the two passes through one layer do not share lambda: the layer is trained "
        "with twice its weight.",
        property="gradient",
        inputs=Inputs(
            labels=[[5, 6, 7]],
            loss_mask=[[1, 1, 1]],
            depths=2,
            per_token=False,
            config={"mtp_use_repeated_layer": True},
        ),
        expected={"coefficients": [[[1 / 4, 1 / 4, 0.0]], [[1 / 2, 0.0, 0.0]]]},
        arithmetic="Half of lambda = 1 a depth, as with two layers: 1/2 over 2 targets, and 1/2 over 1.",
    ),
    Case(
        id="loss-scale",
        title="the loss scale of mixed precision",
        fault="In fp16 training the optimizer divides all gradients by the loss scale, but that of the MTP loss was "
        "never multiplied by it: it vanishes.",
        property="gradient",
        references=(Reference("AReaL", 1659), Reference("NeMo-RL", 3881)),
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], per_token=False, loss_scale=1024.0),
        expected={"coefficients": [[[1024 / 3, 1024 / 3, 1024 / 3, 0.0]]], "main_gradient": [[1.0, 2.0, 3.0, 4.0]]},
        arithmetic="1024 over 3 targets. The main loss brings its own scale along, so its gradient stays as it is.",
    ),
    Case(
        id="microbatches",
        title="gradients summed over microbatches by Megatron's schedule",
        fault="The MTP gradient is as many times too large as a step has microbatches: the schedule divides the main "
        "loss by their number, and the MTP loss only through MTPLossAutoScaler.",
        property="gradient",
        references=(Reference("ISEEKYAN/Megatron-LM", 56),),
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], per_token=False, microbatches=2),
        expected={"coefficients": [[[1 / 3, 1 / 3, 1 / 3, 0.0]]], "main_gradient": [[1 / 4, 1 / 4, 1 / 4, 1 / 4]]},
        arithmetic="Two microbatches, each 1/3 a target and 1/4 a token of the main loss, halved, and added up.",
    ),
)
