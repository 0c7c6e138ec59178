"""The schema of ``run.json``: everything that a run found, from which all reports are made.

Times are nanoseconds and a step is one call of the scope. Non-finite numbers are the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from mtp_bench.syncs import Sync, SyncSite, by_site, total_known

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION: Literal[1] = 1
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _parse_number(value: Any) -> Any:
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def write_number(value: float) -> float | str:
    """A number as our JSON has it: the strings "nan", "inf" and "-inf" where it is not finite."""
    return value if math.isfinite(value) else str(value)


Number = Annotated[
    float, BeforeValidator(_parse_number), PlainSerializer(write_number, return_type=float | str, when_used="json")
]
Kind = Literal[
    "item",
    "dtoh",
    "htod",
    "htod_pageable_async",
    "dynamic_shape",
    "data_dependent",
    "stream_sync",
    "event_sync",
    "device_sync",
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=True, strict=True)


def _of_jobs(description: str | None = None) -> Any:
    """A field of scope ``job`` alone, left out of other runs' files."""
    return Field(default=None, exclude_if=lambda value: value is None, description=description)


class DeviceInfo(_Model):
    """Where it ran. ``driver`` and ``cuda`` are None where there are none."""

    kind: Literal["cuda", "sim"]
    name: str
    modelled: bool
    driver: str | None = None
    cuda: str | None = None
    profile: str | None = None  # sim: the device profile that the times come from


class Cpu(_Model):
    """The processor, and how many of its CPUs this process may use."""

    model: str
    count: int
    affinity: int


class Git(_Model):
    """The commit of a source checkout of mtp-bench."""

    commit: str
    dirty: bool


class Environment(_Model):
    """What a reader needs to judge whether two runs can be compared."""

    torch: str
    megatron_core: str | None
    verl: str | None = None
    python: str
    cpu: Cpu
    cuda_env: dict[str, str] = Field(default_factory=dict)
    device: DeviceInfo
    git: Git | None = None
    packages: dict[str, str] = Field(default_factory=dict)


class Size(_Model):
    """The size at which values were judged."""

    hidden_size: int
    vocab_size: int


class Numerics(_Model):
    """Whether the values are right, against a float64 reference. ``grad_scale`` is None where the gradient is 0."""

    at: Size
    finite: bool
    status: Literal["equal", "close", "differs", "nan"]
    logged_loss: list[Number]
    reference_loss: list[Number]
    max_rel_err_grad: Number | None
    grad_scale: Number | None
    head_gradient: Literal["trained", "detached"] | None = None
    detail: str = ""


class Place(_Model):
    """A Python frame; ``file`` is relative to the ``sys.path`` entry that holds it."""

    file: str
    line: int
    function: str


class Site(_Model):
    """All syncs of a step at one place; ``stack`` runs from the call site outwards."""

    file: str
    line: int
    function: str
    code: str
    op: str
    kind: Kind
    phase: Literal["forward", "backward", "finalize", "optimizer"]
    range: list[str]
    stack: list[Place]
    count: int
    blocked_ns: int | None = None
    device_idle_ns: int | None = None
    saves_ns: tuple[int, int] | None = None
    seen_by: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, site: SyncSite) -> Site:
        """Turn what the detectors collected into what run.json keeps."""
        sync = site.first
        return cls(
            file=sync.file,
            line=sync.line,
            function=sync.function,
            code=sync.code,
            op=sync.op,
            kind=sync.kind,  # type: ignore[arg-type]
            phase=sync.phase,  # type: ignore[arg-type]
            range=list(sync.range),
            stack=[Place(file=frame.file, line=frame.line, function=frame.function) for frame in sync.stack],
            count=site.count,
            blocked_ns=site.blocked_ns,
            device_idle_ns=site.device_idle_ns,
            seen_by=list(site.seen_by),
        )


class Syncs(_Model):
    """The syncs of one step, and whether the detectors agree on their number; None for one that could not tell."""

    detectors: dict[str, int | None]
    count: int
    blocked_ns: int | None = None
    device_idle_ns: int | None = None
    agreed: bool
    sites: list[Site]

    @classmethod
    def of(cls, syncs: Sequence[Sync], detectors: Mapping[str, int]) -> Syncs:
        """Sum ``syncs`` by site; ``detectors`` maps each detector to the number it saw."""
        sites = [Site.of(site) for site in by_site(syncs)]
        return cls(
            detectors={**detectors},
            count=len(syncs),
            blocked_ns=total_known([site.blocked_ns for site in sites]),
            device_idle_ns=total_known([site.device_idle_ns for site in sites]),
            agreed=len(set(detectors.values())) <= 1,
            sites=sites,
        )


class GraphCapture(_Model):
    """Whether the step can be captured in a CUDA graph; if not, the line that forbids it and why."""

    possible: bool
    site: Place | None = None
    reason: str = ""


class Memory(_Model):
    """Peak device memory of a step."""

    peak_bytes: int | None = None


