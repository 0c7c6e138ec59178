"""The modelled timeline as a Chrome trace."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mtp_bench import ranges
from mtp_bench.devices.sim import SimDevice
from mtp_bench.errors import InputError


def traced(tmp_path: Path, step: Any) -> list[dict[str, Any]]:
    device = SimDevice.from_spec("h100")
    with device.session():
        device.export_trace(step, str(tmp_path / "trace.json"))
    document = json.loads((tmp_path / "trace.json").read_text())
    assert document["otherData"] == {"device": "sim:h100", "modelled": True}
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def step() -> None:
    with ranges.open_range("step"), ranges.open_range("forward"):
        x = torch.ones(4, device="sim") * 2
        if x.sum() > 0:
            x.add_(1)


WATCHED = ["aten::mul.Tensor", "aten::sum", "wait: aten::_local_scalar_dense", "aten::add_.Tensor"]


def named(events: list[dict[str, Any]], row: int) -> list[str]:
    return [event["name"] for event in events if event["tid"] == row]


def test_operations_waits_and_kernels_have_their_rows(tmp_path: Path):
    events = traced(tmp_path, step)
    assert [name for name in named(events, 2) if name in WATCHED] == WATCHED
    wait = next(event for event in events if event["name"].startswith("wait"))
    assert wait["args"]["kind"] == "item"
    assert wait["args"]["code"] == "if x.sum() > 0:"
    assert "aten::mul.Tensor" in named(events, 3)


def test_ranges_hold_what_ran_inside_them(tmp_path: Path):
    events = traced(tmp_path, step)
    assert sorted(named(events, 1)) == ["forward", "step"]
    host = [event for event in events if event["tid"] == 2]
    (outer,) = (event for event in events if event["name"] == "step")
    assert all(event["ts"] >= outer["ts"] for event in host)
    assert max(event["ts"] + event["dur"] for event in host) == pytest.approx(outer["ts"] + outer["dur"])


def test_kernels_do_not_overlap_and_never_start_before_they_are_issued(tmp_path: Path):
    kernels = [event for event in traced(tmp_path, step) if event["tid"] == 3]
    assert all(later["ts"] >= earlier["ts"] + earlier["dur"] - 1e-9 for earlier, later in itertools.pairwise(kernels))


def test_a_file_that_cannot_be_written_is_an_input_error(tmp_path: Path):
    with pytest.raises(InputError, match="--trace"):
        traced(tmp_path / "missing", step)
