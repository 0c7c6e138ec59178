"""The referee of the simulated device's rules: the same expressions, judged by the CUDA build's own debug mode."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim import expressions

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tools" / "hostcuda")])}


def counts_on_cuda(table):
    """Expression -> counts seen; empty where every try failed on values that mean nothing here."""
    found = {}
    while todo := [expression for expression in table if expression not in found]:
        done = subprocess.run(
            [sys.executable, "-m", "tests.hostcuda.count_syncs"],
            cwd=ROOT,
            env=ENVIRONMENT,
            input="\n".join(todo),
            capture_output=True,
            text=True,
            check=False,
        )
        for line in done.stdout.splitlines():
            expression, counts = json.loads(line)
            found[expression] = counts or []
        assert todo[0] in found, done.stderr
    return found


@pytest.fixture(scope="module")
def judged():
    tables = (expressions.PYTORCH_MUST_NOT, expressions.PYTORCH_MUST)
    listed = [expression for table in tables for expression in expressions.lines(table)]
    return counts_on_cuda([*listed, *expressions.counted(expressions.COUNTS)])


def test_the_table_says_what_the_cuda_build_does(judged):
    table = expressions.counted(expressions.COUNTS)
    assert {name: judged[name] for name in table if judged[name]} == {
        name: [table[name]] for name in table if judged[name]
    }


def test_nearly_every_expression_was_judged(judged):
    unjudged = [name for name, counts in judged.items() if not counts]
    assert len(unjudged) <= len(judged) // 50, unjudged


def test_pytorchs_own_lists(judged):
    assert all(judged[name] == [0] for name in expressions.lines(expressions.PYTORCH_MUST_NOT))
    assert all(judged[name] and judged[name][0] > 0 for name in expressions.lines(expressions.PYTORCH_MUST))
