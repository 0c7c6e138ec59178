"""hostcuda itself: what PyTorch's host code sees of a device with nothing behind it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import hostcuda
import pytest
import torch

RUN = Path(__file__).parents[2] / "tools" / "hostcuda" / "run.py"


def elapsed_ms(work):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def waits():
    return hostcuda.calls().get("cudaStreamSynchronize", 0)


def test_pytorch_sees_one_device():
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.get_device_name() == "hostcuda (no GPU)"


def test_copies_copy_and_kernels_compute_nothing():
    hostcuda.reads(-1)
    there = torch.tensor([1.0, 2.0, 3.0]).cuda()
    assert there.cpu().tolist() == [1.0, 2.0, 3.0]
    there.add_(1)
    assert there.cpu().tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x.sum()", 0),
        ("x @ x.T", 0),
        ("x.sort()", 0),
        ("x.cuda()", 0),
        ("torch.equal(x, x)", 0),  # one storage: decided on the host
        ("torch.equal(x, y)", 1),
        ("x[0, 0].item()", 1),
        ("bool(x.any())", 1),
        ("x[x > 0]", 1),
        ("torch.nonzero(x)", 1),
        ("x.cpu()", 1),
        ("x.to('cpu', non_blocking=True)", 0),
        ("torch.ones(4).cuda()", 1),
        ("torch.ones(4).to('cuda', non_blocking=True)", 0),
        ("torch.tensor(1.0, device='cuda')", 1),
        ("x.new_tensor(0.0)", 1),
        ("x[i:]", 1),  # a 0-d device tensor as the bound of a slice
        ("x[i:i]", 2),
        ("torch.cuda.current_stream().synchronize()", 1),
    ],
)
def test_pytorch_waits_as_often_as_on_a_gpu(expression, expected):
    names = {"torch": torch, "x": torch.ones(4, 4, device="cuda"), "y": torch.ones(4, 4, device="cuda")}
    names["i"] = torch.zeros((), dtype=torch.long, device="cuda")
    hostcuda.reset()
    eval(expression, names)
    assert waits() == expected


@pytest.mark.parametrize(("value", "expected"), [(0, False), (1, True)])
def test_reads_choose_the_branch(value, expected):
    count = torch.ones((), device="cuda", dtype=torch.long)
    hostcuda.reads(value)
    assert bool(count > 0) is expected


def test_kernels_take_their_duration_one_after_another():
    x = torch.ones(8, device="cuda")
    x.add_(1)
    with hostcuda.durations(kernel_ns=200_000):
        measured = elapsed_ms(lambda: [x.add_(1) for _ in range(50)])
    assert measured == pytest.approx(10, rel=0.1)


def test_the_host_does_not_wait_for_kernels_until_it_reads():
    x = torch.ones(8, device="cuda")
    torch.cuda._sleep(20_000_000)
    started = time.perf_counter()
    x.add_(1)
    assert time.perf_counter() - started < 0.01
    x[0].item()
    assert time.perf_counter() - started > 0.018


def test_the_spin_kernel_takes_a_nanosecond_a_cycle():
    assert elapsed_ms(lambda: torch.cuda._sleep(10_000_000)) == pytest.approx(10, rel=0.05)


def test_memory_is_bounded_and_comes_back():
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0]
    block = torch.empty(50 << 30, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(50 << 30, dtype=torch.uint8, device="cuda")
    del block
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] == before


def test_a_graph_is_captured_where_nothing_waits():
    x = torch.ones(8, device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.add_(1)


def test_collectives_of_one_rank_copy():
    dist = torch.distributed
    dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
    try:
        hostcuda.reads(-1)
        x = torch.tensor([1.0, 2.0]).cuda()
        hostcuda.reset()
        dist.all_reduce(x)
        assert waits() == 0
        assert x.cpu().tolist() == [1.0, 2.0]
        gathered = torch.zeros(2, device="cuda")
        dist.all_gather_into_tensor(gathered, x)
        assert gathered.cpu().tolist() == [1.0, 2.0]
    finally:
        dist.destroy_process_group()


def test_durations_come_from_the_environment():
    code = "import hostcuda, ctypes; print(ctypes.c_long.in_dll(ctypes.CDLL(None), 'hostcuda_kernel_ns').value)"
    env = {**os.environ, "HOSTCUDA_KERNEL_NS": "20000", "PYTHONPATH": str(RUN.parent)}
    done = subprocess.run([sys.executable, RUN, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "20000\n"


def test_a_cpu_build_of_pytorch_is_refused(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "version.py").write_text("cuda: Optional[str] = None\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, RUN, "-c", "pass"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "has a CPU build of PyTorch" in done.stderr
