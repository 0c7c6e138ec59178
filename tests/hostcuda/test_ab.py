"""``mtp_bench.ab`` on the CUDA build of PyTorch: marks that nobody waits for, a job that waits as often as before."""

import time
import tracemalloc
from collections import Counter

import hostcuda
import pytest
import torch

from benchmarks import ab_job, ab_overhead, ab_planted
from mtp_bench.ab.marks import CudaMarks
from mtp_bench.ab.recorder import Recorder

MS = 1e6
KERNEL_NS = 5_000_000  # so long that a busy machine enqueues in time
CREATES_OR_WAITS = ("cudaEvent", "cudaStream", "cudaMalloc", "cudaMemcpy", "cudaDevice")


@pytest.fixture
def x(device):
    x = torch.ones(8, device="cuda")
    x.add_(1)
    return x


@pytest.fixture
def job(device):
    with ab_job.running(kernel_ns=0, gemm_ns=0) as job:
        yield job


def kernels(x, count):
    for _ in range(count):
        x.add_(1)


def until_passed(marks, mark):
    deadline = time.monotonic() + 60
    while not marks.has_passed(mark):
        assert time.monotonic() < deadline
        marks.look()


def test_a_mark_has_passed_when_what_was_queued_before_it_has(device, x):
    marks = CudaMarks(2, 0)
    with hostcuda.durations(kernel_ns=KERNEL_NS):
        marks.record(0)
        kernels(x, 4)
        marks.record(1)
        marks.look()
        assert not marks.has_passed(1)
        until_passed(marks, 1)
    assert marks.elapsed_ns(0, 1) == pytest.approx(4 * KERNEL_NS, rel=0.01)
    assert marks.bounds_ns(1)[0] < marks.bounds_ns(1)[1]
    assert marks.bounds_ns(1)[1] - marks.host_ns(1) >= 4 * KERNEL_NS * 0.99


def test_a_mark_is_recorded_in_the_current_stream(device, monkeypatch):
    marks = CudaMarks(1, 0)
    streams = []
    record = torch.cuda.Event.record
    monkeypatch.setattr(
        torch.cuda.Event, "record", lambda event, stream: (streams.append(stream), record(event, stream))
    )
    side = torch.cuda.Stream()
    marks.record(0)
    with torch.cuda.stream(side):
        marks.record(0)
    marks.record(0)
    assert streams == [torch.cuda.default_stream(), side, torch.cuda.default_stream()]


def test_nothing_is_created_and_nothing_waited_for_once_a_recorder_is_there(device, x):
    recorder = Recorder(torch.device("cuda"), windows=50, window=5)
    hostcuda.reset()
    for number in range(50):
        recorder.begin_window(number, 0, number)
        for _ in range(5):
            recorder.begin_step()
            kernels(x, 2)
            recorder.enter_loss()
            kernels(x, 1)
            recorder.leave_loss()
            recorder.end_step()
    recorder.finish(1.0)
    calls = hostcuda.calls()
    assert recorder.windows >= 1
    assert recorder.windows + recorder.windows_lost == 50
    assert calls["cudaEventRecordWithFlags"] > 0
    assert {name for name in calls if name.startswith(CREATES_OR_WAITS)} <= {
        "cudaEventRecordWithFlags",
        "cudaEventQuery",
        "cudaEventElapsedTime",
        "cudaStreamIsCapturing",
        "cudaStreamGetCaptureInfo",
    }


@pytest.mark.parametrize("ends", [False, True])
def test_steps_and_losses_take_as_long_as_their_kernels(device, x, ends):
    recorder = Recorder(torch.device("cuda"), windows=4, window=4)
    with hostcuda.durations(kernel_ns=KERNEL_NS):
        for number in range(4):
            recorder.begin_window(number, 0, number)
            for _ in range(4):
                recorder.begin_step()
                kernels(x, 3)
                recorder.enter_loss()
                kernels(x, 2)
                recorder.leave_loss()
                x[0].item()
                if ends:
                    recorder.end_step()
        if not ends:
            recorder.begin_step()
        recorder.finish(at_most_s=60)
    times = recorder.times(0)
    assert min(times.step_ns) == pytest.approx(5 * KERNEL_NS, rel=0.1)
    assert min(times.loss_ns) == pytest.approx(2 * KERNEL_NS, rel=0.01)
    # The wait leaves nothing queued: the loss finds the step's own three kernels, less the host's time to enqueue them.
    assert max(times.lead_ns) == pytest.approx(3 * KERNEL_NS, rel=0.1)
    assert not any(times.throttled)


def test_a_recorder_s_memory_does_not_grow(device, x):
    recorder = Recorder(torch.device("cuda"), windows=1000, window=5)

    def run(numbers):
        for number in numbers:
            recorder.begin_window(number, number % 2, number // 2)
            for _ in range(5):
                recorder.begin_step()
                recorder.enter_loss()
                recorder.leave_loss()

    tracemalloc.start()
    try:
        run(range(100))
        before = tracemalloc.get_traced_memory()[0]
        run(range(100, 1000))
        assert tracemalloc.get_traced_memory()[0] - before < 1000
    finally:
        tracemalloc.stop()


def test_a_job_waits_as_often_with_an_experiment_as_without(job):
    with job.with_loss(ab_overhead.VARIANT):
        job.iterations(ab_overhead.PRELUDE)
        without, said_without = ab_overhead.waits(job)
    with ab_overhead.experiment(job, 30):
        with_ab, said = ab_overhead.waits(job)
    assert with_ab == without
    assert said == said_without == 30  # the job's own
    assert without["cudaStreamSynchronize"] >= 30


def test_what_an_experiment_holds_does_not_grow(job):
    _, growth = ab_overhead.growth_bytes(job, windows=10)
    assert growth <= ab_overhead.GROWTH_BYTES


def test_waits_that_a_variant_has_more_are_counted_and_found(job):
    """A wait takes a millisecond here, so that no machine's noise hides 64 of them."""
    with hostcuda.durations(sync_ns=1_000_000):
        run = ab_planted.run_of(job, [ab_planted.BASELINE, "benchmarks.ab_planted:waits_64"], rounds=8, seed=1)
    row = ab_planted.rows_of(run)["benchmarks.ab_planted:waits_64"]
    assert row.syncs_change == 64
    assert row.verdict == "slower"
    assert row.difference.low > 32 * MS
    assert run.results[0].gradients is not None


@pytest.mark.slow
def test_one_function_under_two_names_is_the_same_or_unclear(job):
    verdicts: Counter[str] = ab_planted.equal(job, experiments=8, rounds=8)
    assert verdicts["same"] + verdicts["unclear"] >= 6
