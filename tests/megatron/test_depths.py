"""Each depth of an MTP loss gets a range of its own, for implementations that know nothing of ranges."""

from __future__ import annotations

import pytest
import torch
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

from mtp_bench import ranges
from mtp_bench.megatron import depth_ranges


def attach(main):
    return MTPLossAutoScaler.apply(main, torch.zeros(1, requires_grad=True))


def test_the_scaler_ends_one_depth_and_begins_the_next():
    paths = []
    main = torch.zeros(1, requires_grad=True)
    with depth_ranges(2):
        paths.append(ranges.path())
        main = attach(main)
        paths.append(ranges.path())
        main = attach(main)
        paths.append(ranges.path())
    assert paths == [("depth:1",), ("depth:2",), ()]
    assert ranges.path() == ()


def test_closes_what_an_exception_left_open():
    def fail():
        with depth_ranges(3):
            attach(torch.zeros(1, requires_grad=True))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert ranges.path() == ()


def test_does_not_change_the_gradient():
    main, loss = torch.ones(1, requires_grad=True), torch.ones(3, requires_grad=True)
    with depth_ranges(1):
        MTPLossAutoScaler.apply(main, loss).sum().backward()
    assert main.grad.tolist() == [1.0]
    assert loss.grad.tolist() == [1.0, 1.0, 1.0]
