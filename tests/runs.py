"""Small runs made by hand, for the tests of what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    VariantInfo,
)

WORKLOADS = {
    "padded-sft": {"title": "SFT, padded rows", "packed": False, "hidden_size": 4096, "stand_in": "2 layers"},
    "packed-sft": {"title": "SFT, packed row", "packed": True, "hidden_size": 4096, "stand_in": "2 layers"},
}


def environment(**changes: Any) -> Environment:
    values: dict[str, Any] = {
        "torch": "2.13.0",
        "megatron_core": "0.16.1",
        "python": "3.11.7",
        "cpu": Cpu(model="Example CPU", count=8, affinity=8),
        "device": DeviceInfo(kind="sim", name="h100", modelled=True),
        "packages": {"mtp-bench": "0.1.0"},
    }
    return Environment(**{**values, **changes})


GPU = DeviceInfo(kind="cuda", name="NVIDIA H100 80GB HBM3", modelled=False, driver="575.1", cuda="12.9")


def site(count: int = 1, line: int = 40, **changes: Any) -> Site:
    values: dict[str, Any] = {
        "file": "mtp_bench/variants/patched.py",
        "line": line,
        "function": "patched",
        "code": "if num_tokens > 0:",
        "op": "aten::_local_scalar_dense",
        "kind": "item",
        "phase": "forward",
        "range": ["run", "step", "forward", "mtp_loss", "depth:1"],
        "stack": [Place(file="mtp_bench/variants/patched.py", line=line, function="patched")],
        "count": count,
        "seen_by": ["sim"],
    }
    return Site(**{**values, **changes})


def syncs(*sites: Site) -> Syncs:
    count = sum(found.count for found in sites)
    return Syncs(detectors={"sim": count}, count=count, agreed=True, sites=list(sites))


def time(*step_us: float, modelled: bool = True, **changes: Any) -> Time:
    windows = len(step_us)
    values: dict[str, Any] = {
        "modelled": modelled,
        "step_ns": [us * 1e3 for us in step_us],
        "round": list(range(windows)),
        "host_ns": [us * 1e3 / 2 for us in step_us],
        "lead_ns": [1e6] * windows,
        "sm_clock_mhz": [None] * windows,
        "throttled": [False] * windows,
        "stop_reason": "modelled" if modelled else "noise",
    }
    return Time(**{**values, **changes})


def numerics(status: str = "close", **changes: Any) -> Numerics:
    values: dict[str, Any] = {
        "at": Size(hidden_size=64, vocab_size=512),
        "finite": status != "nan",
        "status": status,
        "logged_loss": [6.2],
        "reference_loss": [6.2],
        "max_rel_err_grad": 1e-3,
        "grad_scale": 1.0,
        "head_gradient": "trained",
    }
    return Numerics(**{**values, **changes})


def result(variant: str, workload: str = "packed-sft", lead_ms: float = 1.0, **changes: Any) -> Result:
    values: dict[str, Any] = {
        "workload": workload,
        "variant": variant,
        "scope": "loss",
        "harness": "bare",
        "lead_ms": lead_ms,
        "device": "sim:h100",
        "status": "ok",
        "variant_info": VariantInfo(),
        "numerics": numerics(),
        "syncs": syncs(),
        "graph_capture": GraphCapture(possible=True),
        "time": time(10_000.0),
    }
    return Result(**{**values, **changes})


def run(results: Sequence[Result] = (), **changes: Any) -> Run:
    named = dict.fromkeys(found.workload for found in results)
    values: dict[str, Any] = {
        "created_at": "2026-12-01T00:00:00+00:00",
        "command": "mtp-bench run --device sim",
        "seed": 0,
        "environment": environment(),
        "workloads": {name: WORKLOADS.get(name, {"packed": False}) for name in named},
        "results": list(results),
    }
    return Run(**{**values, **changes})


def modelled_run(leads_ms: Sequence[float] = (0.0, 1.0, 10.0)) -> Run:
    """Padded and packed, the five built-in variants; steps whose differences are round numbers."""
    step_us = {
        "original": 10_240.0,
        "patched": 10_256.5,
        "sync_free": 10_240.0,
        "host_lens": 10_100.0,
        "boundary_roll": 10_000.0,
    }
    roll = site(
        32, line=300, file="megatron/core/transformer/multi_token_prediction.py", function="_roll_packed", code="x[a:b]"
    )
    guard = site(1)
    packed_sites = {
        "original": [roll],
        "patched": [roll, guard],
        "sync_free": [roll],
        "host_lens": [],
        "boundary_roll": [],
    }
    padded_sites = {"patched": [guard]}
    results = []
    for workload, sites in (("padded-sft", padded_sites), ("packed-sft", packed_sites)):
        for variant, us in step_us.items():
            found = sites.get(variant, [])
            results += [
                result(
                    variant,
                    workload,
                    lead_ms,
                    time=time(us, device_idle_ns=[1_500.0 * len(found)]),
                    syncs=syncs(*found),
                    graph_capture=GraphCapture(possible=not found),
                )
                for lead_ms in leads_ms
            ]
    return run(results)


def measured_run(windows: int = 20, label_us: float = 30.0) -> Run:
    """Packed, three variants on a GPU, with drift that all share and a guard of ``label_us``."""
    drift = [10_000.0 + 10 * (window % 5) for window in range(windows)]
    steps = {
        "patched": [us + label_us for us in drift],
        "sync_free": drift,
        "host_lens": [us - 100 for us in drift],
        "boundary_roll": [us - 250 for us in drift],
    }
    results = [
        result(variant, device="cuda:0", time=time(*us, modelled=False), syncs=syncs()) for variant, us in steps.items()
    ]
    return run(results, environment=environment(device=GPU))


JOB = {"packed": True, "hidden_size": 4096, "mtp_num_layers": 1, "window": 10}


def gradients(status: str = "equal", **changes: Any) -> Gradients:
    values: dict[str, Any] = {
        "status": status,
        "compared_with": "process_mtp_loss of megatron-core 0.17.1",
        "max_rel_err": 0.0 if status == "equal" else 1e-3,
        "bound": 2e-2,
        "head_gradient": "trained",
    }
    return Gradients(**{**values, **changes})


def job_result(variant: str, *step_us: float, lead_us: float | None = 900.0, **changes: Any) -> Result:
    """One variant on one rank of a job; without ``lead_us`` the rank has no loss."""
    modelled = changes.pop("modelled", False)
    windows = len(step_us)
    with_loss: dict[str, Any] = {"gradients": gradients(), "syncs": syncs()} if lead_us is not None else {"syncs": None}
    values: dict[str, Any] = {
        "scope": "job",
        "harness": "job",
        "device": "sim:0" if modelled else "cuda:0",
        "numerics": None,
        "graph_capture": None,
        "time": time(
            *step_us,
            modelled=modelled,
            lead_ns=[lead_us and lead_us * 1e3] * windows,
            loss_ns=[lead_us and 700_000.0] * windows,
        )
        if step_us
        else None,
        **with_loss,
    }
    return result(variant, "job", 0.0, **{**values, **changes})


def job_run(results: Sequence[Result], rank: int = 0, world_size: int = 1, **changes: Any) -> Run:
    """One rank of a job; keys of ``Job`` among ``changes`` are its."""
    job: dict[str, Any] = {
        "id": "7f3a",
        "rank": rank,
        "world_size": world_size,
        "parallel": {"dp": (rank, world_size)},
        "has_loss": True,
        "steps": 400,
        "window": 10,
        "iterations": 400,
        "windows": 40,
        "ended": "400 iterations done",
    }
    job |= {key: changes.pop(key) for key in list(changes) if key in Job.model_fields}
    modelled = any(found.time.modelled for found in results if found.time)
    device = environment() if modelled else environment(device=GPU)
    values = {"environment": device, "workloads": {"job": JOB}, "command": "torchrun train.py", **changes}
    return run(results, job=Job(**job), **values)


def job_runs(ranks: int = 4, windows: int = 20, slow_rank: int = 1, label_us: float = -200.0, **changes: Any):
    """The ranks of a job with their labels: ``boundary_roll`` costs ``label_us``, and ``slow_rank`` is 50 us behind."""
    drift = [10_000.0 + 10 * (window % 5) for window in range(windows)]
    return [
        (
            f"rank-{rank}",
            job_run(
                [
                    job_result("patched", *(us + 50 * (rank == slow_rank) for us in drift), syncs=syncs(site(33))),
                    job_result("boundary_roll", *(us + label_us + 50 * (rank == slow_rank) for us in drift)),
                ],
                rank,
                ranks,
                **changes,
            ),
        )
        for rank in range(ranks)
    ]
