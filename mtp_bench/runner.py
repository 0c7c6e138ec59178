"""One run: a worker process measures, this side keeps what it found, however the worker ends.

Results go to ``run.json`` after each one. A worker that dies is the result of the variant it was running; the next
worker goes on with the rest.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtp_bench import ranges, workloads
from mtp_bench.environment import describe as describe_environment
from mtp_bench.errors import InputError, RunError, readable
from mtp_bench.job import Job
from mtp_bench.process import WorkerProcess
from mtp_bench.results import SCHEMA_VERSION, Run, require_writable
from mtp_bench.workloads import Workload

if TYPE_CHECKING:
    from mtp_bench.ranks.workers import RankWorkers

    Worker = WorkerProcess | RankWorkers

SCOPES = ("loss", "step")
VALUES = ("auto", "real", "shape")
DEFAULT_LEADS_MS = {"loss": (0.0, 1.0, 10.0), "step": (0.0,)}
DEFAULT_PROFILES = ("padded-sft", "packed-sft", "empty-shard")
DEFAULT_PROFILES_CUDA = ("mimo-7b", *DEFAULT_PROFILES)
DEFAULT_SEED = 1234  # also that of every workload
MAX_SECONDS = 30.0  # of interleaved windows, a workload and lead

Progress = Callable[[int, int, str], None]
"""Told (results done, results in all, what runs now)."""


def run(
    profiles: Sequence[str | os.PathLike[str] | Workload] | None = None,
    variants: Sequence[str] | None = None,
    device: str = "auto",
    scope: str = "loss",
    *,
    set: Sequence[str] = (),
    leads_ms: Sequence[float] | None = None,
    values: str = "auto",
    detectors: Sequence[str] | None = None,
    out: str | os.PathLike[str] | Callable[[str], Path] | None = None,
    seed: int | None = None,
    trace: str | os.PathLike[str] | None = None,
    max_seconds: float = MAX_SECONDS,
    command: str = "",
    on_start: Callable[[dict[str, Any]], None] | None = None,
    progress: Progress | None = None,
) -> Run:
    """Run ``variants`` on the workloads ``profiles`` (names, TOML files or Workloads) on ``device``.

    ``set`` holds ``key=value`` overrides of all profiles, ``leads_ms`` the milliseconds of device work queued before
    each step. ``seed`` replaces that of all profiles and orders the windows; ``max_seconds`` bounds the windows of one
    workload at one lead. With ``out``, a folder or a function that names one for the device, ``run.json`` is written
    there after each result. ``on_start`` is told what runs where before anything is measured.

    Raises InputError for what cannot be run at all, and RunError where the worker process dies outside of any variant.
    A variant that fails is a result with status ``failed``.
    """
    _check_choices(scope, values, leads_ms, seed, max_seconds)
    if trace is not None:
        require_writable(Path(trace).absolute().parent, "--trace")
    overrides = [*(() if seed is None else (f"seed={seed}",)), *set]
    chosen = None if profiles is None else _load(profiles, overrides)
    names = _default_variants() if variants is None else _names(variants)
    cp_size = 1 if chosen is None else _cp_size(chosen, scope)
    worker = _start_worker(device, cp_size)
    try:
        if chosen is None:
            by_kind = DEFAULT_PROFILES_CUDA if worker.device["kind"] == "cuda" else DEFAULT_PROFILES
            chosen = _load(by_kind, overrides)
            if _cp_size(chosen, scope) != cp_size:
                worker.close()
                worker = _start_worker(device, cp_size := _cp_size(chosen, scope))
        if trace is not None and ranges.profiled() and not worker.device["modelled"]:
            raise InputError(
                "--trace: PyTorch's profiler cannot look where Nsight Systems does; use `mtp-bench run --trace`"
            )
        job = Job(
            workloads={workload.name: workload.keys() for workload in chosen},
            variants={workload.name: list(names) for workload in chosen},
            scope=scope,
            leads_ms=[float(lead) for lead in (DEFAULT_LEADS_MS[scope] if leads_ms is None else leads_ms)],
            values=values,
            detectors=_choose_detectors(detectors, worker),
            seed=DEFAULT_SEED if seed is None else seed,
            max_seconds=max_seconds,
            trace=None if trace is None else os.fspath(trace),
        )
        record = _Record(job, chosen, worker.spec, worker.device, command, out(worker.spec) if callable(out) else out)
        if on_start is not None:
            on_start({**worker.device, "spec": worker.spec, "workloads": chosen, "scope": scope})
        for job.stage in ("passes", "time") if worker.detectors_linger else ("all",):
            if job.stage == "time":
                worker.close()
                worker = _start_worker(device, cp_size)
            while not _work(worker, job, record, progress):
                worker.close()
                worker = _start_worker(device, cp_size)
        if ranges.profiled():
            worker.finish()
    finally:
        worker.close()
    return record.run()


def _start_worker(device: str, cp_size: int) -> Worker:
    """The process that measures, or one a context-parallel rank."""
    if cp_size == 1:
        return WorkerProcess(device)
    from mtp_bench.ranks.workers import RankWorkers

    return RankWorkers(device, cp_size)


def _cp_size(chosen: Sequence[Workload], scope: str) -> int:
    """Of all workloads. InputError where they differ, or where the scope has no ranks."""
    sizes = {workload.cp_size for workload in chosen}
    if len(sizes) > 1:
        raise InputError(f"cp_size = {', '.join(map(str, sorted(sizes)))}: run workloads of one cp_size at a time")
    size = sizes.pop()
    if size > 1 and scope != "loss":
        raise InputError(f"cp_size = {size}: context parallelism runs with --scope loss, not with {scope}")
    return size


def _check_choices(
    scope: str, values: str, leads_ms: Sequence[float] | None, seed: int | None, max_seconds: float
) -> None:
    if scope not in SCOPES:
        raise InputError(f"--scope {scope!r}: use {' or '.join(SCOPES)}")
    if values not in VALUES:
        raise InputError(f"--values {values!r}: use {', '.join(VALUES)}")
    if leads_ms is not None:
        _check_leads(leads_ms)
    if seed is not None and (type(seed) is not int or not 0 <= seed < 2**63):
        raise InputError(f"--seed {seed!r}: expected a whole number from 0 to 2**63 - 1")
    if not max_seconds > 0:
        raise InputError(f"max_seconds = {max_seconds:g}: expected more than 0")


def _check_leads(leads_ms: Sequence[float]) -> None:
    if isinstance(leads_ms, str) or not isinstance(leads_ms, Sequence):
        raise InputError(f"leads_ms = {leads_ms!r}: expected a list of milliseconds, as in [0, 1, 10]")
    for lead in leads_ms:
        if not isinstance(lead, int | float) or not 0 <= lead <= 1_000:
            shown = f"{lead:g}" if isinstance(lead, int | float) else repr(lead)
            raise InputError(f"--lead {shown}: expected milliseconds from 0 to 1000")
    if not leads_ms or len({*leads_ms}) != len(leads_ms):
        raise InputError("--lead: expected one lead or more, each once, as in --lead 0,1,10")


def _names(variants: Sequence[str]) -> list[str]:
    if isinstance(variants, str) or not variants or not all(isinstance(name, str) for name in variants):
        raise InputError(f"variants = {variants!r}: expected a list of names, as in ['patched', 'my_pkg.loss:fn']")
    return list(dict.fromkeys(variants))


def _load(profiles: Sequence[str | os.PathLike[str] | Workload], overrides: Sequence[str]) -> list[Workload]:
    if isinstance(profiles, str | Workload) or not profiles:
        raise InputError(f"profiles = {profiles!r}: expected a list of names, TOML files or workloads, one or more")
    named = [os.fspath(profile) for profile in profiles if not isinstance(profile, Workload)]
    loaded = iter(workloads.load_all(named, overrides))
    chosen = [profile.override(overrides) if isinstance(profile, Workload) else next(loaded) for profile in profiles]
    if len({workload.name for workload in chosen}) != len(chosen):
        raise InputError("two workloads have one name; results are kept by name")
    return chosen


def _default_variants() -> tuple[str, ...]:
    from mtp_bench import variants

    return variants.available_names()


def _choose_detectors(asked: Sequence[str] | None, worker: Worker) -> list[str]:
    for name in asked or ():
        if name not in worker.detectors:
            raise InputError(
                f"--detectors {name}: not to be had on {worker.spec}; it has {', '.join(worker.detectors)}"
            )
    return list(asked or worker.detectors)


def _work(worker: Worker, job: Job, record: _Record, progress: Progress | None) -> bool:
    """Let ``worker`` do ``job``. False where it died, with its death filed and the rest still to do."""
    worker.send(job.as_message())
    now: dict[str, Any] | None = None
    while (event := worker.receive()) is not None:
        if event["event"] == "done":
            return True
        where = event["workload"], event["variant"]  # no workload while variants are imported
        match event["event"]:
            case "stage":
                now = event
            case "ended":
                record.ended(*where, event["status"], event["error"])
                job.variants[event["workload"]].remove(event["variant"])
            case "passed":
                record.passed(*where, event["found"])
            case "timed":
                record.timed(*where, event["lead_ms"], event["time"])
        if progress is not None:
            what = " ".join(filter(None, (*where, event.get("stage"))))
            progress(record.done(), record.total, what)
    _file_death(worker, job, record, now)
    return not any(job.variants.values())


def _file_death(worker: Worker, job: Job, record: _Record, now: dict[str, Any] | None) -> None:
    """The worker's death is the result of the variant that it was running."""
    why = worker.why_it_died()
    died_in = [
        name
        for name, variants in job.variants.items()
        if now is not None and now["workload"] in (name, None) and now["variant"] in variants
    ]
    if now is None or not died_in:
        raise RunError(f"the worker process died outside of any variant: {why}")
    for workload in died_in:
        record.ended(workload, now["variant"], "failed", f"during {now['stage']}: {why}")
        job.variants[workload].remove(now["variant"])
    for workload in record.timed_workloads():
        job.variants[workload].clear()


