"""What `mtp_bench.ab` costs the job that it measures, beside a naive comparison that waits after every iteration.

    python tools/hostcuda/run.py -m benchmarks.ab_overhead [ROUNDS]

A small Megatron job runs the same variant with an experiment and without, in blocks by turns: waits counted, the
training thread's own CPU time, wall time. What another driver's calls cost, hostcuda does not tell.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, median

import torch

import mtp_bench
from benchmarks import ab_job
from benchmarks.ab_job import Job, hostcuda
from mtp_bench.ab.experiment import Experiment
from mtp_bench.ab.recorder import Recorder
from mtp_bench.patching import Patches
from mtp_bench.statistics import paired_difference

VARIANT = "sync_free"
WINDOW = 10
BLOCK = 40  # iterations timed in a row
PRELUDE = 2 + WINDOW  # ab's own first iterations, and a window
HOOKS_US = 20.0
STEP_MS, SHARE = 100.0, 0.001
GROWTH_BYTES = 1024
WAITS = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cudaStreamWaitEvent",
    "cudaMalloc",
    "cudaFree",
)


@contextmanager
def experiment(job: Job, iterations: int) -> Iterator[Experiment]:
    """An experiment past its beginning."""
    steps = -(-(PRELUDE + iterations) // WINDOW + 1) * WINDOW
    with (
        tempfile.TemporaryDirectory() as out,
        mtp_bench.ab(
            job.ddp, [VARIANT], steps, WINDOW, out, optimizer=job.optimizer, allow_different_gradients=True
        ) as running,
    ):
        job.iterations(PRELUDE)
        yield running
        if running.refusal:
            raise SystemExit(f"no experiment: {running.refusal}")


def waits(job: Job, iterations: int = 30) -> tuple[Counter[str], int]:
    """Calls that wait (or that nobody should make while training), and the debug mode's warnings."""
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        hostcuda.reset()
        job.iterations(iterations)
        calls = hostcuda.calls()
        torch.cuda.set_sync_debug_mode("default")
    synchronizing = [warning for warning in said if "called a synchronizing" in str(warning.message)]
    return Counter({name: calls.get(name, 0) for name in WAITS}), len(synchronizing)


def cpu_us(job: Job) -> float:
    """CPU time of the training thread an iteration, median of a block: other processes add nothing to it."""
    times = []
    for _ in range(BLOCK):
        began = time.thread_time_ns()
        job.iterations(1)
        times.append(time.thread_time_ns() - began)
    return median(times) / 1e3


class HookTimes:
    """Times what ``ab`` runs in the training thread, where it runs: caches are as the job leaves them."""

    METHODS = ((Experiment, "_begin"), (Experiment, "_end_of_step"), (Recorder, "enter_loss"), (Recorder, "leave_loss"))

    def __init__(self) -> None:
        self.spent_ns = 0
        self._patches = Patches()

    def __enter__(self) -> HookTimes:
        for owner, name in self.METHODS:
            self._patches.wrap(owner, name, self._timed)
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.undo()

    def _timed(self, method: Callable[..., None]) -> Callable[..., None]:
        def call(*args: object) -> None:
            time.perf_counter_ns()  # the clock's own code is not in the caches either
            began = time.perf_counter_ns()
            method(*args)
            self.spent_ns += time.perf_counter_ns() - began

        return call


def hooks_us(job: Job, windows: int = 60) -> tuple[float, float]:
    """Host time in hooks an iteration, and that of the dearest iteration of a window, its first.

    Medians over the windows at each place in them: what other processes add now and then is not ab's.
    """
    times = []
    with HookTimes() as hooks, experiment(job, windows * WINDOW):
        for _ in range(windows * WINDOW):
            hooks.spent_ns = 0
            job.iterations(1)
            times.append(hooks.spent_ns / 1e3)
    places = [median(times[at::WINDOW]) for at in range(WINDOW)]
    return fmean(places), max(places)


def growth_bytes(job: Job, windows: int = 30) -> tuple[int, int]:
    """Memory that ``ab`` holds, and by how much it grows in so many windows."""
    with experiment(job, (windows + 5) * WINDOW):
        tracemalloc.start()  # what was made before is fixed, and not traced
        job.iterations(5 * WINDOW)
        before = _held()
        job.iterations(windows * WINDOW)
        after = _held()
        tracemalloc.stop()
    return after, after - before


