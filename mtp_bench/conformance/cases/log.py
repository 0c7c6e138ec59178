"""What the training log shows as MTP loss: the mean over the targets, unscaled, once a step, in training only."""

from __future__ import annotations

from mtp_bench.conformance.judging import judge_as
from mtp_bench.conformance.model import Affected, Case, Inputs, Observation, Outcome, Reference


def _of_acceptance(case: Case, observation: Observation) -> Outcome:
    if not observation.error and not observation.acceptance:
        return Outcome("not_applicable", detail="it counts no accepted tokens")
    return judge_as(case, observation)


CASES = (
    Case(
        id="log-mean",
        title="the logged loss of three targets",
        fault="The log shows another number than the mean loss of the targets.",
        property="log",
        inputs=Inputs(
            labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], losses=[[1.0, 2.0, 6.0, 100.0]], per_token=False
        ),
        expected={"logged": [3.0]},
        arithmetic="(1 + 2 + 6) / 3. The last position has no target.",
    ),
    Case(
        id="log-unscaled",
        title="the logged loss has no weight",
        fault="The log depends on lambda, on the number of depths or on calculate_per_token_loss, so that runs cannot "
        "be compared.",
        property="log",
        inputs=Inputs(labels=[[5, 6, 7]], loss_mask=[[1, 1, 1]], depths=2, scaling_factor=0.1),
        expected={"logged": [1.0, 1.0]},
        arithmetic="Every target has a loss of 1, and so has their mean, whatever it is later multiplied by.",
    ),
    Case(
        id="log-fractional",
        title="the logged loss of weights that are together less than 1",
        fault="The log shows half of the loss: weights of 0.5 in all, clamped to a count of at least 1, divide by 1.",
        property="log",
        affected=(Affected("megatron-core", since="0.18.0"),),
        inputs=Inputs(labels=[[5, 6, 7]], loss_mask=[[1, 0.5, 0]], per_token=False),
        expected={"logged": [1.0]},
        arithmetic="Shifted by one, the weights are [0.5, 0, 0]. The mean over the one target: 0.5 * 1 / 0.5.",
    ),
    Case(
        id="log-infinite",
        title="an infinite loss at a masked position",
        fault="The log shows NaN for a microbatch in which some masked position has an infinite loss, as for a token "
        "that the model rules out: 0 times infinity is NaN.",
        property="log",
        affected=(Affected("megatron-core", since="0.14.0"), Affected("verl", since="0.8.0")),
        inputs=Inputs(
            labels=[[5, 6, 7, 8]],
            loss_mask=[[1, 1, 0, 1]],
            losses=[[1.0, float("inf"), 2.0, 1.0]],
            per_token=False,
        ),
        expected={"logged": [1.5], "coefficients": [[[1 / 2, 0.0, 1 / 2, 0.0]]]},
        arithmetic="Shifted by one, the mask is [1, 0, 1, 0]: (1 + 2) / 2, and the infinite loss is not among them.",
    ),
    Case(
        id="log-interval",
        title="the average over ten steps of the log interval",
        fault="The log shows a tenth of the loss: what is added up over the interval is the tensor that is set to 0 "
        "after every step.",
        property="log",
        references=(Reference("Megatron-LM", 1684), Reference("Megatron-LM", 1686)),
        affected=(Affected("megatron-core", until="0.13.1"),),
        inputs=Inputs(labels=[[5, 6]], loss_mask=[[1, 1]], losses=[[5.0, 5.0]], per_token=False, steps=10),
        expected={"interval_average": [5.0]},
        arithmetic="Ten steps with a loss of 5: 50 / 10.",
    ),
    Case(
        id="log-microbatches",
        title="the average over two microbatches of a step",
        fault="The log shows the last microbatch alone, or the sum of all.",
        property="log",
        inputs=Inputs(
            labels=[[5, 6]], loss_mask=[[1, 1]], losses=[[4.0, 4.0]], per_token=False, microbatches=2, steps=1
        ),
        expected={"interval_average": [4.0]},
        arithmetic="Two microbatches with a loss of 4: 8, times the 1/2 by which Megatron averages them.",
    ),
    Case(
        id="log-evaluation",
        title="evaluation does not show in the training log",
        fault="The first training step after an evaluation logs the sum of both: the loss is logged whether "
        "is_training is set or not.",
        property="log",
        inputs=Inputs(labels=[[5, 6, 7]], loss_mask=[[1, 1, 1]], training=False, per_token=False),
        expected={"logged": []},
        arithmetic="With is_training=False the tracker stays empty.",
    ),
    Case(
        id="acceptance",
        title="acceptance with a loss that overwrites the logits",
        fault="The log shows that no predicted token is accepted: they are counted in the logits after a fused cross "
        "entropy has written its gradient into them.",
        property="log",
        references=(Reference("Megatron-Bridge", 5947),),
        affected=(Affected("megatron-core", since="0.19.0"),),
        inputs=Inputs(labels=[[1, 1, 1, 1]], loss_mask=[[1, 1, 1, 1]], loss="overwriting", per_token=False),
        expected={"acceptance": [(3.0, 3.0)]},
        arithmetic="Token 1 has the highest logit everywhere and is every label: 3 of 3 targets are accepted.",
        judge=_of_acceptance,
    ),
)
