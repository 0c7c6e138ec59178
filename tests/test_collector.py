"""Garbage is not collected while modules are imported or a capture is read, and is collected again afterwards."""

import gc
import subprocess
import sys

from mtp_bench.collector import without_collector

ASK = """
import gc, sys
sys.argv = ["mtp-bench", "doctor"]
from mtp_bench import doctor
seen = []
doctor.examine = lambda: seen.append(gc.isenabled()) or iter(())
from mtp_bench.__main__ import main
try:
    main()
finally:
    print(seen)
"""


def test_it_is_as_before_afterwards():
    with without_collector():
        assert not gc.isenabled()
    assert gc.isenabled()
    with without_collector(), without_collector():
        pass
    assert gc.isenabled()


def test_a_command_runs_with_it():
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    assert done.stdout == "[True]\n", done.stderr
