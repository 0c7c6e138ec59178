"""What `mtp-bench compare` promises of itself: how long 10,000 samples in 200 results take, its start included.

And a training job of 1,024 ranks, of which every one is compared.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from mtp_bench.results import (
    Cpu,
    DeviceInfo,
    Environment,
    Gradients,
    GraphCapture,
    Job,
    Numerics,
    Place,
    Result,
    Run,
    Site,
    Size,
    Syncs,
    Time,
)

COMMAND = [sys.executable, "-m", "mtp_bench", "compare"]
WINDOWS = 50
LEADS_MS = (0.0, 0.5, 1.0, 5.0, 10.0)
VARIANTS = {"original": 0.0, "patched": 30.0, "sync_free": 2.0, "host_lens": -90.0, "boundary_roll": -250.0}  # us
SITES = {"original": 9, "patched": 10, "sync_free": 9}
LIMITS_S = {"terminal": 2.0, "json": 2.0, "markdown": 2.0, "html": 5.0}
RANKS = 1_024
JOB_LIMITS_S = {"terminal": 10.0, "json": 10.0}


def made_up_run(workloads: int, seed: int) -> Run:
    """Five variants at five leads on every workload, 50 windows each with 1 % of noise."""
    source = random.Random(seed)
    names = [f"packed-{number}" for number in range(workloads)]
    results = [
        _result(source, name, variant, lead_ms) for name in names for lead_ms in LEADS_MS for variant in VARIANTS
    ]
    return Run(
        created_at="2026-01-01T00:00:00+00:00",
        command="mtp-bench run",
        seed=seed,
        environment=Environment(
            torch="2.13.0",
            megatron_core="0.16.1",
            python="3.11.7",
            cpu=Cpu(model="Example CPU", count=8, affinity=8),
            device=DeviceInfo(kind="cuda", name="Example GPU", modelled=False, driver="575.1", cuda="12.9"),
        ),
        workloads={name: {"packed": True, "hidden_size": 4096} for name in names},
        results=results,
    )


def made_up_rank(rank: int, of_job: Sequence[float], source: random.Random) -> Run:
    """One rank of a job: two variants, 50 windows each with noise of the job and some of its own."""
    step_ns = [[1e3 * (100_000.0 + us + source.gauss(0.0, 20.0)) for us in of_job] for _ in range(2)]
    results = [
        Result(
            workload="job",
            variant=variant,
            scope="job",
            harness="job",
            lead_ms=0.0,
            device="cuda:0",
            status="ok",
            gradients=Gradients(status="equal", compared_with="process_mtp_loss", max_rel_err=0.0, bound=2e-2),
            time=Time(
                modelled=False,
                step_ns=steps,
                round=list(range(WINDOWS)),
                host_ns=[9e7] * WINDOWS,
                lead_ns=[1e6] * WINDOWS,
                loss_ns=[7e5] * WINDOWS,
                sm_clock_mhz=[1_980] * WINDOWS,
                throttled=[False] * WINDOWS,
            ),
        )
        for variant, steps in zip(("patched", "boundary_roll"), step_ns, strict=True)
    ]
    job = Job(
        id="made-up", rank=rank, world_size=RANKS, has_loss=True, steps=2_000, window=20, windows=100, ended="done"
    )
    run = made_up_run(0, seed=0)
    return run.model_copy(update={"job": job, "workloads": {"job": {"packed": True}}, "results": results})


def seconds(arguments: Sequence[str]) -> float:
    """Wall time of the whole process, the best of three: the machine's other work only adds."""
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        process = subprocess.run([*COMMAND, *arguments], stdout=subprocess.DEVNULL, check=False)
        taken.append(time.perf_counter() - started)
        if process.returncode != 0:
            raise SystemExit(f"mtp-bench compare {' '.join(arguments)} ended with {process.returncode}")
    return min(taken)


def _result(source: random.Random, workload: str, variant: str, lead_ms: float) -> Result:
    sites = [_site(line) for line in range(SITES.get(variant, 0))]
    count = sum(site.count for site in sites)
    return Result(
        workload=workload,
        variant=variant,
        scope="loss",
        harness="bare",
        lead_ms=lead_ms,
        device="cuda:0",
        status="ok",
        numerics=Numerics(
            at=Size(hidden_size=64, vocab_size=512),
            finite=True,
            status="close",
            logged_loss=[6.2],
            reference_loss=[6.2],
            max_rel_err_grad=1e-3,
            grad_scale=1.0,
        ),
        syncs=Syncs(detectors={"torch": count}, count=count, agreed=True, sites=sites),
        graph_capture=GraphCapture(possible=not sites),
        time=Time(
            modelled=False,
            step_ns=[1e3 * (10_000.0 + VARIANTS[variant] + source.gauss(0.0, 100.0)) for _ in range(WINDOWS)],
            round=list(range(WINDOWS)),
            host_ns=[5e6] * WINDOWS,
            lead_ns=[lead_ms * 1e6] * WINDOWS,
            sm_clock_mhz=[source.choice((1_965, 1_980)) for _ in range(WINDOWS)],
            throttled=[source.random() < 0.01 for _ in range(WINDOWS)],
            stop_reason="noise",
        ),
    )


def _site(line: int) -> Site:
    place = Place(file="megatron/core/transformer/multi_token_prediction.py", line=300 + line, function="roll")
    return Site(
        **place.model_dump(),
        code=f"tensor[..., start:end]  # {line}",
        op="aten::_local_scalar_dense",
        kind="item",
        phase="forward",
        range=["run", "step", "forward", "mtp_loss", "depth:1"],
        stack=[place] * 5,
        count=4,
        seen_by=["torch"],
    )


def _job(folder: Path) -> bool:
    """Whether comparing the variants of a job takes too long."""
    source, late = random.Random(3), False
    of_job = [source.gauss(0.0, 200.0) for _ in range(WINDOWS)]
    for rank in range(RANKS):
        made_up_rank(rank, of_job, source).write(folder / f"rank-{rank}")
    for name, limit in JOB_LIMITS_S.items():
        taken = seconds([str(folder), "--format", name])
        late |= taken > limit
        note = "" if taken <= limit else "  too slow"
        print(
            f"compare --format {name:<9} {f'a job of {RANKS:,} ranks':<24} {taken:6.2f} s of {limit:g} s{note}",
            flush=True,
        )
    return late


def main() -> int:
    """Print what is promised beside what was measured, of one run's variants and of two runs."""
    late = False
    with tempfile.TemporaryDirectory() as folder:
        whole, before, after = (Path(folder) / name for name in ("whole", "before", "after"))
        made_up_run(8, seed=1).write(whole)
        for number, path in enumerate((before, after)):
            made_up_run(4, seed=number).write(path)
        for what, runs in (("one run of 200 results", [whole]), ("two runs of 100 results", [before, after])):
            for name, limit in LIMITS_S.items():
                taken = seconds([*map(str, runs), "--format", name])
                late |= taken > limit
                note = "" if taken <= limit else "  too slow"
                print(f"compare --format {name:<9} {what:<24} {taken:6.2f} s of {limit:g} s{note}", flush=True)
        late |= _job(Path(folder) / "job")
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
