"""Tests of CUDA code on tools/hostcuda: the CUDA build of PyTorch over a CUDA runtime that computes nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "hostcuda"))

import hostcuda

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in Path(item.fspath).parents:
            item.add_marker(pytest.mark.hostcuda)


@pytest.fixture(autouse=True)
def _on_hostcuda(request):
    """Every test starts from an idle, infinitely fast device, counters at 0 and reads of 1: no size is garbage."""
    if not hostcuda.present():
        pytest.fail("these tests run on hostcuda: `make test-cuda`")
    import torch

    torch.cuda.synchronize()
    hostcuda.reads(1)
    hostcuda.reset()
    with hostcuda.durations(kernel_ns=0, gemm_ns=0, launch_ns=0, sync_ns=0):
        yield
        torch.cuda.synchronize()


@pytest.fixture
def device():
    from mtp_bench.devices.cuda import CudaDevice

    cuda = CudaDevice.from_spec("")
    with cuda.session():
        yield cuda


@pytest.fixture
def in_child(tmp_path):
    """Run a script in a process of its own, on hostcuda too, and return what it prints."""

    def run(script, **environment):
        path = tmp_path / "script.py"
        path.write_text(script)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
        done = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
