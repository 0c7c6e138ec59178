"""What a run does otherwise where Nsight Systems watches it, and in torchrun."""

from __future__ import annotations

import pytest
import torch

from mtp_bench import runner
from mtp_bench.devices.cuda import CudaDevice
from mtp_bench.errors import InputError


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.parametrize(
    ("asked", "local_rank", "index"), [("", "1", 1), ("", "0", 0), ("", "3", 1), ("", None, 0), ("0", "1", 0)]
)
def test_each_rank_of_torchrun_takes_its_own_gpu_unless_told_otherwise(two_gpus, monkeypatch, asked, local_rank, index):
    if local_rank is None:
        monkeypatch.delenv("LOCAL_RANK", raising=False)
    else:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert CudaDevice.from_spec(asked).index == index


def test_one_process_does_it_all_so_that_one_capture_holds_it(monkeypatch):
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    assert CudaDevice().detectors_linger
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "105378")
    assert not CudaDevice().detectors_linger


def test_a_trace_of_pytorchs_profiler_is_refused_before_anything_runs(monkeypatch, tmp_path):
    class Worker:
        def __init__(self, device):
            self.spec, self.device = "cuda:0", {"kind": "cuda", "modelled": False}

        def close(self):
            pass

    monkeypatch.setattr(runner, "WorkerProcess", Worker)
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "105378")
    with pytest.raises(InputError) as error:
        runner.run(["packed-sft"], ["patched"], "cuda", trace=tmp_path / "trace.json")
    assert str(error.value) == (
        "--trace: PyTorch's profiler cannot look where Nsight Systems does; use `mtp-bench run --trace`"
    )
