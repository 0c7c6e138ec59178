"""Autocast casts where CUDA's does."""

import pytest
import torch
import torch.nn.functional as F


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        (lambda low, full: full @ full, torch.bfloat16),
        (lambda low, full: F.linear(full, full), torch.bfloat16),
        (lambda low, full: F.softmax(low, -1), torch.float32),
        (lambda low, full: F.cross_entropy(low, torch.zeros(4, dtype=torch.long, device="cuda")), torch.float32),
        (lambda low, full: F.layer_norm(low, (4,)), torch.float32),
        (lambda low, full: low.sum(), torch.float32),
        (lambda low, full: torch.cat([low, full]), torch.float32),
        (lambda low, full: low + low, torch.bfloat16),
    ],
)
def test_result_types_under_autocast(sim, expression, dtype):
    full = torch.ones(4, 4, device="cuda")
    low = full.bfloat16()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled()
        assert expression(low, full).dtype is dtype
    assert not torch.is_autocast_enabled()


def test_gradients_keep_the_type_of_the_weight(sim):
    layer = torch.nn.Linear(4, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = layer(torch.ones(2, 4, device="cuda"))
    output.float().sum().backward()
    assert (output.dtype, layer.weight.grad.dtype) == (torch.bfloat16, torch.float32)


def test_the_grad_scaler_reads_whether_it_found_an_inf(sim):
    layer = torch.nn.Linear(4, 4, device="cuda")
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler.scale(layer(torch.ones(2, 4, device="cuda")).sum()).backward()
    with sim.record_syncs() as syncs:
        scaler.step(optimizer)
        scaler.update()
    assert [sync.kind for sync in syncs] == ["item"]
