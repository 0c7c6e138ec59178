"""verl's copy of the MTP loss in its 1F1B overlap file runs from that file alone, and is the loss of 0.8.0."""

from __future__ import annotations

import sys

import pytest

from mtp_bench import variants
from mtp_bench.megatron import HostPlace, isolated_state
from mtp_bench.scopes.loss import LossBench
from tests.releases import release
from tests.variants.recording import run, workload
from tools import verl_overlap

NAME = "tools.verl_overlap:mtp_loss"


@pytest.fixture(params=["0.8.0", "0.9.1"])
def copy(request, monkeypatch):
    monkeypatch.setenv("MTP_BENCH_VERL", str(release("verl", request.param)))
    return variants.load(NAME)


@pytest.mark.parametrize("mask", ["full", "prompt:0.6", "empty"])
@pytest.mark.parametrize("per_token", [False, True])
def test_computes_what_verl_0_8_0_did_where_nothing_is_packed(copy, mask, per_token):
    with isolated_state(HostPlace()):
        inputs = workload(packed=False, mtp_num_layers=2, mask=mask, calculate_per_token_loss=per_token)
        bench = LossBench(inputs, HostPlace())
        original = run(bench, variants.load("original"))
        copied = run(bench, copy)
    assert (copied.logged, copied.hidden_states_grad) == (original.logged, original.hidden_states_grad)
    trains_head = copied.head_grad != original.head_grad  # `original` gives the head no gradient
    assert trains_head is (mask != "empty" or not per_token)


def test_nothing_of_verl_stays_imported(copy):
    with isolated_state(HostPlace()):
        run(LossBench(workload(packed=False), HostPlace()), copy)
    assert [name for name in sys.modules if name.split(".")[0] == "verl"] == []


def test_says_which_folder_it_needs(monkeypatch):
    monkeypatch.delenv("MTP_BENCH_VERL", raising=False)
    with pytest.raises(variants.InputError, match="MTP_BENCH_VERL is not set: expected the folder"):
        verl_overlap.mtp_loss(**dict.fromkeys(variants.load(NAME).accepts))
