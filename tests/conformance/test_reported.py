"""Each reported fault, put into a small MTP loss of its own, fails the case of that fault and no other."""

from __future__ import annotations

import functools
from itertools import pairwise

import pytest
import torch

from mtp_bench.conformance.cases import reported
from mtp_bench.conformance.judging import judge
from mtp_bench.conformance.probe import observe
from mtp_bench.devices import resolve
from mtp_bench.megatron import isolated_state, save_mtp_loss
from mtp_bench.variants import Variant

CASES = {case.id: case for case in reported.CASES}


def mtp_loss(
    hidden_states,
    labels,
    loss_mask,
    output_layer,
    output_weight,
    compute_language_model_loss,
    config,
    packed_seq_params,
    *,
    fault=None,
):
    """The MTP loss on one rank, or what ``fault`` makes of it."""
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

    depths = config.mtp_num_layers
    main, *chunks = torch.chunk(hidden_states, 1 + depths)
    spans = sequences(packed_seq_params, labels.shape[1], fault)
    mask = filled(loss_mask, labels, spans, fault)
    tokens = mask.sum()
    if fault == "tied-vocabulary":
        output_weight = output_weight if output_weight else None
    labels = shifted(labels, spans) if fault == "double-shift" else labels
    for depth, chunk in enumerate(chunks):
        labels = shifted(labels, spans)
        here = mask
        if fault != "packed-no-mask" or loss_mask is not None:
            mask = shifted(mask, spans)
        logits, _ = output_layer(chunk, weight=output_weight)
        loss = compute_language_model_loss(labels, logits) * mask
        count = mask.sum().clamp(min=1)
        if fault == "row-without-targets":
            count = mask.sum(1, keepdim=True) * len(mask)
        save_mtp_loss((loss / count).sum(), 0 if fault == "log-per-depth" else depth, depths)
        if fault == "depth-denominators":
            count = tokens
        if fault == "mask-chain":
            loss = loss * (1 + here)
        weight = config.mtp_loss_scaling_factor / depths * (tokens if config.calculate_per_token_loss else 1)
        main = MTPLossAutoScaler.apply(main, weight * loss / count)
    return main


def sequences(packed_seq_params, length, fault):
    """(first position, last position + 1) of every sequence of a row."""
    if packed_seq_params is None:
        return [(0, length)]
    places = pairwise(packed_seq_params.cu_seqlens_q_padded.tolist())
    if fault == "logical-end":
        return list(places)
    lengths = [end - start for start, end in pairwise(packed_seq_params.cu_seqlens_q.tolist())]
    return [(start, start + length) for (start, _), length in zip(places, lengths, strict=True)]


def filled(loss_mask, labels, spans, fault):
    if loss_mask is None or fault == "pad-is-eos":
        loss_mask = torch.ones_like(labels, dtype=torch.float32)
    if fault == "mask-with-gaps":  # a prompt, then a response
        loss_mask = (loss_mask.cumsum(1) > 0).float()
    return loss_mask


def shifted(rows, spans):
    result = torch.zeros_like(rows)
    for start, end in spans:
        result[:, start : end - 1] = rows[:, start + 1 : end]
    return result


@pytest.fixture(scope="module")
def device():
    device = resolve("sim")
    with device.session(), isolated_state(device):
        yield device


def outcomes(fault, device):
    variant = Variant("own", functools.partial(mtp_loss, fault=fault))
    found = {}
    for id_, case in CASES.items():
        with isolated_state(device):
            found[id_] = judge(case, observe(variant, case.inputs, device))
    return found


def test_the_loss_without_a_fault_passes_all(device):
    found = outcomes(None, device)
    assert found.pop("mask-chain").status == "follows"
    assert {outcome.status for outcome in found.values()} == {"passed"}


FALL_WITH_IT = {
    "double-shift": {"logical-end", "mask-with-gaps", "pad-is-eos", "tied-vocabulary"},  # all that look at targets
    "depth-denominators": set(CASES) - {"double-shift", "log-per-depth", "mask-with-gaps"},  # where counts differ
    "packed-no-mask": {"logical-end"},  # it has no mask either
    "pad-is-eos": {"mask-chain", "mask-with-gaps", "row-without-targets"},  # no mask is looked at
    "mask-with-gaps": {"mask-chain", "pad-is-eos", "row-without-targets"},  # no 0 after a 1 is
    "mask-chain": set(CASES) - {"double-shift", "log-per-depth"},  # all that look at weights
}


@pytest.mark.parametrize("fault", CASES)
def test_a_fault_fails_its_case(fault, device):
    failed = {id_ for id_, outcome in outcomes(fault, device).items() if outcome.status == "failed"}
    assert failed == {fault} | FALL_WITH_IT.get(fault, set())


def test_a_mask_that_is_not_shifted_with_the_labels_fails_the_case_with_gaps(device):
    def mask_of_the_label(loss_mask, **arguments):
        return mtp_loss(loss_mask=loss_mask.roll(1, -1), **arguments)

    case = CASES["mask-with-gaps"]
    loss = functools.wraps(mtp_loss)(mask_of_the_label)
    outcome = judge(case, observe(Variant("own", loss), case.inputs, device))
    assert (outcome.status, outcome.observed["targets"]) == ("failed", [[[0, 3, 0, 5, 6, 0]]])


@pytest.mark.parametrize(
    ("weights", "definition"),
    [([0, 0.5, 0.5, 0], "target"), ([0, 0, 1, 0], "chain"), ([0, 0, 0.5, 0], "chain over targets")],
)
def test_says_which_mask_a_loss_follows(weights, definition, device):
    def loss(hidden_states, compute_language_model_loss, output_layer, labels):
        from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

        main, chunk = torch.chunk(hidden_states, 2)
        losses = compute_language_model_loss(labels, output_layer(chunk)[0])
        return MTPLossAutoScaler.apply(main, losses * torch.tensor(weights).to(losses.device))

    case = CASES["mask-chain"]
    outcome = judge(case, observe(Variant("own", loss), case.inputs, device))
    assert (outcome.status, outcome.detail.split(":")[0]) == ("follows", definition)


def test_every_case_says_where_it_was_reported():
    for case in CASES.values():
        assert case.references
        for reference in case.references:
            assert reference.url.startswith("https://github.com/")
            assert reference.url.endswith(f"/{reference.number}")
