"""Loss masks and labels as frameworks pass them: none, of any dtype, fractional, views of other tensors."""

from __future__ import annotations

from mtp_bench.conformance.model import Affected, Case, Inputs

_BF16_TOKENS, _FP16_TOKENS = 258, 65_600
_OF_TWO_ROWS = [[[1 / 4, 1 / 4, 0.0], [1 / 4, 1 / 4, 0.0]]]

CASES = (
    Case(
        id="mask-none",
        title="no loss mask",
        fault="A loss without a loss mask raises, or trains nothing or the wrong tokens.",
        property="values",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=None, per_token=False),
        expected={"coefficients": [[[1 / 3, 1 / 3, 1 / 3, 0.0]]]},
        arithmetic="Every token counts, as with a mask of ones: 1 over 3 targets.",
    ),
    Case(
        id="mask-bool",
        title="a boolean loss mask",
        fault="A boolean mask raises, or is counted wrongly.",
        property="values",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 0, 1]], mask_dtype="bool", per_token=False),
        expected={"coefficients": [[[1 / 2, 0.0, 1 / 2, 0.0]]]},
        arithmetic="Shifted by one, the mask is [1, 0, 1, 0]: 1 over 2 targets.",
    ),
    Case(
        id="mask-int",
        title="an integer loss mask",
        fault="An integer mask raises, or its count is divided as integers are.",
        property="values",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 0, 1]], mask_dtype="int64", per_token=False),
        expected={"coefficients": [[[1 / 2, 0.0, 1 / 2, 0.0]]]},
        arithmetic="Shifted by one, the mask is [1, 0, 1, 0]: 1 over 2 targets.",
    ),
    Case(
        id="mask-fractional",
        title="weights in place of a mask, together less than 1",
        fault="The MTP loss of a microbatch whose weights add up to less than 1 is trained too little: a count of 0.5, "
        "clamped to at least 1, divides by 1 instead of 0.5.",
        property="values",
        affected=(Affected("megatron-core", since="0.17.0"), Affected("verl", since="0.9.0")),
        inputs=Inputs(labels=[[5, 6, 7]], loss_mask=[[1, 0.5, 0]], per_token=False),
        expected={"coefficients": [[[1.0, 0.0, 0.0]]]},
        arithmetic="Shifted by one, the weights are [0.5, 0, 0]. Their mean is that of the one target: 0.5 / 0.5.",
    ),
    Case(
        id="mask-bf16",
        title="a loss mask in bf16 over more than 256 tokens",
        fault="The MTP loss is off by up to 0.4 % at more than 256 targets: bf16 has 8 significant bits, so the sum of "
        "a bf16 mask is rounded, 257 to 256.",
        property="values",
        affected=(Affected("megatron-core", since="0.14.0"), Affected("verl", since="0.8.0")),
        inputs=Inputs(
            labels=[[1] * _BF16_TOKENS], loss_mask=[[1] * _BF16_TOKENS], mask_dtype="bfloat16", per_token=False
        ),
        expected={"coefficients": [[[1 / 257] * 257 + [0.0]]]},
        arithmetic="258 tokens, 257 targets: 1 over 257, not over 256.",
        tolerance=1e-4,
    ),
    Case(
        id="mask-fp16",
        title="a loss mask in fp16 over more than 65,504 tokens",
        fault="At more than 65,504 tokens the MTP loss is 0 and trains nothing, or is NaN with "
        "calculate_per_token_loss: no greater number exists in fp16, so the sum of an fp16 mask is infinite.",
        property="values",
        affected=(Affected("megatron-core", since="0.14.0"), Affected("verl", since="0.8.0")),
        inputs=Inputs(
            labels=[[1] * _FP16_TOKENS], loss_mask=[[1] * _FP16_TOKENS], mask_dtype="float16", per_token=False
        ),
        expected={"coefficients": [[[1 / 65_599] * 65_599 + [0.0]]]},
        arithmetic="65,600 tokens, 65,599 targets: 1 over 65,599, not over infinity.",
        tolerance=1e-4,
    ),
    Case(
        id="labels-int32",
        title="labels in int32",
        fault="int32 labels raise, or are not the tokens that are trained on.",
        property="values",
        inputs=Inputs(
            labels=[[1, 2, 3, 1]],
            loss_mask=[[1, 1, 1, 1]],
            labels_dtype="int32",
            loss="cross_entropy",
            per_token=False,
        ),
        expected={"targets": [[[2, 3, 1, 0]]], "coefficients": [[[1 / 3, 1 / 3, 1 / 3, 0.0]]]},
        arithmetic="Shifted by one, the labels are [2, 3, 1], each with 1 over 3 targets.",
    ),
    Case(
        id="inputs-transposed",
        title="labels and mask that are not contiguous",
        fault="Labels and masks that are transposed views raise, or are read in the wrong order.",
        property="values",
        inputs=Inputs(
            labels=[[1, 2, 3], [4, 5, 6]], loss_mask=[[1, 1, 1], [1, 1, 1]], layout="transposed", per_token=False
        ),
        expected={"coefficients": _OF_TWO_ROWS, "targets": [[[2, 3, 0], [5, 6, 0]]]},
        arithmetic="2 targets a row: 1 over 4 each.",
    ),
    Case(
        id="inputs-expanded",
        title="labels and mask whose rows share their memory",
        fault="Expanded labels and masks raise, or a write into one row shows in all of them.",
        property="values",
        inputs=Inputs(
            labels=[[1, 2, 3], [1, 2, 3]], loss_mask=[[1, 1, 1], [1, 1, 1]], layout="expanded", per_token=False
        ),
        expected={"coefficients": _OF_TWO_ROWS, "targets": [[[2, 3, 0], [2, 3, 0]]]},
        arithmetic="2 targets a row: 1 over 4 each.",
    ),
)
