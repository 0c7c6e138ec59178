"""``mtp_bench.ab``: a running training job alternates between variants of its MTP loss and measures itself.

This module can be called, for it hides the function of its name once it is imported: ``mtp_bench.ab(model, ...)``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mtp_bench import variants as known_variants
from mtp_bench.ab import model as job_model
from mtp_bench.ab import place
from mtp_bench.ab.boundaries import chunk_with_buffers
from mtp_bench.ab.experiment import Experiment, Refused
from mtp_bench.ab.job_run import Subject, describe_model, parallel_dimensions
from mtp_bench.ab.schedule import Schedule
from mtp_bench.errors import InputError
from mtp_bench.megatron import versions
from mtp_bench.megatron.placement import Placement
from mtp_bench.results import require_writable

__all__ = ["Experiment", "Refused", "ab"]


def ab(
    model: Any,
    variants: Sequence[str],
    steps: int,
    window: int = 10,
    out: str | os.PathLike[str] = "ab",
    *,
    optimizer: Any = None,
    seed: int = 1234,
    name: str = "job",
    allow_different_gradients: bool = False,
) -> Experiment:
    """Let the training job of ``model`` alternate between ``variants`` of its MTP loss; every rank calls this.

    ``model`` is what the training script has: a GPTModel of megatron-core 0.14 to 0.19, wrapped or not, or a list of
    chunks. After two iterations with the job's own loss, in which the variants' gradients are compared with it, each
    window of ``window`` iterations runs one variant, drawn from ``seed`` and the window's number; ``steps`` iterations
    are used, in whole rounds of one window a variant. Each rank writes ``out/rank-N/run.json``.

    With ``optimizer`` an iteration ends when its ``step`` has returned, else where the next one begins. InputError
    where this model's loss cannot be exchanged, and why. What shows only later ends the experiment with a warning
    (:class:`Refused`), never the job.
    """
    versions.require()
    loaded = _load(variants)
    schedule = Schedule.of(variants=len(loaded), steps=steps, window=window, seed=seed)
    if not isinstance(name, str) or not name:
        raise InputError(f"name={name!r}: expected a name for the job")
    if not isinstance(out, (str, os.PathLike)) or "\0" in os.fspath(out):
        raise InputError(f"out={out!r}: expected the path of a folder")
    if not isinstance(allow_different_gradients, bool):
        raise InputError(f"allow_different_gradients={allow_different_gradients!r}: expected True or False")
    if optimizer is not None and not callable(getattr(optimizer, "step", None)):
        raise InputError(f"optimizer is a {type(optimizer).__name__}; expected an object with a method step")
    if Experiment.running is not None:
        raise InputError("an experiment is running in this process: end it first, with its stop()")
    chunks = list(model) if isinstance(model, (list, tuple)) else [model]
    wrapped = [module for chunk in chunks for module in job_model.layers_of(chunk)]
    gpt_model = job_model.last_gpt_model(wrapped)
    reason = place.obstacle(wrapped, gpt_model.config)
    if reason:
        raise InputError(reason)
    device = place.device_of(gpt_model)
    placement = Placement(gpt_model) if gpt_model.post_process else None
    folder = Path(os.path.abspath(out))
    require_writable(folder, "out")
    subject = Subject(
        name=name,
        workload=describe_model(gpt_model, window),
        variants=loaded,
        seed=seed,
        steps=steps,
        window=window,
        device=device,
        parallel=parallel_dimensions(),
        has_loss=placement is not None,
    )
    experiment = Experiment(subject, schedule, placement, folder, allow_different_gradients=allow_different_gradients)
    experiment.start(chunk_with_buffers(chunks), optimizer)
    return experiment


def _load(names: Sequence[str]) -> list[known_variants.Variant]:
    in_order = isinstance(names, Sequence) and not isinstance(names, str)  # that of a set is another on each rank
    if not in_order or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"variants={names!r}: expected a list of names, such as ['patched', 'boundary_roll']")
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise InputError(f"variants: {twice!r} is there twice; name each variant once")
    loaded = [known_variants.load(name) for name in names]
    for variant in loaded:
        if variant.refusal:
            raise InputError(f"{variant.name}: {variant.refusal}")
    return loaded


class _CallableModule(ModuleType):
    __call__ = staticmethod(ab)


sys.modules[__name__].__class__ = _CallableModule
