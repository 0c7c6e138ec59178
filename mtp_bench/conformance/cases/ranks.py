"""Counts and targets that several ranks have together: what one rank does alone cannot show these faults.

Coefficients are those before Megatron reduces gradients: with calculate_per_token_loss they are summed over all ranks
and divided by the main loss's tokens of all ranks, without it they are averaged over all ranks.
"""

from __future__ import annotations

from mtp_bench.conformance.applies import supported
from mtp_bench.conformance.model import Affected, Case, Definition, Inputs, Ranks, Reference

_DP = Ranks(data_parallel=2)
_CP = Ranks(context_parallel=2)
_LOCAL_COUNTS = (Affected("megatron-core", since="0.14.0"), Affected("verl", since="0.8.0"))
_ISSUE = Reference("Megatron-LM", 7452)
_CP_COUNTS = Reference("Megatron-LM", 7498)
_LOG = (Reference("Megatron-LM", 4896), Reference("Megatron-LM", 5543))

DATA_PARALLEL = (
    Case(
        id="dp-counts",
        title="two data-parallel ranks with 4 and 2 tokens",
        fault="Targets of ranks with few of them are trained with more weight than others: each rank rescales by its "
        "own counts, but gradients are summed over ranks and divided by the tokens of all.",
        property="gradient",
        references=(_ISSUE,),
        affected=_LOCAL_COUNTS,
        ranks=_DP,
        inputs=Inputs(labels=[[1, 2, 3, 4], [5, 6, 0, 0]], loss_mask=[[1, 1, 1, 1], [1, 1, 0, 0]]),
        expected={"coefficients": [[[1.5, 1.5, 1.5, 0.0], [1.5, 0.0, 0.0, 0.0]]]},
        arithmetic="6 tokens and 3 + 1 = 4 targets: 6/4 each. Per-token gradients of 1 and 4 then come to "
        "1.5 (3 * 1 + 4) / 6 = 1.75 = (1 + 1 + 1 + 4) / 4; with local counts to 2.",
        applies=supported,
    ),
    Case(
        id="dp-counts-4",
        title="four data-parallel ranks with 4, 3, 2 and 1 tokens",
        fault="Targets of ranks with few of them are trained with more weight than others, and the last rank's token, "
        "which has no target, is left out of the weight of all.",
        property="gradient",
        references=(_ISSUE,),
        affected=_LOCAL_COUNTS,
        ranks=Ranks(data_parallel=4),
        inputs=Inputs(labels=[[1, 2, 3, 4]] * 4, loss_mask=[[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]]),
        expected={
            "coefficients": [
                [
                    [5 / 3, 5 / 3, 5 / 3, 0.0],
                    [5 / 3, 5 / 3, 0.0, 0.0],
                    [5 / 3, 0.0, 0.0, 0.0],
                    [0.0, 0.0, 0.0, 0.0],
                ]
            ]
        },
        arithmetic="4 + 3 + 2 + 1 = 10 tokens, 3 + 2 + 1 + 0 = 6 targets: 10/6 each.",
        applies=supported,
    ),
    Case(
        id="dp-empty-shard",
        title="a data-parallel rank without a token beside one that has some",
        fault="One rank without a target ends the training of all: its 0/0 reaches the other ranks with the gradients.",
        property="values",
        references=(Reference("Megatron-LM", 3396), Reference("verl", 6464)),
        affected=(Affected("megatron-core", until="0.16.1"), Affected("verl", until="0.8.0")),
        ranks=_DP,
        inputs=Inputs(labels=[[1, 2, 3, 4], [5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1], [0, 0, 0, 0]]),
        expected={"coefficients": [[[4 / 3, 4 / 3, 4 / 3, 0.0], [0.0, 0.0, 0.0, 0.0]]]},
        arithmetic="4 tokens and 3 targets in all, on the first rank: 4/3 each.",
        applies=supported,
    ),
    Case(
        id="dp-mean",
        title="two data-parallel ranks with 3 and 1 targets, without calculate_per_token_loss",
        fault="The weight of a rank's targets follows neither the rule of the main loss nor their number.",
        property="gradient",
        references=(_ISSUE,),
        ranks=_DP,
        inputs=Inputs(labels=[[1, 2, 3, 4], [5, 6, 0, 0]], loss_mask=[[1, 1, 1, 1], [1, 1, 0, 0]], per_token=False),
        definitions=(
            Definition(
                "ranks",
                "ranks weigh the same, as in the main loss of this mode",
                {"coefficients": [[[1 / 3, 1 / 3, 1 / 3, 0.0], [1.0, 0.0, 0.0, 0.0]]]},
            ),
            Definition(
                "targets",
                "targets weigh the same, whatever rank they are on",
                {"coefficients": [[[0.5, 0.5, 0.5, 0.0], [0.5, 0.0, 0.0, 0.0]]]},
            ),
        ),
        arithmetic="Gradients are averaged over 2 ranks. The mean of each rank's targets is 1/3 and 1 each; 4 targets "
        "of the same weight have 2/4 each.",
        applies=supported,
    ),
    Case(
        id="log-average",
        title="the logged loss of two ranks with 1 and 3 targets",
        fault="The log shows a number that is no average of the ranks.",
        property="log",
        references=_LOG,
        ranks=_DP,
        inputs=Inputs(
            labels=[[1, 2, 3, 4]] * 2,
            loss_mask=[[1, 1, 0, 0], [1, 1, 1, 1]],
            losses=[[2.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]],
            steps=1,
        ),
        definitions=(
            Definition("targets", "the mean over all ranks' targets", {"interval_average": [1.25]}),
            Definition("ranks", "the mean of the ranks' means, as Megatron's tracker", {"interval_average": [1.5]}),
        ),
        arithmetic="(sum, targets) is (2, 1) and (3, 3): 5/4 = 1.25 over the targets, (2/1 + 3/3) / 2 = 1.5 over the "
        "ranks.",
        applies=supported,
    ),
    Case(
        id="log-empty-rank",
        title="the logged loss where one of two ranks has no target",
        fault="The log shows NaN: the rank without a target logs 0/0, and the average over ranks keeps it.",
        property="log",
        references=(*_LOG, Reference("Megatron-LM", 3396)),
        affected=(Affected("megatron-core", until="0.16.1"), Affected("verl", until="0.8.0")),
        ranks=_DP,
        inputs=Inputs(
            labels=[[1, 2, 3, 4]] * 2,
            loss_mask=[[1, 1, 1, 0], [0, 0, 0, 0]],
            losses=[[2.0, 4.0, 0.0, 0.0], [9.0, 9.0, 9.0, 9.0]],
            steps=1,
        ),
        definitions=(
            Definition("targets", "the mean over all ranks' targets", {"interval_average": [3.0]}),
            Definition("ranks", "the mean over the ranks, one of which has 0", {"interval_average": [1.5]}),
        ),
        arithmetic="The targets' losses are 2 and 4: 3 over the targets, (3 + 0) / 2 over the ranks.",
        applies=supported,
    ),
)

