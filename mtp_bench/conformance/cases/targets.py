"""Which token a position is trained on: the one after its label, in its own sequence, and none where there is none."""

from __future__ import annotations

from mtp_bench.conformance.judging import judge_as
from mtp_bench.conformance.model import Affected, Case, Definition, Inputs, Observation, Outcome, Reference

_NO_LABELS = "without labels it computes no MTP loss"


def _of_derived_labels(case: Case, observation: Observation) -> Outcome:
    """Most losses need labels, which is no fault; of those that do without, some train nothing."""
    if observation.error:
        return Outcome(
            "not_applicable", detail=f"it needs labels: without, it raised {observation.error.partition(':')[0]}"
        )
    if not observation.labels and not case.definitions:
        return Outcome("not_applicable", detail=_NO_LABELS)
    return judge_as(case, observation)


CASES = (
    Case(
        id="row-boundary",
        title="two rows in one microbatch",
        fault="The last token of a row is trained on the first of the next one, or of its own.",
        property="values",
        inputs=Inputs(labels=[[1, 2, 3], [4, 5, 6]], loss_mask=[[1, 1, 1], [1, 1, 1]]),
        expected={"targets": [[[2, 3, 0], [5, 6, 0]]]},
        arithmetic="After 3 and after 6 nothing follows.",
    ),
    Case(
        id="depth-targets",
        title="the targets of two depths",
        fault="A depth is trained to predict the token of another depth.",
        property="values",
        inputs=Inputs(labels=[[1, 2, 3, 4]], loss_mask=[[1, 1, 1, 1]], depths=2),
        expected={"targets": [[[2, 3, 4, 0]], [[3, 4, 0, 0]]]},
        arithmetic="The first depth predicts one token beyond the label, the second two.",
    ),
    Case(
        id="ignore-index",
        title="the label -100 without a loss mask",
        fault="With loss_mask=None a label of -100, which no cross entropy of PyTorch trains on, is trained on as if "
        "it were a token: the loss there is ln 4 = 1.386, the log is an average with it, and the gradient follows.",
        property="values",
        references=(Reference("ms-swift", 8192),),
        affected=(Affected("megatron-core", since="0.14.0"), Affected("verl", since="0.8.0")),
        inputs=Inputs(labels=[[1, 2, -100, 3]], loss_mask=None, loss="cross_entropy", per_token=False),
        definitions=(
            Definition(
                "ignored",
                "a label of -100 is no target, as in PyTorch's cross entropy",
                {"coefficients": [[[1 / 2, 0.0, 1 / 2, 0.0]]]},
            ),
            Definition(
                "trained",
                "the loss mask alone decides, and without one every label is a target, as in Megatron",
                {"coefficients": [[[1 / 3, 1 / 3, 1 / 3, 0.0]]]},
            ),
        ),
        arithmetic="Shifted by one, the labels are [2, -100, 3]. Without the -100 there are 2 targets, with it 3.",
    ),
    Case(
        id="labels-from-ids",
        title="no labels, and a loss mask that belongs to labels",
        fault="Where labels are derived from input_ids, the loss mask is shifted along with them. One that already "
        "belongs to labels is then a token early: the end of the prompt is trained, the end of the response is not.",
        property="values",
        references=(Reference("miles", 3219), Reference("miles", 3233)),
        affected=(Affected("megatron-core", since="0.19.0"),),
        inputs=Inputs(labels=None, input_ids=[[10, 11, 12, 13, 14, 15]], loss_mask=[[0, 0, 1, 1, 1, 0]]),
        definitions=(
            Definition(
                "mask of labels",
                "loss_mask belongs to labels whether they are given or not: the response, tokens 3 to 5, is trained",
                {"targets": [[[0, 13, 14, 15, 0, 0]]]},
            ),
            Definition(
                "mask of input_ids",
                "without labels, loss_mask belongs to input_ids and is shifted with them, so that this one trains "
                "tokens 2 to 4; pass [0, 0, 0, 1, 1, 1]",
                {"targets": [[[12, 13, 14, 0, 0, 0]]]},
            ),
            Definition("no loss", _NO_LABELS, {"targets": []}),
        ),
        arithmetic="Tokens 10 to 15, the response is 13 to 15. The label of token 2 is 13, so the mask of the labels "
        "is [0, 0, 1, 1, 1, 0]; the first depth predicts one token beyond, so positions 1 to 3 are trained on 13 to "
        "15.",
        judge=_of_derived_labels,
    ),
    Case(
        id="labels-from-ids-end",
        title="no labels and no loss mask",
        fault="Where labels are derived from input_ids, the last one is made up, since no token follows. It is trained "
        "on unless the mask is shifted along: token 0 is predicted at the end of every sequence.",
        property="values",
        references=(Reference("miles", 3219),),
        inputs=Inputs(labels=None, input_ids=[[10, 11, 12, 13]], loss_mask=None, per_token=False),
        expected={"coefficients": [[[1 / 2, 1 / 2, 0.0, 0.0]]], "targets": [[[12, 13, 0, 0]]]},
        arithmetic="The labels are [11, 12, 13], and beyond them [12, 13]: 1 over 2 targets.",
        judge=_of_derived_labels,
    ),
)
