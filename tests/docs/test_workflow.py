"""The GitHub Actions example: its steps, run by the shell that GitHub runs them with, do what docs/compare.md says."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import runs
from tests.compare.sides import mine

ROOT = Path(__file__).parents[2]
WORKFLOW = (ROOT / "examples" / "github-actions.yml").read_text()


def script(step):
    """What a step runs."""
    text = WORKFLOW.split(f"- name: {step}\n", 1)[1].split("\n      - ", 1)[0]
    return textwrap.dedent(re.search(r"^ +run: \|\n(.*)", text, re.MULTILINE | re.DOTALL)[1]).rstrip() + "\n"


def environment():
    """The job's ``env``."""
    block = WORKFLOW.split("    env:\n", 1)[1].split("    steps:\n", 1)[0]
    found = re.findall(r"^      (\w+): (?:>-\n)?(.*?)(?=^      \w|\Z)", block, re.MULTILINE | re.DOTALL)
    return {name: " ".join(value.split()) for name, value in found}


@pytest.fixture
def step(tmp_path):
    """Run a step in an empty workspace, where ``mtp-bench`` is this one."""
    command = tmp_path / "bin" / "mtp-bench"
    command.parent.mkdir()
    # As the script that pip installs: what PYTHONPATH says is for the loss alone.
    command.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{ROOT}" exec {sys.executable} -m mtp_bench "$@"\n')
    command.chmod(0o755)

    def run(name):
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-c", script(name)],
            cwd=tmp_path,
            env={
                **os.environ,
                **environment(),
                "PATH": f"{command.parent}:{os.environ['PATH']}",
                "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_what_the_job_sets():
    assert environment() == {
        "MTP_BENCH": "git+https://github.com/your-org/mtp-bench",
        "RUN": "mtp-bench run --device sim:h100 --profile padded-sft --profile packed-sft --profile empty-shard "
        "--variant my_pkg.loss:mtp_loss",
        "GATES": "syncs,values,slower>2%",
    }


@pytest.mark.parametrize("step", ["Compare", "Comment"])
def test_the_page_shows_the_steps_as_they_are(step):
    assert f"```bash\n{script(step)}```\n" in (ROOT / "docs" / "compare.md").read_text()


@pytest.mark.parametrize(
    ("branch", "code", "word"),
    [
        (mine(10_000.0), 0, "passed"),
        (mine(10_300.0), 1, "failed"),
        (mine(10_000.0, syncs=runs.syncs(runs.site(1))), 1, "failed"),
        (runs.result("mine", status="failed", error="ValueError: boom", time=None), 3, "cannot tell"),
    ],
)
def test_compare_fails_the_job_and_leaves_all_formats(step, tmp_path, branch, code, word):
    runs.run([mine(10_000.0)]).write(tmp_path / "runs" / "main")
    runs.run([branch]).write(tmp_path / "runs" / "branch")
    done = step("Compare")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    summary = (tmp_path / "summary.md").read_text()
    assert summary == (tmp_path / "compare.md").read_text()
    assert summary.startswith("# mtp-bench compare\n")
    assert f"`slower>2%`: {word}" in summary
    assert ElementTree.parse(tmp_path / "compare.xml").getroot().tag == "testsuites"
    assert (tmp_path / "compare.html").read_text().rstrip().endswith("</html>")


def test_a_run_that_was_not_written_fails_the_job(step, tmp_path):
    runs.run([mine(10_000.0)]).write(tmp_path / "runs" / "main")
    done = step("Compare")
    assert done.returncode == 2
    assert "error: runs/branch: no such run; give a run.json or the folder that holds one" in done.stderr


LOSS = """
from mtp_bench.variants.sync_free import sync_free

def mtp_loss(*, loss_mask, **others):
    {body}
    return sync_free(loss_mask=loss_mask, **others)
"""


@pytest.mark.slow
def test_a_sync_that_a_branch_adds_fails_the_job(step, tmp_path):
    for side, body in (("main", "pass"), ("branch", "float(loss_mask.sum())")):
        package = tmp_path / side / "my_pkg"
        package.mkdir(parents=True)
        (package / "loss.py").write_text(LOSS.format(body=body))
    done = step("Run both")
    assert done.returncode == 0, done.stderr
    done = step("Compare")
    assert done.returncode == 1, done.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert "my_pkg/loss.py" in summary
    assert "syncs" in summary.splitlines()[2]
