"""The torch detector: every wait counted once, with its operator, kind and line, in forward and backward."""

import warnings

import hostcuda
import pytest
import torch

from mtp_bench import ranges
from mtp_bench.syncs.torch_detector import TorchRecorder, record_torch_syncs

THIS_FILE = "test_torch_detector.py"


def record(work, **options):
    with record_torch_syncs(**options) as syncs:
        work()
    return syncs


def tensors():
    return {
        "torch": torch,
        "x": torch.ones(4, 4, device="cuda"),
        "y": torch.ones(4, 4, device="cuda"),
        "mask": torch.ones(4, dtype=torch.bool, device="cuda"),
        "i": torch.zeros((), dtype=torch.long, device="cuda"),
        "host": torch.ones(4),
        "pinned": torch.ones(4).pin_memory(),
        "device": torch.ones(4, device="cuda"),
    }


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x.sum().item()", [("item", "aten::_local_scalar_dense")]),
        ("bool(x.sum() > 0)", [("item", "aten::_local_scalar_dense")]),
        ("x[i:i]", [("item", "aten::_local_scalar_dense")] * 2),
        ("x.cpu()", [("dtoh", "aten::_to_copy")]),
        ("x.tolist()", [("dtoh", "aten::_to_copy")]),
        ("host.copy_(device)", [("dtoh", "aten::copy_")]),
        ("host.cuda()", [("htod", "aten::_to_copy")]),
        ("device.copy_(host)", [("htod", "aten::copy_")]),
        ("torch.tensor(1.0, device='cuda')", [("htod", "aten::_to_copy")]),
        ("x.new_tensor(0.0)", [("htod", "aten::_to_copy")]),
        ("x[[0, 1]]", [("htod", "aten::_to_copy")]),
        ("x[torch.tensor([0, 1])]", [("htod", "aten::index")]),
        ("x.nonzero()", [("dynamic_shape", "aten::nonzero")]),
        ("x[mask]", [("dynamic_shape", "aten::index")]),
        ("x.index_put_((mask,), i.float())", [("dynamic_shape", "aten::index_put_")]),
        ("x.masked_fill(mask, i.float())", [("item", "aten::masked_fill")]),
        ("torch.allclose(x, y)", [("item", "aten::allclose")]),
        ("torch.equal(x, y)", [("data_dependent", "aten::equal")]),
        ("torch.equal(x, x)", []),
        ("x @ y", []),
        # Of these PyTorch does not warn: the wait, if any, is in the driver.
        ("host.to('cuda', non_blocking=True)", [("htod_pageable_async", "aten::_to_copy")]),
        ("device.copy_(host, non_blocking=True)", [("htod_pageable_async", "aten::copy_")]),
        ("device.copy_(host, True)", [("htod_pageable_async", "aten::copy_")]),
        ("torch.ones(0).to('cuda', non_blocking=True)", []),
        ("pinned.to('cuda', non_blocking=True)", []),
        ("host.copy_(device, non_blocking=True)", [("dtoh", "aten::copy_")]),
        ("pinned.copy_(device, non_blocking=True)", []),
        ("device.to('cpu', non_blocking=True)", []),
        ("torch.cuda.synchronize()", [("device_sync", "torch.cuda.synchronize")]),
        ("torch.accelerator.synchronize()", [("device_sync", "torch.cuda.synchronize")]),
        ("torch.cuda.current_stream().synchronize()", [("stream_sync", "torch.cuda.Stream.synchronize")]),
        ("torch.cuda.current_stream().record_event().synchronize()", [("event_sync", "torch.cuda.Event.synchronize")]),
        ("torch.cuda.Event().synchronize()", []),
    ],
)
def test_kind_and_operator(expression, expected):
    names = tensors()
    syncs = record(lambda: eval(expression, names))
    assert [(sync.kind, sync.op) for sync in syncs] == expected


def test_each_sync_is_counted_also_on_one_line():
    x = torch.ones(4, device="cuda")
    assert len(record(lambda: [x[0].item() for _ in range(50)])) == 50


def test_the_count_is_that_of_the_runtime():
    names = tensors()
    expressions = ["x.sum().item()", "x[i:i]", "x.cpu()", "x[mask]", "torch.equal(x, y)", "x.new_tensor(0.0)"]
    hostcuda.reset()
    syncs = record(lambda: [eval(expression, names) for expression in expressions])
    assert len(syncs) == 7
    assert hostcuda.calls()["cudaStreamSynchronize"] == 7


