"""A fix that is taken out of ``exact``, which passes everything, makes exactly the cases of that fix fail."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mtp_bench import variants
from mtp_bench.conformance import all_cases
from mtp_bench.conformance.worker import run_case
from mtp_bench.patching import replaced
from mtp_bench.variants import Variant, common, exact

ALONE = [case for case in all_cases() if case.ranks is None]


def without_clamp():
    """Counts are divided by as they are."""
    return replaced(exact, "_ratio", lambda dividend, count: dividend / count)


def with_clamp_at_1():
    """Counts below 1 are taken for 1."""
    return replaced(exact, "_ratio", lambda dividend, count: dividend / count.clamp(min=1))


def without_rescaling():
    """With calculate_per_token_loss the sum is trained, whatever the counts."""
    factor = exact.Counts.factor

    def unscaled(counts, depth, config):
        return 1.0 if config.calculate_per_token_loss else factor(counts, depth, config)

    return replaced(exact.Counts, "factor", unscaled)


def without_mean_in_log():
    """The sum is logged."""
    return replaced(exact.Counts, "logged_factor", lambda counts, depth: 1.0)


def without_detach():
    """The output layer is called with its own parameters."""
    return common.surroundings(head_trained=True)


def without_loss_scale():
    """The loss is attached to the backward pass by something that does not know the loss scale."""

    class Attach(torch.autograd.Function):
        @staticmethod
        def forward(ctx, hidden_states, loss):
            ctx.loss = loss
            return hidden_states

        @staticmethod
        def backward(ctx, gradient):
            return gradient, torch.ones_like(ctx.loss)

    return replaced(exact, "add_to_backward", Attach.apply)


def without_replacing_masked_losses():
    """Masked losses are multiplied by 0."""
    return replaced(torch.Tensor, "masked_fill", keeping_losses(torch.Tensor.masked_fill))


def keeping_losses(masked_fill):
    def filled(tensor, mask, value):
        return tensor if tensor.requires_grad else masked_fill(tensor, mask, value)

    return filled


def without_ignore_index():
    """-100 is a label as any other."""
    return replaced(exact, "IGNORED", -1)


def over_boundaries(*, packed_seq_params, **arguments):
    """The row is shifted as if it held one sequence."""
    return exact.exact(packed_seq_params=None, **arguments)


def over_padding(*, packed_seq_params, **arguments):
    """The sequences are taken to lie at cu_seqlens_q, whatever their padding."""
    if packed_seq_params is not None:
        bounds = packed_seq_params.cu_seqlens_q
        packed_seq_params = replace(packed_seq_params, cu_seqlens_q_padded=bounds, cu_seqlens_kv_padded=bounds)
    return exact.exact(packed_seq_params=packed_seq_params, **arguments)


def in_place(*, labels, loss_mask, **arguments):
    """The caller's labels and mask are shifted where they are."""
    result = exact.exact(labels=labels, loss_mask=loss_mask, **arguments)
    for given in (labels, loss_mask):
        if given is not None:
            given.copy_(torch.cat([given[..., 1:], torch.zeros_like(given[..., :1])], dim=-1))
    return result


def logging_always(*, is_training, **arguments):
    """Evaluation is logged as well."""
    return exact.exact(is_training=True, **arguments)


def asking_the_host(*, loss_mask, **arguments):
    """The host asks whether there is anything to do."""
    if loss_mask is not None and loss_mask.sum() < 0:
        raise AssertionError
    return exact.exact(loss_mask=loss_mask, **arguments)


def without_output_weight(*, output_weight, **arguments):
    """The output layer is taken to have its own weight."""
    return exact.exact(output_weight=None, **arguments)


_EMPTY = {"empty-shard", "empty-shard-per-token", "all-masked", "one-token", "more-depths-than-tokens"}
_BOUNDARIES = {
    "packed-boundary",
    "packed-counts",
    "packed-depths",
    "packed-empty",
    "packed-length-1",
    "packed-padding",
    "packed-padded-bounds",
    "packed-no-mask",
    "depth-denominators",
    "logical-end",
    "packed-tail",  # the last token before the tail is trained on its first
}

# What is taken out: how, and the cases that fail then.
INSIDE = {
    "clamp": (without_clamp, _EMPTY),
    "counts below 1": (with_clamp_at_1, {"mask-fractional", "log-fractional"}),
    "rescaling": (without_rescaling, {"per-token-scale", "per-token-depths"}),
    "log": (
        without_mean_in_log,
        {"log-mean", "log-unscaled", "log-fractional", "log-infinite", "log-per-depth", "row-without-targets"},
    ),
    "masked losses": (without_replacing_masked_losses, {"log-infinite"}),
    "loss scale": (without_loss_scale, {"loss-scale", "microbatches"}),
}
AROUND = {
    "boundary mask": (over_boundaries, _BOUNDARIES),
    "padding": (over_padding, {"packed-padding"}),
    # The second microbatch, or step, begins with what the first one left.
    "in-place inputs": (
        in_place,
        {
            "inputs-unchanged",
            "inputs-unchanged-packed",
            "inputs-expanded",
            "evaluation",
            "microbatches",
            "log-microbatches",
            "log-interval",
        },
    ),
    "evaluation": (logging_always, {"log-evaluation", "evaluation"}),
    "sync": (asking_the_host, {"no-sync", "no-sync-empty", "no-sync-packed"}),
    "output weight": (without_output_weight, {"head-tied", "tied-vocabulary"}),
}
# What is a definition and no fault: the cases, and the definition that is followed then.
OTHERWISE = {
    "detach": (without_detach, {"head-detach": "trained"}),
    "ignore-index": (without_ignore_index, {"ignore-index": "trained"}),
}


@pytest.fixture(scope="module")
def complete():
    """``exact`` as it is."""
    return variants.load("exact")


def outcomes(variant, sim):
    return {case.id: run_case(variant, case, sim) for case in ALONE}


def failing(found):
    return {case for case, outcome in found.items() if outcome.status == "failed"}


def followed(found):
    return {case: one.detail.partition(":")[0] for case, one in found.items() if one.status == "follows"}


def test_nothing_fails_with_every_fix_in_place(complete, sim):
    assert failing(outcomes(complete, sim)) == set()


@pytest.mark.parametrize("fix", INSIDE)
def test_without_a_fix_its_cases_fail(fix, complete, sim):
    taken_out, cases = INSIDE[fix]
    with taken_out():
        found = outcomes(complete, sim)
    assert failing(found) == cases


@pytest.mark.parametrize("fix", AROUND)
def test_with_a_fault_around_it_the_cases_of_that_fault_fail(fix, sim):
    faulty, cases = AROUND[fix]
    assert failing(outcomes(Variant("faulty", faulty), sim)) == cases


@pytest.mark.parametrize("fix", OTHERWISE)
def test_without_a_fix_another_definition_is_followed(fix, complete, sim):
    taken_out, cases = OTHERWISE[fix]
    before = outcomes(complete, sim)
    with taken_out():
        found = outcomes(complete, sim)
    assert failing(found) == set()
    assert {case: name for case, name in followed(found).items() if name != followed(before)[case]} == cases
