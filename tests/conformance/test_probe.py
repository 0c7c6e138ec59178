"""What a call of a loss shows: read off losses so small that every number is known."""

from __future__ import annotations

import pytest
import torch

from mtp_bench.conformance.model import Inputs
from mtp_bench.conformance.probe import observe
from mtp_bench.megatron import save_mtp_loss
from mtp_bench.variants import Variant

ROW = Inputs(labels=[[5, 6, 7]], loss_mask=[[1, 1, 1]])


def look(loss, inputs=ROW, device=None, **asked):
    return observe(Variant("mine", loss), inputs, device, **asked)


def weighted(hidden_states, labels, output_layer, compute_language_model_loss, config):
    """Depth k weighs position i by 10 k + i; depths log k."""
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

    main, *chunks = torch.chunk(hidden_states, 1 + config.mtp_num_layers)
    for depth, chunk in enumerate(chunks):
        logits, _ = output_layer(chunk)
        loss = compute_language_model_loss(labels + depth, logits)
        weight = torch.arange(loss.numel(), device=loss.device).view_as(loss) + 10.0 * (1 + depth)
        save_mtp_loss(torch.ones((), device=loss.device) * (1 + depth), depth, config.mtp_num_layers)
        main = MTPLossAutoScaler.apply(main, loss * weight)
    return main


def test_coefficients_labels_and_log_of_every_depth(sim):
    seen = look(weighted, Inputs(labels=[[5, 6, 7]], loss_mask=[[1, 1, 1]], depths=2), sim)
    assert seen.error == ""
    assert seen.coefficients == [[[10.0, 11.0, 12.0]], [[20.0, 21.0, 22.0]]]
    assert seen.labels == [[[5, 6, 7]], [[6, 7, 8]]]
    assert seen.logged == [1.0, 2.0]
    assert seen.main_gradient == [[1.0, 2.0, 3.0]]
    assert seen.result == [[1.0, 2.0, 3.0]]
    assert (seen.head_trained, seen.inputs_changed, seen.syncs) == (True, [], ())


def test_rows_stay_rows(sim):
    seen = look(weighted, Inputs(labels=[[1, 2], [3, 4]], loss_mask=[[1, 1], [1, 1]]), sim)
    assert seen.coefficients == [[[10.0, 11.0], [12.0, 13.0]]]
    assert seen.labels == [[[1, 2], [3, 4]]]
    assert seen.main_gradient == [[1.0, 2.0], [1.0, 2.0]]


def test_uniform_logits_of_a_cross_entropy_leave_the_coefficient(sim):
    inputs = Inputs(labels=[[1, 2, -100]], loss_mask=None, loss="cross_entropy")
    assert look(weighted, inputs, sim).coefficients == [[[10.0, 11.0, 12.0]]]


def test_a_loss_that_returns_the_hidden_states_alone_has_no_coefficients(sim):
    def nothing(hidden_states, config):
        return torch.chunk(hidden_states, 1 + config.mtp_num_layers)[0]

    seen = look(nothing, device=sim)
    assert seen.coefficients == [[[0.0, 0.0, 0.0]]]
    assert (seen.labels, seen.logged, seen.targets, seen.head_trained) == ([], [], [], False)


def test_what_is_raised_is_the_observation(sim):
    def broken(hidden_states):
        raise ValueError("no head")

    def ending(hidden_states):
        raise SystemExit(3)

    assert look(broken, device=sim).error.startswith("ValueError: no head at tests/conformance/test_probe.py:")
    assert look(ending, device=sim).error.startswith("SystemExit: 3 at tests/conformance/test_probe.py:")


def test_what_is_not_returned_is_an_error(sim):
    assert look(lambda hidden_states: hidden_states, device=sim).error == (
        "VariantError: mine returned a tensor of shape [6, 1, 1]; expected shape [3, 1, 1], "
        "the first of 2 chunks of hidden_states"
    )


def test_inputs_that_are_written_to(sim):
    def writing(labels, loss_mask, config, **given):
        labels.zero_()
        config.mtp_loss_scaling_factor = 7.0
        return weighted(
            given["hidden_states"], labels, given["output_layer"], given["compute_language_model_loss"], config
        )

    assert look(writing, device=sim).inputs_changed == ["labels", "config"]


def test_a_mode_and_a_function_that_are_left_changed(sim, monkeypatch):
    from megatron.core.transformer import multi_token_prediction

    def leaving(**given):
        monkeypatch.setattr(multi_token_prediction, "roll_tensor", lambda *args, **kwargs: None)
        torch.set_default_dtype(torch.float64)
        return weighted(
            given["hidden_states"],
            given["labels"],
            given["output_layer"],
            given["compute_language_model_loss"],
            given["config"],
        )

    try:
        changed = look(leaving, device=sim, watch_process=True).process_changed
    finally:
        torch.set_default_dtype(torch.float32)
    assert changed == ["megatron.core.transformer.multi_token_prediction.roll_tensor", "torch.get_default_dtype()"]


def test_syncs_by_line(sim):
    def reading(loss_mask, **given):
        int(loss_mask.sum())
        return weighted(
            given["hidden_states"],
            given["labels"],
            given["output_layer"],
            given["compute_language_model_loss"],
            given["config"],
        )

    (only,) = look(reading, device=sim, count_syncs=True).syncs
    assert only.startswith("1 x tests/conformance/test_probe.py:")
    assert only.endswith("(item): int(loss_mask.sum())")


def test_microbatches_of_the_schedule_add_up(sim):
    inputs = Inputs(labels=[[5, 6]], loss_mask=[[1, 1]], per_token=False, microbatches=4, steps=2)
    seen = look(weighted, inputs, sim)
    assert seen.coefficients == [[[20.0, 22.0]]]  # two steps of four microbatches, each a quarter of 10 and of 11
    assert seen.main_gradient == [[1.0, 1.0]]  # two steps, each with a mean over two tokens
    assert seen.interval_average == [pytest.approx(1.0)]


def test_the_loss_scale_is_put_back(sim):
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

    before = MTPLossAutoScaler.main_loss_backward_scale
    seen = look(weighted, Inputs(labels=[[5, 6]], loss_mask=[[1, 1]], loss_scale=8.0), sim)
    assert seen.coefficients == [[[80.0, 88.0]]]
    assert MTPLossAutoScaler.main_loss_backward_scale is before


@pytest.mark.parametrize("layout", ["transposed", "expanded"])
def test_labels_and_mask_are_laid_out_as_asked(layout, sim):
    def strides(labels, loss_mask, **given):
        seen.append((labels.stride(), labels.is_contiguous(), loss_mask.stride()))
        raise ValueError

    seen = []
    look(strides, Inputs(labels=[[1, 2, 3], [1, 2, 3]], loss_mask=[[1, 1, 1], [1, 1, 1]], layout=layout), sim)
    assert (
        seen
        == {
            "transposed": [((1, 2), False, (1, 2))],
            "expanded": [((0, 1), False, (0, 1))],
        }[layout]
    )