CONTEXT_PARALLEL = (
    Case(
        id="cp-counts",
        title="a sequence on two context-parallel ranks",
        fault="Targets of one sequence are trained with different weights, as its tokens happen to be split: each rank "
        "rescales by its own counts.",
        property="gradient",
        references=(_CP_COUNTS, _ISSUE),
        affected=_LOCAL_COUNTS,
        ranks=_CP,
        inputs=Inputs(labels=[[1, 2, 3, 4]], loss_mask=[[1, 1, 1, 1]]),
        expected={"coefficients": [[[4 / 3, 4 / 3, 4 / 3, 0.0]]]},
        arithmetic="4 tokens and 3 targets: 4/3 each. The first rank has positions 0 and 3, 2 tokens and 1 target; the "
        "second 1 and 2, both with a target: local counts give 2, 1 and 1.",
        applies=supported,
    ),
    Case(
        id="cp-counts-4",
        title="a sequence on four context-parallel ranks",
        fault="Targets of one sequence are trained with different weights, as its tokens happen to be split.",
        property="gradient",
        references=(_CP_COUNTS,),
        affected=_LOCAL_COUNTS,
        ranks=Ranks(context_parallel=4),
        inputs=Inputs(labels=[[1, 2, 3, 4, 5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1, 1, 1, 0, 0]]),
        expected={"coefficients": [[[6 / 5, 6 / 5, 6 / 5, 6 / 5, 6 / 5, 0.0, 0.0, 0.0]]]},
        arithmetic="6 tokens and 5 targets: 6/5 each.",
        applies=supported,
    ),
    Case(
        id="cp-lost-target",
        title="a target on another rank than its token",
        fault="The target is not trained on: the rank that holds it has no token of the main loss, and rescales by 0.",
        property="gradient",
        references=(_CP_COUNTS,),
        affected=(Affected("megatron-core", since="0.17.1"), Affected("verl", since="0.9.1")),
        ranks=_CP,
        inputs=Inputs(labels=[[1, 2, 3, 4]], loss_mask=[[0, 1, 0, 0]]),
        expected={"coefficients": [[[1.0, 0.0, 0.0, 0.0]]], "targets": [[[2, 0, 0, 0]]]},
        arithmetic="1 token, at position 1 on the second rank, is the target of position 0 on the first: 1/1.",
        applies=supported,
    ),
    Case(
        id="cp-mean",
        title="a sequence on two context-parallel ranks, without calculate_per_token_loss",
        fault="The gradient depends on how the sequence is split: each rank divides by its own number of targets.",
        property="gradient",
        references=(_CP_COUNTS, Reference("Megatron-LM", 7513)),
        affected=_LOCAL_COUNTS,
        ranks=_CP,
        inputs=Inputs(labels=[[1, 2, 3, 4]], loss_mask=[[1, 1, 1, 1]], per_token=False),
        expected={"coefficients": [[[2 / 3, 2 / 3, 2 / 3, 0.0]]]},
        arithmetic="3 targets, 1/3 each, times the 2 ranks over which gradients are averaged.",
        applies=supported,
    ),
    Case(
        id="cp-depths",
        title="three depths on two context-parallel ranks",
        fault="Deeper targets come from the wrong tokens where the sequence is cut.",
        property="values",
        references=(Reference("Megatron-LM", 1795),),
        ranks=_CP,
        inputs=Inputs(labels=[[1, 2, 3, 4, 5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1, 1, 1, 1, 1]], depths=3),
        expected={"targets": [[[2, 3, 4, 5, 6, 7, 8, 0]], [[3, 4, 5, 6, 7, 8, 0, 0]], [[4, 5, 6, 7, 8, 0, 0, 0]]]},
        arithmetic="The first rank has positions 0, 1, 6 and 7, the second 2 to 5. Depth k predicts the label k places "
        "on, on whatever rank that is.",
        applies=supported,
    ),
    Case(
        id="cp-dp-counts",
        title="two data-parallel groups of two context-parallel ranks, with 4 and 2 tokens",
        fault="Each of four ranks rescales by its own counts.",
        property="gradient",
        references=(_ISSUE, _CP_COUNTS),
        affected=_LOCAL_COUNTS,
        ranks=Ranks(data_parallel=2, context_parallel=2),
        inputs=Inputs(labels=[[1, 2, 3, 4], [5, 6, 0, 0]], loss_mask=[[1, 1, 1, 1], [1, 1, 0, 0]]),
        expected={"coefficients": [[[1.5, 1.5, 1.5, 0.0], [1.5, 0.0, 0.0, 0.0]]]},
        arithmetic="As dp-counts: 6 tokens and 4 targets, 6/4 each, however a row is split.",
        applies=supported,
    ),
    Case(
        id="cp-log",
        title="the logged loss of a sequence on two context-parallel ranks",
        fault="The logged loss is another one than without context parallelism: ranks with few targets weigh as much "
        "as those with many.",
        property="log",
        references=_LOG,
        ranks=_CP,
        inputs=Inputs(labels=[[1, 2, 3, 4]], loss_mask=[[1, 1, 1, 1]], losses=[[6.0, 1.0, 2.0, 0.0]], steps=1),
        definitions=(
            Definition("targets", "the mean over the sequence's targets", {"interval_average": [3.0]}),
            Definition("ranks", "the mean of the ranks' means, as Megatron's tracker", {"interval_average": [3.75]}),
        ),
        arithmetic="(6 + 1 + 2) / 3 = 3 over the targets. The first rank has the 6, the second 1 and 2: "
        "(6 + 1.5) / 2 = 3.75.",
        applies=supported,
    ),
    Case(
        id="cp-packed",
        title="two packed sequences on two context-parallel ranks",
        fault="Targets cross from one sequence to the next, or come from the wrong tokens where a sequence is cut.",
        property="values",
        references=(Reference("Megatron-LM", 1647),),
        ranks=_CP,
        inputs=Inputs(
            labels=[[1, 2, 3, 4, 11, 12, 13, 14, 15, 16, 17, 18]], loss_mask=[[1] * 12], cu_seqlens=[0, 4, 12]
        ),
        expected={"targets": [[[2, 3, 4, 0, 12, 13, 14, 15, 16, 17, 18, 0]]]},
        arithmetic="Sequences of 4 and of 8 tokens, each shifted by one; the last of each has no target.",
        applies=supported,
    ),
    Case(
        id="cp-packed-counts",
        title="the weight of packed targets on two context-parallel ranks",
        fault="Targets of one sequence are trained with different weights, as its tokens happen to be split.",
        property="gradient",
        references=(_CP_COUNTS,),
        affected=(Affected("megatron-core", since="0.16.0"), Affected("verl", since="0.8.0")),
        ranks=_CP,
        inputs=Inputs(labels=[[1, 2, 3, 4, 11, 12, 13, 14]], loss_mask=[[1] * 8], cu_seqlens=[0, 4, 8]),
        expected={"coefficients": [[[4 / 3, 4 / 3, 4 / 3, 0.0, 4 / 3, 4 / 3, 4 / 3, 0.0]]]},
        arithmetic="8 tokens and 6 targets: 8/6 each.",
        applies=supported,
    ),
    Case(
        id="cp-packed-padding",
        title="packed sequences with padding between them, on two context-parallel ranks",
        fault="Tokens are trained on labels of padding or of other sequences: ranks share each sequence with its "
        "padding, but the roll looks for their parts at the boundaries without it.",
        property="values",
        references=(Reference("Megatron-LM", 4495), Reference("Megatron-LM", 6205)),
        affected=(Affected("megatron-core", since="0.16.0"),),
        ranks=_CP,
        inputs=Inputs(
            labels=[[1, 2, 3, 9, 4, 5, 9, 9]],
            loss_mask=[[1, 1, 1, 0, 1, 1, 0, 0]],
            cu_seqlens=[0, 3, 5],
            cu_seqlens_padded=[0, 4, 8],
        ),
        expected={"targets": [[[2, 3, 0, 0, 5, 0, 0, 0]]]},
        arithmetic="As packed-padding: 2 and 3 in the first sequence, 5 in the second.",
        applies=supported,
    ),
    Case(
        id="cp-packed-empty",
        title="an empty sequence among packed ones, on two context-parallel ranks",
        fault="Training raises at the first batch with a sequence too short to be shared.",
        property="values",
        references=(Reference("Megatron-LM", 3035),),
        affected=(Affected("megatron-core", since="0.16.0", until="0.16.1"),),
        ranks=_CP,
        inputs=Inputs(labels=[[1, 2, 3, 4, 5, 6, 7, 8]], loss_mask=[[1] * 8], cu_seqlens=[0, 4, 4, 8]),
        expected={"targets": [[[2, 3, 4, 0, 6, 7, 8, 0]]]},
        arithmetic="The second sequence has no token and no target.",
        applies=supported,
    ),
    Case(
        id="cp-contiguous",
        title="packed sequences on two ranks with a half of the row each",
        fault="Targets come from the wrong tokens: ranks hold the row in one piece each, as cp_partition_mode of the "
        "packed sequences says, but it is rolled as if they held two pieces of each sequence.",
        property="values",
        references=(Reference("Megatron-LM", 5946), Reference("Megatron-LM", 5706)),
        affected=(Affected("megatron-core", since="0.16.0"),),
        ranks=Ranks(context_parallel=2, split="contiguous"),
        inputs=Inputs(
            labels=[[1, 2, 3, 11, 12, 13, 14, 15]], loss_mask=[[1] * 8], cu_seqlens=[0, 3, 8], partition="contiguous"
        ),
        expected={"targets": [[[2, 3, 0, 12, 13, 14, 15, 0]]]},
        arithmetic="The first rank has positions 0 to 3, the second 4 to 7: 12, at position 4, is the target of 3.",
        applies=supported,
    ),
    Case(
        id="cp-packed-syncs",
        title="host-device syncs of packed sequences on two context-parallel ranks",
        fault="The host waits for the device several times a sequence, a depth and a microbatch, and with it every "
        "other rank: the boundaries are read one by one.",
        property="syncs",
        references=(Reference("Megatron-LM", 6246),),
        affected=(Affected("megatron-core", since="0.16.0"), Affected("verl", since="0.8.0")),
        ranks=_CP,
        inputs=Inputs(labels=[[1, 2, 3, 4, 5, 6, 7, 8]], loss_mask=[[1] * 8], cu_seqlens=[0, 4, 8]),
        expected={"syncs": []},
        arithmetic="No value of the device is needed on the host.",
        applies=supported,
    ),
)

CASES = (*DATA_PARALLEL, *CONTEXT_PARALLEL)
