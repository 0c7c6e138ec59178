"""``reports/examples/`` holds what its runs give, byte for byte; ``make examples`` makes it again."""

from __future__ import annotations

import os
import re
from importlib.metadata import version

import pytest

from mtp_bench.results import FILE_NAME
from tests.report.examples import FOLDER, made

ROOT = FOLDER.parents[1]
DRAWN_BY = ("altair", "vl-convert-python")
MADE = list(made())


def pinned(package):
    """The version that constraints.txt gives, with which the pictures were drawn."""
    (found,) = re.findall(rf"^{package}==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return found


@pytest.mark.parametrize(("path", "text"), MADE, ids=[str(path.relative_to(FOLDER)) for path, _ in MADE])
def test_the_report_is_what_the_run_gives(path, text):
    if path.suffix == ".html" and os.environ.get("CI") != "true":
        other = [name for name in DRAWN_BY if version(name) != pinned(name)]
        if other:
            pytest.skip(f"drawn with another version of {' and '.join(other)}")
    assert path.read_text(encoding="utf-8") == text, "make examples"


def test_every_file_is_a_run_or_a_report():
    files = {path for path in FOLDER.rglob("*") if path.is_file() and path.name != FILE_NAME}
    assert files == {path for path, _ in MADE}