def test_the_call_site_is_the_line_in_the_users_code():
    x = torch.ones(4, device="cuda")

    def helper():
        return x[0].item()

    def caller():
        helper()

    (sync,) = record(caller)
    assert sync.file.endswith(THIS_FILE)
    assert sync.code == "return x[0].item()"
    assert sync.function.endswith("helper")
    assert sync.stack[1].function.endswith("caller")
    assert (sync.seen_by, sync.blocked_ns, sync.device_idle_ns) == ("torch", None, None)


class ReadsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient.sum().item()
        return gradient


def test_a_sync_in_python_backward_has_its_own_line():
    x = torch.ones(4, device="cuda", requires_grad=True)

    def step():
        loss = ReadsInBackward.apply(x).sum()
        with ranges.open_range("backward"):
            loss.backward()

    (sync,) = record(step)
    assert (sync.code, sync.kind, sync.phase) == ("gradient.sum().item()", "item", "backward")
    assert [frame.function for frame in sync.stack[:2]] == [
        "ReadsInBackward.backward",
        "test_a_sync_in_python_backward_has_its_own_line.<locals>.step",
    ]


def test_a_sync_of_an_operator_in_backward_has_the_line_of_backward():
    x = torch.ones(4, device="cuda", requires_grad=True)
    mask = torch.ones(4, dtype=torch.bool, device="cuda")

    def step():
        x[mask].sum().backward()

    forward, backward = record(step)
    assert (forward.op, backward.op) == ("aten::index", "aten::index_put")
    assert backward.code == "x[mask].sum().backward()"


def test_ops_are_counted():
    x = torch.ones(4, device="cuda", requires_grad=True)
    with TorchRecorder().recording() as recorder:
        (x * 2).sum().backward()
    # mul, sum; ones_like, expand, mul, and the gradient's detach
    assert recorder.ops == 6


def test_everything_is_restored():
    torch.cuda.set_sync_debug_mode("default")
    before = (
        warnings.showwarning,
        list(warnings.filters),
        torch.cuda.get_sync_debug_mode(),
        torch.cuda.Event.synchronize,
        torch.cuda.Stream.synchronize,
        torch._C._cuda_synchronize,
        torch.autograd.is_multithreading_enabled(),
    )
    with pytest.raises(ZeroDivisionError):
        record(lambda: 1 / 0)
    after = (
        warnings.showwarning,
        list(warnings.filters),
        torch.cuda.get_sync_debug_mode(),
        torch.cuda.Event.synchronize,
        torch.cuda.Stream.synchronize,
        torch._C._cuda_synchronize,
        torch.autograd.is_multithreading_enabled(),
    )
    assert before == after
    x = torch.ones(4, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x[0].item()


def test_an_operator_that_waits_and_fails_is_counted_and_raises_its_own_error():
    info = torch.zeros((), dtype=torch.int32, device="cuda")
    hostcuda.reads(1)  # the first pivot was 0
    with record_torch_syncs() as syncs, pytest.raises(torch.linalg.LinAlgError, match="diagonal element 1 is zero"):
        torch.ops.aten._linalg_check_errors(info, "linalg.inv", is_matrix=True)
    assert [sync.op for sync in syncs] == ["aten::_linalg_check_errors"] * 2  # whether one failed, and which


def test_other_warnings_pass():
    with pytest.warns(UserWarning, match="mine"):
        record(lambda: warnings.warn("mine", stacklevel=1))


def test_recorders_nest():
    x = torch.ones(4, device="cuda")
    with record_torch_syncs() as outer:
        x[0].item()
        with record_torch_syncs() as inner:
            x[0].item()
            torch.cuda.synchronize()
    assert [sync.kind for sync in inner] == ["item", "device_sync"]
    assert [sync.kind for sync in outer] == ["item", "item", "device_sync"]


CALLBACKS = """
import torch
from mtp_bench.syncs.torch_detector import record_torch_syncs

x = torch.ones(4, device="cuda")
with record_torch_syncs(callbacks=True) as syncs:
    x[0].item()
    torch.cuda.synchronize()
    torch.accelerator.synchronize()
    torch.cuda.current_stream().record_event().synchronize()
    torch.cuda.current_stream().synchronize()
torch.cuda.synchronize()
print([(sync.kind, sync.line) for sync in syncs])
"""


def test_trace_callbacks_see_the_same(in_child):
    """In a process of its own: PyTorch cannot switch its trace off again."""
    kinds = ["item", "device_sync", "device_sync", "event_sync", "stream_sync"]
    assert in_child(CALLBACKS) == f"{list(zip(kinds, range(7, 12), strict=True))}\n"
