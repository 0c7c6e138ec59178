"""What ``run.json`` of one rank says: the job, its model as a workload, and a result for each variant."""

from __future__ import annotations

import datetime
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from mtp_bench import environment
from mtp_bench.results import Environment, Job, Result, Run, VariantInfo

if TYPE_CHECKING:
    from mtp_bench.ab.check import Finding
    from mtp_bench.ab.place import JobDevice
    from mtp_bench.ab.recorder import Recorder
    from mtp_bench.variants import Variant

_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# Of Megatron's TransformerConfig: what decides what the loss costs, or how far the host is ahead when it comes.
_SETTINGS = (
    "mtp_num_layers",
    "mtp_loss_scaling_factor",
    "calculate_per_token_loss",
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_moe_experts",
    "recompute_granularity",
    "fp8",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "sequence_parallel",
    "overlap_moe_expert_parallel_comm",
)


@dataclass(frozen=True)
class Subject:
    """What does not change while the experiment runs."""

    name: str
    workload: dict[str, Any]
    variants: Sequence[Variant]
    seed: int
    steps: int
    window: int
    device: JobDevice
    parallel: dict[str, tuple[int, int]]
    has_loss: bool

    @property
    def asked(self) -> str:
        """What has to be the same on every rank, in words."""
        names = [variant.name for variant in self.variants]
        return f"variants={names}, steps={self.steps}, window={self.window}, seed={self.seed}"

    @cached_property
    def environment(self) -> Environment:
        """Asked of the machine once, on the writer's thread: git and NVML take their time."""
        return environment.describe(self.device.describe())


def describe_model(model: Any, window: int) -> dict[str, Any]:
    """A GPTModel and its experiment as a workload, the same on every rank."""
    config = model.config
    settings = {name: getattr(config, name, None) for name in _SETTINGS}
    return {
        **{name: value for name, value in settings.items() if value not in (None, False)},
        "calculate_per_token_loss": bool(config.calculate_per_token_loss),
        "vocab_size": model.vocab_size,
        "params_dtype": _DTYPES.get(config.params_dtype, str(config.params_dtype)),
        "world_size": torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1,
        "window": window,
    }


def parallel_dimensions() -> dict[str, tuple[int, int]]:
    """The rank's place in each dimension of parallelism that Megatron has set up, and its size."""
    from megatron.core import parallel_state as state

    if not state.model_parallel_is_initialized():
        return {}
    return {
        "dp": (state.get_data_parallel_rank(), state.get_data_parallel_world_size()),
        "tp": (state.get_tensor_model_parallel_rank(), state.get_tensor_model_parallel_world_size()),
        "pp": (state.get_pipeline_model_parallel_rank(), state.get_pipeline_model_parallel_world_size()),
        "cp": (state.get_context_parallel_rank(), state.get_context_parallel_world_size()),
        "ep": (state.get_expert_model_parallel_rank(), state.get_expert_model_parallel_world_size()),
    }


@dataclass
class Progress:
    """What changes: written by the job's thread, read by the writer's."""

    created_at: str = ""
    job_id: str = ""
    rank: int = 0
    world_size: int = 1
    findings: Sequence[Finding] = ()
    iterations: int = 0
    ended: str = ""
    error: str = ""  # why there is nothing to compare: a refusal, or a variant that raised later


def now() -> str:
    """The time in UTC, as ``created_at`` has it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def make_run(subject: Subject, progress: Progress, recorder: Recorder | None) -> Run:
    """All that is known by now."""
    return Run(
        created_at=progress.created_at,
        command=command(),
        seed=subject.seed,
        environment=subject.environment,
        job=Job(
            id=progress.job_id,
            rank=progress.rank,
            world_size=progress.world_size,
            parallel=subject.parallel,
            has_loss=subject.has_loss,
            steps=subject.steps,
            window=subject.window,
            iterations=progress.iterations,
            windows=recorder.windows if recorder is not None else 0,
            windows_lost=recorder.windows_lost if recorder is not None else 0,
            ended=progress.ended,
        ),
        workloads={subject.name: subject.workload},
        results=[_result(subject, progress, number, recorder) for number in range(len(subject.variants))],
    )


def command() -> str:
    """How this process was started. Of torchrun it knows the number of processes, but not how several nodes met."""
    launcher = [os.path.basename(sys.executable)]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        nodes, processes = os.environ.get("GROUP_WORLD_SIZE", "1"), os.environ.get("LOCAL_WORLD_SIZE", "1")
        launcher = [
            "torchrun",
            "--standalone" if nodes == "1" else f"--nnodes={nodes}",
            f"--nproc-per-node={processes}",
        ]
    return shlex.join([*launcher, *sys.argv])


def _result(subject: Subject, progress: Progress, number: int, recorder: Recorder | None) -> Result:
    variant = subject.variants[number]
    finding = progress.findings[number] if progress.findings else None
    time = recorder.times(number) if recorder is not None else None
    error = ""
    if time is None:
        error = (finding.error if finding is not None else "") or progress.error
        if not error and progress.ended:
            error = "no window of it was measured"
    return Result(
        workload=subject.name,
        variant=variant.name,
        scope="job",
        harness="job",
        lead_ms=0.0,
        device=subject.device.spec,
        status="failed" if error else "ok",
        error=error or None,
        variant_info=VariantInfo(version=variant.version, path=variant.path, note=variant.note),
        gradients=finding.gradients if finding is not None else None,
        syncs=finding.syncs if finding is not None else None,
        time=time,
        warnings=[progress.error] if progress.error and time is not None else [],
    )
