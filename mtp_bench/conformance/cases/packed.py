"""Which label a position is trained on where several sequences share a row."""

from __future__ import annotations

from mtp_bench.conformance.model import Affected, Case, Inputs, Reference

CASES = (
    Case(
        id="packed-padding",
        title="packed sequences with padding between them, unpadded boundaries in cu_seqlens_q",
        fault="Tokens are trained on labels of padding or of other sequences, and the count is wrong: the row is "
        "rolled at the boundaries in cu_seqlens_q, which without padding are not where sequences lie in the row.",
        property="values",
        references=(Reference("Megatron-LM", 4495), Reference("Megatron-LM", 6205)),
        affected=(Affected("megatron-core", since="0.16.0"),),
        inputs=Inputs(
            labels=[[1, 2, 3, 9, 4, 5, 9, 9]],
            loss_mask=[[1, 1, 1, 0, 1, 1, 0, 0]],
            cu_seqlens=[0, 3, 5],
            cu_seqlens_padded=[0, 4, 8],
        ),
        expected={"targets": [[[2, 3, 0, 0, 5, 0, 0, 0]]]},
        arithmetic="The sequences lie at 0 to 3 and 4 to 7 with their padding. In the first, 2 and 3 follow, in the "
        "second 5: three targets.",
    ),
)
