"""Two simulated GPUs are two processes over Gloo."""

import subprocess
import sys
from pathlib import Path


def test_two_ranks_exchange_tensors(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name("two_ranks.py"), str(rank), tmp_path / "store"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors)