def _held() -> int:
    ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/mtp_bench/ab/*")])
    return sum(trace.size for trace in ours.traces)


@dataclass(frozen=True)
class Added:
    """What is added to an iteration, with its 98 % interval, in microseconds."""

    us: float
    low: float
    high: float

    @classmethod
    def of(cls, without: list[float], with_: list[float]) -> Added:
        found = paired_difference(without, with_)
        return cls(found.difference, found.low, found.high)

    def __str__(self) -> str:
        return f"{self.us:.1f} [{self.low:.1f}, {self.high:.1f}]"


def by_turns(job: Job, rounds: int) -> tuple[Added, Added, Added, float]:
    """CPU time that ``ab`` adds, wall time that it and a wait an iteration add, and the plain step; in microseconds."""
    cpu: tuple[list[float], list[float]] = ([], [])
    wall: tuple[list[float], list[float], list[float]] = ([], [], [])
    for _ in range(rounds):
        with job.with_loss(VARIANT):
            job.iterations(PRELUDE)
            cpu[0].append(cpu_us(job))
            wall[0].append(1e6 * ab_job.seconds(job, BLOCK))
            wall[2].append(1e6 * ab_job.seconds(job, BLOCK, torch.cuda.synchronize))
        with experiment(job, 2 * BLOCK):
            cpu[1].append(cpu_us(job))
            wall[1].append(1e6 * ab_job.seconds(job, BLOCK))
    return Added.of(*cpu), Added.of(wall[0], wall[1]), Added.of(wall[0], wall[2]), median(wall[0])


def main() -> int:
    """Print the table; 1 where a limit is exceeded."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    exceeded = False
    warnings.filterwarnings("ignore")

    def row(what: str, found: str, limit: str = "", over: bool = False) -> None:
        nonlocal exceeded
        exceeded |= over
        print(f"{what:<66}{found:>28}{limit:>10}{'  too much' if over else ''}", flush=True)

    with ab_job.running() as job:
        with job.with_loss(VARIANT):
            job.iterations(PRELUDE)
            without = waits(job)
        with experiment(job, 30):
            with_ab = waits(job)
        added = with_ab[0] - without[0]
        hooks, dear = hooks_us(job)
        held, growth = growth_bytes(job)
        cpu, wall, naive, step_us = by_turns(job, rounds)
    allowed_us = min(HOOKS_US, 1e3 * STEP_MS * SHARE)
    kernels_us = ab_job.KERNEL_NS / 1e3
    print(f"An iteration of {step_us / 1e3:.1f} ms, kernels of {kernels_us:g} us; {ab_job.shared_machine()}.\n")
    row("", "measured", "limit")
    row("waits added in 30 iterations, by hostcuda's counters", str(sum(added.values())), "0", bool(added))
    row("the same, by PyTorch's debug mode", str(with_ab[1] - without[1]), "0", with_ab[1] != without[1])
    row(
        "us of the training thread an iteration, hooks timed in place",
        f"{hooks:.1f}",
        f"{allowed_us:g}",
        hooks > allowed_us,
    )
    row(
        f"  of a step of {STEP_MS:g} ms, %",
        f"{hooks / STEP_MS / 10:.4f}",
        f"{100 * SHARE:g}",
        hooks > 1e3 * STEP_MS * SHARE,
    )
    row("  the dearest iteration of a window", f"{dear:.1f}")
    row("us of the training thread, with ab less without", str(cpu), f"{allowed_us:g}", cpu.low > allowed_us)
    row("us of wall time, with ab less without", str(wall), f"{allowed_us:g}", wall.low > allowed_us)
    row("us of wall time, torch.cuda.synchronize() each iteration less none", str(naive))
    row("  times what ab's hooks take", f"{naive.us / hooks:.0f}")
    row("bytes that ab holds beyond its start", str(held))
    row("  and by which that grows in 30 windows", str(growth), str(GROWTH_BYTES), growth > GROWTH_BYTES)
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
