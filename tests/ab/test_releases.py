"""Jobs on every release of megatron-core, and with verl's patch on the model."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.megatron.versions import VERSIONS, run_with
from tests.releases import release

SCRIPT = Path(__file__).with_name("jobs.py")
PER_TOKEN = {"calculate_per_token_loss": True}
RESCALED = [
    "patched",
    "sync_free",
    "boundary_roll",
]  # as from 0.17 on; up to 0.16 the gradients are those of `original`
VERL = ("0.8.0", "0.9.1")


@functools.cache
def cases(version):
    asked = {"mean": {"packed": version >= "0.16", "variants": RESCALED[:2] if version < "0.17" else RESCALED}}
    asked["per token"] = PER_TOKEN | {"packed": version >= "0.16"}
    asked["per token"]["variants"] = ["original" if version < "0.17" else "boundary_roll", "megatron"]
    for verl in VERL if version < "0.18" else VERL[1:]:  # 0.8.0 does not run on 0.18
        folder = str(release("verl", verl))
        asked[f"verl {verl}"] = PER_TOKEN | {"packed": version >= "0.16", "verl": folder, "variants": RESCALED}
    answer = run_with(version, SCRIPT, asked)
    assert answer["version"] == version
    return answer["cases"]


@pytest.mark.parametrize("case", ["mean", "per token"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_is_the_same_bits_on_every_release(version, case):
    found = cases(version)[case]
    assert found["refusal"] == ""
    assert found["same"] == {"losses": True, "weights": True, "logged": True}
    assert found["trained"] == 10
    assert (found["replaced"], found["restored"]) == (True, True)
    assert {status for status, _, _ in found["gradients"]} == {"equal"}
    assert (found["rolled otherwise"] > 0) == (version >= "0.17")  # up to 0.16 no variant with a roll is in it
    where = "megatron.core.models.gpt.gpt_model.process_mtp_loss" if version >= "0.17" else "GPTModel._postprocess"
    assert {tuple(rest) for _, *rest in found["gradients"]} == {("trained", f"{where} of megatron-core {version}")}


@pytest.mark.parametrize(("version", "verl"), [("0.17.1", "0.8.0"), *((v, "0.9.1") for v in VERSIONS if v >= "0.17")])
def test_verl_dispatches_to_megatrons_loss_which_is_exchanged_there(version, verl):
    found = cases(version)[f"verl {verl}"]
    assert found["refusal"] == ""
    assert found["same"] == {"losses": True, "weights": True, "logged": True}
    assert (found["replaced"], found["restored"]) == (True, True)
    name = f"verl.models.mcore.mtp_patch._process_mtp_loss of megatron-core {version}"
    assert found["gradients"] == [["equal", "trained", name]] * 3
    assert found["windows"] == [1, 1, 1]
    assert found["rolled otherwise"] in (1, 2)  # iterations that ended with boundary_roll in place, of its two


@pytest.mark.parametrize("verl", VERL)
@pytest.mark.parametrize("version", [version for version in VERSIONS if version < "0.17"])
def test_verls_own_loss_cannot_be_exchanged(version, verl):
    found = cases(version)[f"verl {verl}"]
    assert found["restored"]
    begin, end = found["refused"].split(" (", 1)
    assert begin == "verl's verl.models.mcore.mtp_patch._megatron_gptmodel_postprocess"
    assert end.split(") ", 1)[1] == (
        f"runs a loss of its own in GPTModel._postprocess (megatron-core {version} has no process_mtp_loss), which "
        "cannot be swapped: use megatron-core 0.17 or later, where verl calls process_mtp_loss"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_only_graphs_of_whole_iterations_hold_the_loss(version):
    assert cases(version)["graphs"] == {
        "off": False,
        "layers": False,
        "whole": True,
        "whole as text": True,
        "whole from 0.18 on": True,
        "whole, external": False,
        "whole in 0.14": True,
    }
