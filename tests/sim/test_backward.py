"""Backward on the simulated device: on the caller's thread, and errors inside it come out as errors."""

import threading

import pytest
import torch

from mtp_bench import ranges
from mtp_bench.devices.sim.shapes import ShapeOnlyError


class ReadsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, unknown):
        ctx.unknown = unknown
        return values * 2

    @staticmethod
    def backward(ctx, grad):
        if ctx.unknown.sum() > 0:
            return grad, None
        return grad * 2, None


@pytest.fixture
def failing_loss(sim):
    leaf = torch.ones(3, device="sim", requires_grad=True)
    return ReadsInBackward.apply(leaf, torch.ones(2**20 + 1, device="sim")).sum()


def test_an_error_inside_backward_is_raised_when_it_returns(failing_loss):
    with pytest.raises(ShapeOnlyError, match="made by aten::gt"):
        failing_loss.backward()
    assert torch.ones(1, device="sim").item() == 1  # and does not come a second time


def test_the_same_for_autograd_grad(sim):
    leaf = torch.ones(3, device="sim", requires_grad=True)
    loss = ReadsInBackward.apply(leaf, torch.ones(2**20 + 1, device="sim")).sum()
    with pytest.raises(ShapeOnlyError):
        torch.autograd.grad(loss, leaf)


def test_python_errors_of_a_backward_pass_through(sim):
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            return values * 2

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Raises.apply(torch.ones(3, device="sim", requires_grad=True)).sum().backward()


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_an_error_under_checkpointing(sim, use_reentrant):
    unknown = torch.ones(2**20 + 1, device="sim")
    runs = []

    def block(values):
        runs.append(None)
        if len(runs) > 1:
            unknown.sum().item()  # fails when it is computed again, inside backward
        return values * values

    leaf = torch.ones(3, device="sim", requires_grad=True)
    loss = torch.utils.checkpoint.checkpoint(block, leaf, use_reentrant=use_reentrant).sum()
    with pytest.raises(ShapeOnlyError):
        loss.backward()


def test_backward_keeps_thread_frames_and_ranges(sim):
    threads = []

    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            return values * 2

        @staticmethod
        def backward(ctx, grad):
            threads.append(threading.current_thread())
            grad.sum().item()
            return grad

    loss = Reads.apply(torch.ones(3, device="sim", requires_grad=True)).sum()
    with sim.record_syncs() as syncs, ranges.open_range("backward"):
        loss.backward()
    assert threads == [threading.current_thread()]
    assert [(sync.phase, sync.code) for sync in syncs] == [("backward", "grad.sum().item()")]