class Time(_Model):
    """Windows in the order they were measured, one entry a window (one in all on sim); nanoseconds a step."""

    modelled: bool
    profiled: bool = False
    step_ns: list[Number] = Field(min_length=1)
    round: list[int]
    host_ns: list[Number | None]
    lead_ns: list[Number | None]
    device_idle_ns: list[Number | None] | None = None
    loss_ns: list[Number | None] | None = _of_jobs("device time of one call of the loss, forward")
    sm_clock_mhz: list[int | None]
    throttled: list[bool]
    stop_reason: str = ""

    @model_validator(mode="after")
    def _one_length(self) -> Time:
        for name in ("round", "host_ns", "lead_ns", "sm_clock_mhz", "throttled", "device_idle_ns", "loss_ns"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.step_ns):
                raise ValueError(f"{name} has {len(values)} entries and step_ns {len(self.step_ns)}")
        if len(set(self.round)) != len(self.round):
            raise ValueError("round holds a number twice: a variant has one window a round")
        return self


class VariantInfo(_Model):
    """Whose code ran: version and code path, and what a reader should know about it."""

    version: str = ""
    path: str = ""
    note: str = ""


class Gradients(_Model):
    """Scope ``job``: a variant's gradients against those of the job's own loss, on one rank's first batch.

    ``equal`` is bit for bit; ``close`` within ``bound``, the largest relative error that rounding explains. ``trained``
    says whether the loss gives the output layer a gradient; ``compared_with`` whose gradients the others are.
    """

    status: Literal["equal", "close", "differs", "nan"]
    compared_with: str
    max_rel_err: Number | None
    bound: Number
    head_gradient: Literal["trained", "detached"] | None = None
    detail: str = ""


class RankResult(_Model):
    """What one context-parallel rank saw. Its values are those of the gradient of all ranks."""

    rank: int = Field(ge=0)
    numerics: Numerics | None = None
    syncs: Syncs | None = None
    graph_capture: GraphCapture | None = None
    ops: int | None = None
    memory: Memory | None = None
    time: Time | None = None


class Result(_Model):
    """One variant on one workload at one lead.

    On several ranks each part is that of the rank where it is worst (most syncs, slowest), since a step waits for all;
    ``ranks`` has those of every rank.

    In scope ``job`` the lead is the job's own: ``lead_ms`` is 0 and ``time.lead_ns`` what was measured where the loss
    begins. ``syncs`` are those of one call of the loss and its backward pass there, None on a rank without the loss.
    """

    workload: str
    variant: str
    scope: Literal["loss", "step", "job"]
    harness: str
    lead_ms: Number
    device: str
    status: Literal["ok", "failed", "skipped"]
    error: str | None = None
    variant_info: VariantInfo = Field(default_factory=VariantInfo)
    numerics: Numerics | None = None
    gradients: Gradients | None = _of_jobs()
    syncs: Syncs | None = None
    graph_capture: GraphCapture | None = None
    ops: int | None = None
    memory: Memory | None = None
    time: Time | None = None
    ranks: list[RankResult] | None = Field(default=None, exclude_if=lambda value: value is None)
    warnings: list[str] = Field(default_factory=list)


class Job(_Model):
    """Scope ``job``: one rank of a training job that alternated between variants. Its ranks share the ``id``.

    ``parallel`` has the rank's place in each dimension and its size, as in ``{"dp": (0, 2), "pp": (3, 4)}``. A window
    is ``window`` iterations, its first dropped. ``windows_lost`` were disturbed, or could not be read without a wait.
    ``ended`` is "" while the job runs, and for ever where it was killed.
    """

    id: str
    rank: int = Field(ge=0)
    world_size: int = Field(ge=1, le=1_000_000)  # missing ranks are listed: a file must not fill the memory
    parallel: dict[str, tuple[int, int]] = Field(default_factory=dict)
    has_loss: bool
    steps: int
    window: int
    iterations: int = 0
    windows: int = 0
    windows_lost: int = 0
    ended: str = ""


class Run(_Model):
    """Everything that one ``mtp-bench run``, or one rank of ``mtp_bench.ab``, found; reports are made from it."""

    schema_version: Literal[1] = SCHEMA_VERSION
    created_at: str
    command: str
    seed: int
    environment: Environment
    job: Job | None = _of_jobs()
    workloads: dict[str, dict[str, Any]]
    results: list[Result] = Field(default_factory=list)

    def write(self, folder: Path) -> Path:
        """Write ``run.json`` into ``folder`` in one step, so that a reader never sees half of it; return its path."""
        from mtp_bench.results.files import write_run

        return write_run(self, folder)

    def to_json(self) -> str:
        """The text of ``run.json``."""
        from mtp_bench.results.files import text_of

        return text_of(self)

    def to_frame(self) -> pd.DataFrame:
        """Tidy pandas: one row a (workload, variant, scope, lead_ms, sample); a result without times is one row."""
        from mtp_bench.results.frame import frame_of

        return frame_of(self)
