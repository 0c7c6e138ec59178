"""``record_syncs`` on the simulated device, as a user writes it."""

from __future__ import annotations

import pytest
import torch

import mtp_bench
from mtp_bench.errors import InputError


class Reading(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        grad.sum().item()  # read in backward
        return grad * 2


def test_a_branch_on_a_value_is_one_sync_on_its_line():
    with mtp_bench.record_syncs("sim") as syncs:
        x = torch.ones(4, device="cuda")
        if x.sum() > 0:
            pass
    assert [(sync.kind, sync.op, sync.code, sync.phase) for sync in syncs] == [
        ("item", "aten::_local_scalar_dense", "if x.sum() > 0:", "forward")
    ]


def test_a_sync_in_backward_says_so():
    with mtp_bench.record_syncs("sim") as syncs:
        x = torch.ones(4, device="sim", requires_grad=True)
        Reading.apply(x).sum().backward()
    assert [(sync.phase, sync.code) for sync in syncs] == [("backward", "grad.sum().item()  # read in backward")]


def test_an_outer_recording_has_what_an_inner_one_has():
    with mtp_bench.record_syncs("sim") as outer:
        x = torch.ones(4, device="sim")
        x.sum().item()
        with mtp_bench.record_syncs("sim") as inner:
            x.sum().item()
        x.sum().item()
    assert (len(outer), len(inner)) == (3, 1)


def test_what_the_code_inside_sets_for_the_process_is_its_own_business_but_the_device_goes_back():
    with mtp_bench.record_syncs("sim"):
        torch.set_default_device("cuda")
        assert torch.ones(1).is_cuda
    try:
        assert torch.ones(1).device.type == "cpu"
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("device", [None, 5, "gpu"])
def test_a_device_that_does_not_exist_is_an_input_error(device: object):
    with pytest.raises(InputError, match="no such device"), mtp_bench.record_syncs(device):
        pass
