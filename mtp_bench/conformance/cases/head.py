"""The output layer as models have it: shared with the embedding, split over ranks, trained by the MTP loss or not."""

from __future__ import annotations

from mtp_bench.conformance.model import Case, Definition, Inputs, Reference

CASES = (
    Case(
        id="head-detach",
        title="does the MTP loss train the output layer",
        fault="The MTP loss changes lm_head, which the main model answers with: in fine-tuning that is not wanted by "
        "all.",
        property="gradient",
        references=(Reference("verl", 6432),),
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], per_token=False),
        definitions=(
            Definition("detached", "it does not, as in verl", {"head_trained": False}),
            Definition("trained", "it does, as in Megatron without mtp_detach_heads", {"head_trained": True}),
        ),
        arithmetic="Both are in use: verl passes the layer's parameters detached, Megatron as they are.",
    ),
    Case(
        id="head-detach-option",
        title="mtp_detach_heads keeps the output layer as it is",
        fault="The MTP loss changes lm_head although mtp_detach_heads is set.",
        property="gradient",
        references=(Reference("verl", 6432),),
        inputs=Inputs(
            labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], per_token=False, config={"mtp_detach_heads": True}
        ),
        expected={"head_trained": False, "coefficients": [[[1 / 3, 1 / 3, 1 / 3, 0.0]]]},
        arithmetic="No gradient for the head; 1 over 3 targets for the MTP block.",
    ),
    Case(
        id="head-tied",
        title="an output layer that shares the embedding's weight",
        fault="A model with tied weights raises or predicts with the wrong weight: its output layer has none of its "
        "own, and output_weight is not passed on.",
        property="values",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], head="tied", per_token=False),
        expected={"coefficients": [[[1 / 3, 1 / 3, 1 / 3, 0.0]]]},
        arithmetic="The weight of the embedding is 1: 1 over 3 targets.",
    ),
    Case(
        id="head-sequence-parallel",
        title="an output layer that gathers the sequence",
        fault="With sequence parallelism a rank holds a part of the hidden states and all labels: a loss that takes "
        "their lengths for equal raises or trains the wrong tokens.",
        property="values",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], head="sequence_parallel", per_token=False),
        expected={"coefficients": [[[1 / 3, 1 / 3]]], "result": [[1.0, 2.0]]},
        arithmetic="This rank holds the first 2 of 4 positions; over all there are 3 targets.",
    ),
    Case(
        id="head-scaled-logits",
        title="logits that are scaled before the loss",
        fault="With scale_logits_fn, as for muP, the MTP loss is that of other logits than the model's.",
        property="values",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], logits_factor=2.0, per_token=False),
        expected={"coefficients": [[[2 / 3, 2 / 3, 2 / 3, 0.0]]]},
        arithmetic="Logits times 2, and with them the loss: 2 over 3 targets.",
    ),
)
