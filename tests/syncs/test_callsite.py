"""Which frame a sync is put down to, and how syncs add up by place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from mtp_bench.syncs import Frame, Sync, by_site, capture_stack
from mtp_bench.syncs.callsite import relative_path, user_frame_of


def here() -> int:
    return sys._getframe(1).f_lineno


def test_the_call_site_is_the_innermost_line_of_the_users_code():
    def caller() -> tuple[Frame, ...]:
        return capture_stack()

    stack = caller()
    assert stack[0].function.endswith("caller")
    assert stack[1].line == here() - 2
    assert stack[0].path == __file__


def test_frames_of_torch_are_left_out():
    seen: list[tuple[Frame, ...]] = []

    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(capture_stack())
            return x * 2

    Double()(torch.ones(1))
    assert [frame.function.rsplit(".", 1)[-1] for frame in seen[0][:2]] == [
        "forward",
        "test_frames_of_torch_are_left_out",
    ]


def test_a_file_is_relative_to_the_longest_import_path_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "src")])
    relative_path.cache_clear()
    assert relative_path(str(tmp_path / "src" / "pkg" / "loss.py")) == "pkg/loss.py"
    assert relative_path("/elsewhere/loss.py") == "/elsewhere/loss.py"
    relative_path.cache_clear()


def test_the_line_that_raised_is_found_in_a_traceback():
    try:
        torch.ones(2).reshape(3)
    except RuntimeError as error:
        frame = user_frame_of(error)
    assert frame is not None
    assert (frame.path, frame.line) == (__file__, here() - 4)


def sync(line: int, blocked_ns: int | None = None, kind: str = "item") -> Sync:
    return Sync(kind, "aten::_local_scalar_dense", (Frame("loss.py", line, "f", "/x/loss.py"),), blocked_ns=blocked_ns)


def test_syncs_add_up_by_place_in_the_order_first_seen():
    sites = by_site([sync(3, 10), sync(9), sync(3, 5), sync(9, kind="dtoh")])
    assert [(site.first.line, site.first.kind, site.count, site.blocked_ns) for site in sites] == [
        (3, "item", 2, 15),
        (9, "item", 1, None),
        (9, "dtoh", 1, None),
    ]


def test_a_sync_without_a_python_frame_has_an_unknown_place():
    lost = Sync("item", "aten::item", ())
    assert (lost.file, lost.line, lost.function, lost.code) == ("<unknown>", 0, "<unknown>", "")
