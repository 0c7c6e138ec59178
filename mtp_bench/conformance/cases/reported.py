"""Faults that were reported in frameworks with an MTP loss of their own, and masks that they disagree about."""

from __future__ import annotations

from mtp_bench.conformance.applies import supported_without_packed_roll
from mtp_bench.conformance.model import Affected, Case, Definition, Inputs, Reference

CASES = (
    Case(
        id="double-shift",
        title="labels that the data pipeline has shifted, and input ids beside them",
        fault="Every depth is trained on the token after its own: labels that hold the next token already are shifted "
        "once more, or made again from input_ids, which do not know the token after the last one.",
        property="values",
        references=(Reference("miles", 2215),),
        inputs=Inputs(labels=[[2, 3, 4, 9]], loss_mask=[[1, 1, 1, 1]], input_ids=[[1, 2, 3, 4]], depths=2),
        expected={"targets": [[[3, 4, 9, 0]], [[4, 9, 0, 0]]]},
        arithmetic="The tokens are 1, 2, 3, 4 and then 9. Position 0 holds 1, its label is 2; depth 1 predicts 3, "
        "depth 2 predicts 4. The last targets are 9.",
    ),
    Case(
        id="depth-denominators",
        title="packed sequences that end before the second depth",
        fault="Deeper depths weigh less than they should, the more the shorter the sequences: all are divided by the "
        "number of tokens of the main loss, and each boundary takes one more target from each depth.",
        property="gradient",
        references=(Reference("torchtitan", 4682),),
        inputs=Inputs(
            labels=[[1, 2, 3, 4, 5]], loss_mask=[[1, 1, 1, 1, 1]], cu_seqlens=[0, 2, 5], depths=2, per_token=False
        ),
        expected={"coefficients": [[[1 / 6, 0.0, 1 / 6, 1 / 6, 0.0]], [[0.0, 0.0, 1 / 2, 0.0, 0.0]]]},
        arithmetic="Each of 2 depths has the share 1/2. The sequences are [1, 2] and [3, 4, 5]. Depth 1 has the "
        "targets 2, 4 and 5: 1/2 / 3 = 1/6 each. Depth 2 has 5 alone: 1/2.",
    ),
    Case(
        id="row-without-targets",
        title="a row without targets beside one that has some",
        fault="A sample that is too short for the depth spoils the microbatch: its own mean is 0/0, and NaN reaches "
        "the other samples' gradients.",
        property="values",
        references=(Reference("VeOmni", 1088),),
        inputs=Inputs(labels=[[1, 2, 3], [4, 5, 6]], loss_mask=[[1, 1, 1], [1, 0, 0]], per_token=False),
        expected={"coefficients": [[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]], "logged": [1.0]},
        arithmetic="Shifted by one, the masks are [1, 1, 0] and [0, 0, 0]: 2 targets in all, 1/2 each. The losses are "
        "1, so their mean is 1.",
    ),
    Case(
        id="mask-with-gaps",
        title="a response with tool output inside",
        fault="Tokens that the policy did not write are trained on, or tokens that it did write are not: the mask is "
        "taken for a prompt followed by a response, so that its zeros inside are lost, or it is not shifted with the "
        "labels.",
        property="values",
        references=(Reference("verl", 6432),),
        inputs=Inputs(labels=[[1, 2, 3, 4, 5, 6]], loss_mask=[[0, 1, 0, 1, 1, 1]], per_token=False),
        expected={
            "targets": [[[2, 0, 4, 5, 6, 0]]],
            "coefficients": [[[0.25, 0.0, 0.25, 0.25, 0.25, 0.0]]],
        },
        arithmetic="The mask goes with the label: 2, 4, 5 and 6 count. They are the targets of positions 0, 2, 3 and "
        "4, a quarter each.",
    ),
    Case(
        id="pad-is-eos",
        title="padding with the end-of-sequence token",
        fault="The model is trained to repeat the end-of-sequence token over the padding: the mask does not reach the "
        "MTP loss, and the labels alone cannot tell padding from the real end.",
        property="values",
        references=(Reference("Megatron-Bridge", 6103), Reference("Megatron-Bridge", 6105)),
        inputs=Inputs(labels=[[5, 6, 2, 2, 2]], loss_mask=[[1, 1, 1, 0, 0]], per_token=False),
        expected={"targets": [[[6, 2, 0, 0, 0]]], "coefficients": [[[0.5, 0.5, 0.0, 0.0, 0.0]]]},
        arithmetic="2 ends the sequence once and pads it twice. The mask keeps the label 6 and the first 2: two "
        "targets, 1/2 each.",
    ),
    Case(
        id="packed-no-mask",
        title="packed sequences without a mask",
        fault="The last position of each sequence is trained on label 0, which the roll left there, or on the next "
        "sequence's first label: without a mask nobody says that it has no target.",
        property="gradient",
        references=(Reference("PaddleFleet", 1808), Reference("Megatron-LM", 1647)),
        affected=(Affected("megatron-core", until="0.15.3"),),
        inputs=Inputs(labels=[[1, 2, 3, 4, 5, 6]], loss_mask=None, cu_seqlens=[0, 3, 6], per_token=False),
        expected={"coefficients": [[[0.25, 0.25, 0.0, 0.25, 0.25, 0.0]]]},
        arithmetic="Two sequences of 3 tokens have 2 targets each: 4 in all, 1/4 each; positions 2 and 5 are last.",
        applies=supported_without_packed_roll,
    ),
    Case(
        id="logical-end",
        title="a packed sequence that is shorter than its place in the row, without a mask",
        fault="Padding is trained on: where the sequence ends before its place in the row does, padding counts as a "
        "target, or stays in the tensor as it was with its mask of 1.",
        property="values",
        references=(Reference("Megatron-LM", 7278),),
        affected=(Affected("megatron-core", since="0.14.0"), Affected("verl", since="0.8.0")),
        inputs=Inputs(
            labels=[[1, 2, 3, 4, 5, 9, 9, 9]],
            loss_mask=None,
            cu_seqlens=[0, 5],
            cu_seqlens_padded=[0, 8],
            per_token=False,
        ),
        expected={
            "targets": [[[2, 3, 4, 5, 0, 0, 0, 0]]],
            "coefficients": [[[0.25, 0.25, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0]]],
        },
        arithmetic="5 tokens in 8 places: the targets are 2 to 5, a quarter each. Position 4 has none left, the rest "
        "is padding.",
        applies=supported_without_packed_roll,
    ),
    Case(
        id="log-per-depth",
        title="the logged loss of each depth",
        fault="Only the first or the last depth shows in the log, or their sum: with more than one depth there is one "
        "value each to log.",
        property="log",
        references=(Reference("slime", 2131), Reference("slime", 2132)),
        inputs=Inputs(labels=[[1, 2, 3, 4]], loss_mask=[[1, 1, 1, 1]], losses=[[1, 2, 6, 8]], depths=2),
        expected={"logged": [3.0, 1.5]},
        arithmetic="Depth 1 has the targets of positions 0 to 2: (1 + 2 + 6) / 3 = 3. Depth 2 those of 0 and 1: "
        "(1 + 2) / 2 = 1.5.",
    ),
    Case(
        id="tied-vocabulary",
        title="an output layer that shares the weight of a vocabulary",
        fault="Training a model with tied weights raises at the first step: the weight is asked whether it is true, "
        "in place of whether it is there, and a tensor with more than one element is neither.",
        property="values",
        references=(Reference("slime", 709),),
        inputs=Inputs(
            labels=[[1, 2, 3, 1]], loss_mask=[[1, 1, 1, 1]], loss="cross_entropy", head="tied", per_token=False
        ),
        expected={"coefficients": [[[1 / 3, 1 / 3, 1 / 3, 0.0]]]},
        arithmetic="The weight has a row for each of 4 tokens. Three targets, 1/3 each.",
    ),
    Case(
        id="mask-chain",
        title="a target that counts, reached through one that does not",
        fault="Targets are trained on with a weight that no definition gives them.",
        property="gradient",
        references=(Reference("slime", 751),),
        inputs=Inputs(labels=[[1, 2, 3, 4]], loss_mask=[[1, 0, 1, 1]], per_token=False),
        definitions=(
            Definition(
                "target",
                "a position is trained on where its own target counts (Megatron, verl)",
                {"coefficients": [[[0.0, 0.5, 0.5, 0.0]]]},
            ),
            Definition(
                "chain",
                "the main model's target at the position must count too, and these positions share the weight",
                {"coefficients": [[[0.0, 0.0, 1.0, 0.0]]]},
            ),
            Definition(
                "chain over targets",
                "the main model's target must count too, the weight is shared with the targets left out (slime 0.5.6)",
                {"coefficients": [[[0.0, 0.0, 0.5, 0.0]]]},
            ),
        ),
        arithmetic="Shifted by one, the mask is [0, 1, 1, 0]: two targets, 1/2 each. Position 1 gets its target from "
        "a token that does not count; without it one is left, with the weight 1, or 1/2 where two are still counted.",
    ),
)
