"""Another loss in the place of the model's: all else stays Megatron's, bit for bit, and nothing stays behind."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.megatron.versions import VERSIONS, run_with

SCRIPT = Path(__file__).with_name("placed_losses.py")
PADDED = {
    "padded": {"packed": False},
    "per token": {"packed": False, "calculate_per_token_loss": True},
    "shared embeddings": {"packed": False, "shared": True},
    "rope": {"packed": False, "position": "rope"},
    "bf16": {"packed": False, "params_dtype": "bf16"},
}
PACKED = {"packed": {"packed": True}, "packed shared": {"packed": True, "shared": True}}


@functools.cache
def found(version):
    answer = run_with(version, SCRIPT, PADDED if version < "0.16" else PADDED | PACKED)
    assert answer["version"] == version
    return answer["cases"]


CASES = [(version, case) for version in VERSIONS for case in (PADDED if version < "0.16" else PADDED | PACKED)]


@pytest.mark.parametrize(("version", "case"), CASES)
def test_megatrons_own_loss_in_its_own_place_changes_no_bit(version, case):
    run = found(version)[case]
    _, logged, gradients = run["own"]
    assert (len(logged), len(gradients) > 20) == (2, True)
    assert run["idle"] == run["own"]
    assert run["placed"] == run["own"]
    assert run["own in place"] == run["own"]
    assert run["calls"] == 1


@pytest.mark.parametrize(("version", "case"), CASES)
def test_the_own_loss_is_watched_where_it_is(version, case):
    """From behind the MTP block to before the main loss: two depths' logits are between."""
    run = found(version)[case]
    assert run["watched"] == run["own"]
    assert run["order"] == [["enter", "layer", "layer", "leave", "layer"], ["layer"]]


@pytest.mark.parametrize(("version", "case"), CASES)
def test_calls_that_do_not_train_and_other_models_run_what_was_there(version, case):
    run = found(version)[case]
    assert run["calls after"] == 1
    assert run["other"] == run["own"]
    assert run["evaluated"] == run["evaluated before"]


@pytest.mark.parametrize(("version", "case"), CASES)
def test_nothing_stays_behind(version, case):
    run = found(version)[case]
    assert (run["restored"], run["restored after raising"]) == (True, True)
