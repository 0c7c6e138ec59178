"""What ``check`` of scope ``loss`` says of each variant's values: the judgement that a run files."""

from __future__ import annotations

import pytest

from mtp_bench import variants
from mtp_bench.scopes.loss import LossBench
from tests.variants.recording import workload

RIGHT = ("patched", "sync_free", "host_lens", "boundary_roll", "exact")
CLOSE = {"fp32": (1e-5, 1e-4), "bf16": (2e-2, 5e-3)}


def judged(name, place, **keys):
    return LossBench(workload(**keys), place).check(variants.load(name))


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("depths", [1, 2, 3])
@pytest.mark.parametrize("mask", ["full", "prompt:0.5"])
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_repaired_variants_are_close(name, packed, depths, mask, per_token, dtype, place):
    found = judged(
        name,
        place,
        packed=packed,
        mtp_num_layers=depths,
        mask=mask,
        calculate_per_token_loss=per_token,
        params_dtype=dtype,
    )
    max_error, max_scale = CLOSE[dtype]
    assert (found["status"], found["detail"], found["finite"]) == ("close", "", True)
    assert (found["at"], found["head_gradient"]) == ({"hidden_size": 16, "vocab_size": 32}, "detached")
    assert 0 < found["max_rel_err_grad"] < max_error
    assert found["grad_scale"] == pytest.approx(1, abs=max_scale)
    assert found["logged_loss"] == pytest.approx(found["reference_loss"], rel=max_error)
    assert len(found["logged_loss"]) == depths


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_original_is_close_where_losses_are_means_and_weighs_too_little_where_they_are_summed(packed, dtype, place):
    """13 tokens in sequences of 6, 4, 1 and 2: one place on, 9 of them are left."""
    keys = {"packed": packed, "params_dtype": dtype}
    assert judged("original", place, calculate_per_token_loss=False, **keys)["status"] == "close"
    summed = judged("original", place, calculate_per_token_loss=True, **keys)
    assert summed["status"] == "differs"
    assert summed["grad_scale"] == pytest.approx(9 / 13, abs=5e-3)
    assert summed["logged_loss"] == pytest.approx(summed["reference_loss"], rel=CLOSE[dtype][0])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_without_a_target_original_is_nan_and_the_others_are_zero(packed, per_token, dtype, place):
    keys = {
        "packed": packed,
        "mask": "empty",
        "mtp_num_layers": 2,
        "calculate_per_token_loss": per_token,
        "params_dtype": dtype,
    }
    for name in RIGHT:
        found = judged(name, place, **keys)
        assert (found["status"], found["logged_loss"], found["max_rel_err_grad"]) == ("equal", [0.0, 0.0], 0.0)
    nan = judged("original", place, **keys)
    assert (nan["status"], nan["finite"]) == ("nan", False)
    assert [str(loss) for loss in nan["logged_loss"]] == ["nan", "nan"]
    assert ("the gradient is not finite" in nan["detail"]) is not per_token
