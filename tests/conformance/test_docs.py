"""The loss of docs/check.md is found to have the faults that the page says it has, and no packed case asks for more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.test_cases import ALONE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "check.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the page's loss, and the file of known faults."""
    folder = tmp_path_factory.mktemp("mine")
    (loss,) = [text for language, text in BLOCKS if language == "py"]
    (known,) = [text for _, text in BLOCKS if text.startswith("# known-faults.txt")]
    (folder / "my_loss.py").write_text(loss)
    (folder / "known-faults.txt").write_text(known)
    return folder


@pytest.fixture(scope="module")
def check(folder):
    """Run a command of the page there."""

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "mtp_bench", "check", "--device", "sim", *arguments],
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "COLUMNS": "80"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_wrapper_has_the_faults_that_the_page_names(check):
    done = check("--variant", "my_loss:mtp_loss", "--no-ranks")
    assert done.returncode == 1, done.stderr
    shown = [text for language, text in BLOCKS if not language and "fails: my_loss:mtp_loss" in text]
    assert len(shown) == 2
    for text in shown:
        assert text in done.stdout
    packed = [case.id for case in ALONE if case.inputs.packed]
    assert [
        name for name in packed if f"{name}: my_loss:mtp_loss: it takes no packed_seq_params" not in done.stdout
    ] == []


def test_a_failing_case_reads_as_the_page_shows(check):
    (shown,) = [text for language, text in BLOCKS if not language and "fails: original" in text]
    assert shown in check("--variant", "original", "--case", "empty-shard").stdout


def test_the_file_of_known_faults_is_read(check):
    asked = ("--variant", "my_loss:mtp_loss", "--case", "empty-shard", "--case", "per-token-scale")
    assert check(*asked, "--expect-fail", "known-faults.txt").returncode == 0
    assert check(*asked).returncode == 1
