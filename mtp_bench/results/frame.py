"""A run as tidy pandas."""

from __future__ import annotations

from typing import Any

import pandas as pd

from mtp_bench.results.schema import Result, Run

_WHOLE = ("rank", "sample", "round", "syncs", "ops", "sm_clock_mhz")


def frame_of(run: Run) -> pd.DataFrame:
    """One row a (workload, variant, scope, lead_ms, sample); a result without times is one row.

    The run of a rank of a training job has three columns more: ``rank``, ``gradients`` (their status against those of
    the job's own loss) and ``loss_ns``.
    """
    of_job = {} if run.job is None else {"rank": run.job.rank}
    rows = [
        {**of_job, **_result_columns(result, run.job is not None), **sample}
        for result in run.results
        for sample in _samples(result, run.job is not None)
    ]
    names = [*of_job, "workload", "variant", "scope", "lead_ms", "sample"]
    frame = pd.DataFrame(rows, columns=None if rows else names)
    return frame.astype({name: "Int64" for name in _WHOLE if name in frame})


def _result_columns(result: Result, of_job: bool) -> dict[str, Any]:
    gradients = {"gradients": result.gradients.status if result.gradients else None} if of_job else {}
    return {
        "workload": result.workload,
        "variant": result.variant,
        "scope": result.scope,
        "harness": result.harness,
        "lead_ms": result.lead_ms,
        "device": result.device,
        "status": result.status,
        "values": result.numerics.status if result.numerics else None,
        **gradients,
        "syncs": result.syncs.count if result.syncs else None,
        "capturable": result.graph_capture.possible if result.graph_capture else None,
        "ops": result.ops,
        "modelled": result.time.modelled if result.time else None,
    }


def _samples(result: Result, of_job: bool) -> list[dict[str, Any]]:
    time = result.time
    if time is None:
        return [{"sample": None}]
    nothing = [None] * len(time.step_ns)
    idle, loss = time.device_idle_ns or nothing, time.loss_ns or nothing
    return [
        {
            "sample": index,
            "round": time.round[index],
            "step_ns": time.step_ns[index],
            "host_ns": time.host_ns[index],
            "lead_ns": time.lead_ns[index],
            "device_idle_ns": idle[index],
            **({"loss_ns": loss[index]} if of_job else {}),
            "sm_clock_mhz": time.sm_clock_mhz[index],
            "throttled": time.throttled[index],
        }
        for index in range(len(time.step_ns))
    ]
