"""Which expressions make the host wait, and how often: the table that tests/hostcuda holds against the CUDA build."""

from pathlib import Path

import pytest

from mtp_bench.devices.sim.rules import RULES
from mtp_bench.syncs import KINDS
from tests.sim import expressions
from tests.sim.rule_table import rule_table

# The debug mode sees blocking copies and stream synchronisation; these it does not.
NOT_SEEN_BY_DEBUG_MODE = {"htod_pageable_async", "event_sync", "device_sync"}


def syncs_of(sim, expression):
    given = expressions.inputs("cuda", expression)
    with sim.record_syncs() as syncs:
        expressions.run(expression, given)
    return syncs


@pytest.mark.parametrize("expression", expressions.lines(expressions.PYTORCH_MUST_NOT))
def test_pytorch_says_it_must_not_wait(sim, expression):
    assert syncs_of(sim, expression) == []


@pytest.mark.parametrize("expression", expressions.lines(expressions.PYTORCH_MUST))
def test_pytorch_says_it_must_wait(sim, expression):
    assert syncs_of(sim, expression)


def test_waits_as_often_as_the_cuda_build(sim):
    table = expressions.counted(expressions.COUNTS)
    seen = {
        expression: sum(sync.kind not in NOT_SEEN_BY_DEBUG_MODE for sync in syncs_of(sim, expression))
        for expression in table
    }
    assert len(table) > 500
    assert seen == table


def test_waits_that_the_debug_mode_does_not_see(sim):
    table = expressions.counted(expressions.UNSEEN)
    assert {expression: len(syncs_of(sim, expression)) for expression in table} == table


@pytest.mark.parametrize(
    ("expression", "kinds"),
    [
        ("y.item()", ["item"]),
        ("x[ind[0]:ind[1]]", ["item", "item"]),
        ("x.cpu()", ["dtoh"]),
        ("x_cpu.to(device)", ["htod"]),
        ("torch.tensor([1.0, 2.0], device=device)", ["htod"]),
        ("x_cpu.to(device, non_blocking=True)", ["htod_pageable_async"]),
        ("x_cpu.copy_(x, non_blocking=True)", ["dtoh"]),
        ("x[mask]", ["dynamic_shape"]),
        ("x.nonzero()", ["dynamic_shape"]),
        ("torch.equal(x, x.clone())", ["data_dependent"]),
        ("torch.cuda.synchronize()", ["device_sync"]),
        ("torch.cuda.current_stream().synchronize()", ["stream_sync"]),
        ("torch.cuda.Event().synchronize()", ["event_sync"]),
    ],
)
def test_kind_of_wait(sim, expression, kinds):
    assert [sync.kind for sync in syncs_of(sim, expression)] == kinds


def test_every_rule_says_why_and_by_which_source():
    for rule in RULES:
        assert rule.kind in KINDS
        assert rule.reason
        assert rule.source


def test_the_page_on_sync_rules_shows_the_table():
    page = Path(__file__).parents[2] / "docs" / "sync-rules.md"
    assert rule_table(RULES) in page.read_text()


def test_a_sync_names_its_operator_line_and_phase(sim):
    import torch

    from mtp_bench import ranges

    loss_mask = torch.zeros(3, device="cuda")
    with sim.record_syncs() as syncs, ranges.open_range("forward"):
        num_tokens = loss_mask.sum()
        if num_tokens > 0:
            raise AssertionError
    (sync,) = syncs
    assert (sync.op, sync.kind, sync.code) == ("aten::_local_scalar_dense", "item", "if num_tokens > 0:")
    assert (sync.file, sync.phase, sync.range) == (sync.stack[0].file, "forward", ("forward",))
    assert Path(sync.stack[0].path) == Path(__file__)
    assert sync.function == "test_a_sync_names_its_operator_line_and_phase"
