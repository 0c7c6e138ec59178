"""Released wheels of verl and megatron-core, unpacked by ``make deps`` into folders of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("MTP_BENCH_DEPS", Path(__file__).resolve().parent.parent / ".deps"))


def release(name: str, version: str) -> Path:
    """Return the folder to put on ``sys.path`` for a release, as in ``release("verl", "0.9.1")``.

    A missing one skips the test, except where ``CI`` is set: there it fails, for a skip would pass unseen.
    """
    folder = FOLDER / f"{name.replace('-', '_')}-{version}"
    if not folder.is_dir():
        message = f"{folder} is missing: run `make deps`"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folder
