"""The float64 reference against autograd, and the words that a judgement is put in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp_bench.inputs import make_inputs
from mtp_bench.numerics import judge, reference, shift_within_sequences
from mtp_bench.workloads import Workload


def workload(**keys: Any) -> Workload:
    small = {"hidden_size": 8, "num_attention_heads": 2, "vocab_size": 11, "params_dtype": "fp32"}
    return Workload.from_dict("w", {**small, **keys})


def objective(
    w: Workload, hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, list[float]]:
    """The losses position by position, in loops: slow, and as near to the formula as code gets."""
    length = labels.shape[1]
    bounds = list(w.layout().cu_seqlens) or [0, length]
    chunks = hidden.reshape(1 + w.mtp_num_layers, length, labels.shape[0], -1)
    total, logs, n_0 = torch.zeros((), dtype=torch.float64), [], float(mask.sum())
    for depth, chunk in enumerate(chunks):
        summed, count = torch.zeros((), dtype=torch.float64), 0.0
        for row in range(labels.shape[0]):
            for i in range(length):
                end = next(bound for bound in bounds if bound > i)
                if i + depth < end:
                    weight = float(mask[row, i + depth])
                    summed = summed + weight * F.cross_entropy(head @ chunk[i, row], labels[row, i + depth])
                    count += weight
        mean = summed / max(count, 1.0)
        factor = 1.0 if depth == 0 else w.mtp_loss_scaling_factor / w.mtp_num_layers
        if w.calculate_per_token_loss:
            total = total + factor * (summed if depth == 0 else mean * n_0)
        else:
            total = total + factor * mean
        if depth:
            logs.append(float(mean.detach()))
    return total, logs


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    packed=st.booleans(),
    depths=st.integers(1, 3),
    per_token=st.booleans(),
    mask=st.sampled_from(["full", "empty", "prompt:0.5", "tail:1"]),
    seed=st.integers(0, 99),
)
def test_reference_is_the_formula(
    lengths: list[int], packed: bool, depths: int, per_token: bool, mask: str, seed: int
) -> None:
    w = workload(
        sequences=lengths,
        packed=packed,
        mtp_num_layers=depths,
        calculate_per_token_loss=per_token,
        mask=mask,
        seed=seed,
        mtp_loss_scaling_factor=0.7,
    )
    inputs = make_inputs(w, torch.device("cpu"))
    hidden = inputs.hidden_states.detach().double().requires_grad_()
    head, loss_mask = inputs.head_weight.double(), inputs.loss_mask.double()
    total, logs = objective(w, hidden, head, inputs.labels, loss_mask)
    if total.requires_grad:
        total.backward()
    grad = torch.zeros_like(hidden) if hidden.grad is None else hidden.grad
    ours = reference(w, hidden.detach().numpy(), head.numpy(), inputs.labels.numpy(), loss_mask.numpy())
    np.testing.assert_allclose(ours.losses, logs, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours.grad, grad.numpy(), rtol=1e-10, atol=1e-12)


def test_a_shift_stops_at_the_end_of_its_sequence():
    w = workload(sequences=[3, 1, 2], packed=True)
    values = np.array([[1, 2, 3, 4, 5, 6]])
    assert shift_within_sequences(values, 1, w).tolist() == [[2, 3, 0, 0, 6, 0]]
    assert shift_within_sequences(values, 2, w).tolist() == [[3, 0, 0, 0, 0, 0]]


def judged(grad: list[float], logged: float = 2.0, right: list[float] | None = None) -> dict[str, Any]:
    return judge(
        {"hidden_states": np.array(grad)},
        {"hidden_states": np.array([1.0, 2.0, 3.0] if right is None else right)},
        scale_over={"hidden_states": slice(1, None)},
        logged=[logged],
        right_losses=[2.0],
        dtype="fp32",
    )


def test_values_that_round_to_the_reference_are_equal():
    assert judged([1.0, 2.0, 3.0 + 1e-12])["status"] == "equal"


def test_a_rounding_error_is_close():
    found = judged([1.0, 2.0, 3.0 + 3e-6])
    assert (found["status"], found["detail"]) == ("close", "")
    assert found["max_rel_err_grad"] == pytest.approx(1e-6)


def test_an_underweighted_mtp_gradient_shows_its_factor():
    found = judged([1.0, 1.5, 2.25])
    assert found["status"] == "differs"
    assert found["grad_scale"] == pytest.approx(0.75)
    assert found["detail"] == "the MTP gradient is 0.75 times what it should be"


def test_a_nan_log_alone_is_nan_and_the_gradient_is_still_judged():
    found = judged([1.0, 2.0, 3.0], logged=math.nan)
    assert (found["status"], found["finite"]) == ("nan", False)
    assert found["grad_scale"] == pytest.approx(1.0)
    assert found["detail"] == "the logged loss is not finite at depth 1"


def test_a_wrong_log_differs():
    assert judged([1.0, 2.0, 3.0], logged=2.1)["detail"] == "the logged loss is off at depth 1"


def test_many_depths_are_said_as_a_range():
    logged = [2.1, 2.0, 2.1, 2.1, 2.0, *[math.nan] * 3, 2.0, *[math.nan] * 60]
    grad = {"hidden_states": np.array([1.0])}

    def detail(logged):
        right = [2.0] * len(logged)
        return judge(
            grad, grad, scale_over={"hidden_states": slice(0)}, logged=logged, right_losses=right, dtype="fp32"
        )["detail"]

    assert detail(logged) == "the logged loss is not finite at depth 6 to 8, 10 to 69"
    assert detail(logged[:5]) == "the logged loss is off at depth 1, 3, 4"


def test_an_empty_shard_has_no_gradient_to_scale():
    found = judged([0.0, 0.0, 0.0], right=[0.0, 0.0, 0.0])
    assert (found["status"], found["grad_scale"], found["max_rel_err_grad"]) == ("equal", None, 0.0)