class _Record:
    """The results so far, and the file that holds them."""

    def __init__(
        self,
        job: Job,
        chosen: Sequence[Workload],
        spec: str,
        device: dict[str, Any],
        command: str,
        out: str | os.PathLike[str] | None,
    ) -> None:
        self.job = job
        self.spec = spec
        self.harness = {workload.name: workload.harness if job.scope == "step" else "bare" for workload in chosen}
        self.order = [(name, variant) for name, names in job.variants.items() for variant in names]
        self.total = len(self.order) * len(job.leads_ms)
        self.results: dict[tuple[str, str, float], dict[str, Any]] = {}
        self.out = None if out is None else Path(out)
        self.head = {
            "schema_version": SCHEMA_VERSION,
            "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": readable(command),
            "seed": job.seed,
            "environment": describe_environment(device),
            "workloads": {workload.name: workload.describe() for workload in chosen},
        }
        if self.out is not None:
            require_writable(self.out)  # before anything is measured, and before anything there is replaced

    def run(self) -> Run:
        """The results, in the order of workloads, variants and leads whatever order they came in."""
        keys = [(name, variant, lead) for name, variant in self.order for lead in self.job.leads_ms]
        found = [self.results[key] for key in keys if key in self.results]
        return Run.model_validate({**self.head, "results": found})

    def ended(self, workload: str, variant: str, status: str, error: str) -> None:
        """``variant`` failed or was skipped, at every lead that has no result yet."""
        passed = self.job.passed.get(workload, {}).get(variant)
        for lead in self.job.leads_ms:
            if self.results.get((workload, variant, lead), {}).get("time") is None:
                self._add(workload, variant, lead, status, error, passed, None)
        self._write()

    def passed(self, workload: str, variant: str, found: dict[str, Any]) -> None:
        """Everything but the time of ``variant`` is known."""
        self.job.passed.setdefault(workload, {})[variant] = found
        for lead in self.job.leads_ms:
            self._add(workload, variant, lead, "ok", None, found, None)
        self._write()

    def timed(self, workload: str, variant: str, lead_ms: float, time: dict[str, Any]) -> None:
        """The windows of ``variant`` at one lead have been measured."""
        self._add(workload, variant, lead_ms, "ok", None, self.job.passed[workload][variant], time)
        self._write()

    def done(self) -> int:
        """How many results are complete."""
        return sum(not self._is_open(*key) for key in self.results)

    def timed_workloads(self) -> list[str]:
        """The workloads with nothing left to time."""
        open_ends = {
            workload
            for workload, variant in self.order
            for lead in self.job.leads_ms
            if self._is_open(workload, variant, lead)
        }
        return [workload for workload in self.job.variants if workload not in open_ends]

    def _is_open(self, workload: str, variant: str, lead_ms: float) -> bool:
        result = self.results.get((workload, variant, lead_ms))
        return result is None or (result["status"] == "ok" and result["time"] is None)

    def _add(
        self,
        workload: str,
        variant: str,
        lead_ms: float,
        status: str,
        error: str | None,
        found: dict[str, Any] | None,
        time: dict[str, Any] | None,
    ) -> None:
        found = dict(found or {})
        time = dict(time) if time is not None else None
        ranks = _of_ranks(found.pop("ranks", None), time.pop("ranks", None) if time else None, lead_ms)
        self.results[workload, variant, lead_ms] = {
            "workload": workload,
            "variant": variant,
            "scope": self.job.scope,
            "harness": self.harness[workload],
            "lead_ms": lead_ms,
            "device": self.spec,
            "status": status,
            "error": None if error is None else readable(error),
            "time": time,
            "ranks": ranks,
            **_at_lead(found, lead_ms),
        }

    def _write(self) -> None:
        if self.out is not None:
            self.run().write(self.out)


def _at_lead(found: dict[str, Any], lead_ms: float) -> dict[str, Any]:
    """``found`` with the syncs at one lead; a device that is measured has one observation for all."""
    syncs = found.get("syncs")
    if syncs is not None:
        syncs = syncs.get(str(lead_ms), next(iter(syncs.values())))
    return {**found, "syncs": syncs}


def _of_ranks(
    found: Sequence[dict[str, Any]] | None, times: Sequence[dict[str, Any]] | None, lead_ms: float
) -> list[dict[str, Any]] | None:
    """``ranks`` of a result; None where there is one rank."""
    if found is None:
        return None
    return [
        {**_at_lead(rank, lead_ms), "time": None if times is None else times[number]}
        for number, rank in enumerate(found)
    ]
