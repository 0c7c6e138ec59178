"""``read_capture``: a capture of Nsight Systems, from its file to syncs."""

from __future__ import annotations

from pathlib import Path

from mtp_bench.nsight.model import Capture


def read_capture(path: Path, *, range_glob: str | None = None) -> Capture:
    """Read the SQLite export at ``path``."""
    raise NotImplementedError
