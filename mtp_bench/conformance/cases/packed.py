"""Which token a position is trained on where several sequences share a row."""

from __future__ import annotations

from mtp_bench.conformance.applies import supported_without_packed_roll
from mtp_bench.conformance.model import Affected, Case, Definition, Inputs, Reference

CASES = (
    Case(
        id="packed-boundary",
        title="two packed sequences",
        fault="The last token of a sequence is trained on the first one of the next sequence, which has nothing to do "
        "with it.",
        property="values",
        references=(Reference("Megatron-LM", 1647),),
        affected=(Affected("megatron-core", until="0.15.3"),),
        inputs=Inputs(labels=[[1, 2, 3, 4, 5]], loss_mask=[[1, 1, 1, 1, 1]], cu_seqlens=[0, 3, 5]),
        expected={"targets": [[[2, 3, 0, 5, 0]]]},
        arithmetic="The sequences are [1, 2, 3] and [4, 5]. After 3 and after 5 nothing follows.",
        applies=supported_without_packed_roll,
    ),
    Case(
        id="packed-counts",
        title="the weight of the MTP loss over two packed sequences",
        fault="The count has the tokens that end a sequence in it, so the MTP loss has too little weight.",
        property="gradient",
        references=(Reference("Megatron-LM", 1647),),
        inputs=Inputs(labels=[[1, 2, 3, 4, 5]], loss_mask=[[1, 1, 1, 1, 1]], cu_seqlens=[0, 3, 5], per_token=False),
        expected={"coefficients": [[[1 / 3, 1 / 3, 0.0, 1 / 3, 0.0]]]},
        arithmetic="2 targets in the first sequence and 1 in the second: 1 over 3 each.",
    ),
    Case(
        id="packed-depths",
        title="two depths over packed sequences",
        fault="The second depth reaches into the next sequence, or a short sequence is trained where it has ended.",
        property="values",
        references=(Reference("Megatron-LM", 1647),),
        inputs=Inputs(labels=[[1, 2, 3, 4, 5]], loss_mask=[[1, 1, 1, 1, 1]], cu_seqlens=[0, 3, 5], depths=2),
        expected={"targets": [[[2, 3, 0, 5, 0]], [[3, 0, 0, 0, 0]]]},
        arithmetic="Two tokens beyond the label there is 3 for the first token, and nothing in the second sequence.",
    ),
    Case(
        id="packed-length-1",
        title="packed sequences of one token",
        fault="A sequence of one token is trained on the first token of the next one, or shifts its neighbours.",
        property="values",
        inputs=Inputs(labels=[[1, 2, 3, 4]], loss_mask=[[1, 1, 1, 1]], cu_seqlens=[0, 1, 2, 4]),
        expected={"targets": [[[0, 0, 4, 0]]]},
        arithmetic="Only the third sequence has a second token.",
    ),
    Case(
        id="packed-empty",
        title="packed sequences without a token",
        fault="A sequence of length 0, as in cu_seqlens of a fixed size, raises or shifts its neighbours.",
        property="values",
        references=(Reference("Megatron-LM", 3035),),
        inputs=Inputs(labels=[[1, 2, 3, 4, 5]], loss_mask=[[1, 1, 1, 1, 1]], cu_seqlens=[0, 0, 3, 3, 5, 5]),
        expected={"targets": [[[2, 3, 0, 5, 0]]]},
        arithmetic="As the two sequences alone, [1, 2, 3] and [4, 5].",
    ),
    Case(
        id="packed-padding",
        title="padding between packed sequences, boundaries without it in cu_seqlens_q",
        fault="Tokens are trained on padding and on other sequences, and the count is wrong: the row is shifted within "
        "the boundaries of cu_seqlens_q, which leave the padding out and are not where the sequences lie. Where they "
        "do is in cu_seqlens_q_padded.",
        property="values",
        references=(Reference("Megatron-LM", 4495), Reference("Megatron-LM", 6205)),
        affected=(Affected("megatron-core", since="0.16.0"), Affected("verl", since="0.8.0")),
        inputs=Inputs(
            labels=[[1, 2, 3, 9, 4, 5, 9, 9]],
            loss_mask=[[1, 1, 1, 0, 1, 1, 0, 0]],
            cu_seqlens=[0, 3, 5],
            cu_seqlens_padded=[0, 4, 8],
        ),
        expected={"targets": [[[2, 3, 0, 0, 5, 0, 0, 0]]]},
        arithmetic="With their padding, 9, the sequences lie at 0 to 3 and 4 to 7. 2 and 3 follow in the first, 5 in "
        "the second: three targets.",
    ),
    Case(
        id="packed-padded-bounds",
        title="padding between packed sequences, boundaries with it in cu_seqlens_q",
        fault="Padding is trained on, or the last token of a sequence on the first of the next one. verl passes "
        "boundaries like this.",
        property="values",
        references=(Reference("Megatron-LM", 4495),),
        inputs=Inputs(labels=[[1, 2, 3, 9, 4, 5, 9, 9]], loss_mask=[[1, 1, 1, 0, 1, 1, 0, 0]], cu_seqlens=[0, 4, 8]),
        expected={"targets": [[[2, 3, 0, 0, 5, 0, 0, 0]]]},
        arithmetic="As without padding: 2 and 3 follow in the first sequence, 5 in the second.",
    ),
    Case(
        id="packed-tail",
        title="a row that is longer than its last boundary",
        fault="What follows the last boundary belongs to no sequence, and versions treat it differently.",
        property="values",
        inputs=Inputs(labels=[[1, 2, 3, 4, 5, 6]], loss_mask=[[1, 1, 1, 1, 1, 1]], cu_seqlens=[0, 4]),
        definitions=(
            Definition(
                "kept",
                "the tail keeps its labels and its mask, so each token there is trained on its own label (Megatron's "
                "loop, 0.16 to 0.19)",
                {"targets": [[[2, 3, 4, 0, 5, 6]]]},
            ),
            Definition(
                "shifted",
                "the tail is one more sequence (Megatron's development branch after 0.19)",
                {"targets": [[[2, 3, 4, 0, 6, 0]]]},
            ),
            Definition("masked", "the tail is no sequence and is not trained", {"targets": [[[2, 3, 4, 0, 0, 0]]]}),
        ),
        arithmetic="The sequence is [1, 2, 3, 4], the tail [5, 6].",
    ),
)
