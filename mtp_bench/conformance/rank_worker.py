"""What every rank of a check does: the rank cases of all variants, one after the other, in step with the other ranks.

What was found goes into a file a rank, a line at a time, so that it is there whatever a variant does to the process.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import json
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from mtp_bench import variants
from mtp_bench.conformance import all_cases
from mtp_bench.conformance.model import Case, Observation
from mtp_bench.conformance.probe import observe_case
from mtp_bench.conformance.rank_runner import CASE_SECONDS
from mtp_bench.conformance.shares import share
from mtp_bench.devices import Device
from mtp_bench.megatron import integrity, isolated_state
from mtp_bench.preserved import preserved_process_state
from mtp_bench.ranks.device import device_of_rank

if TYPE_CHECKING:
    from mtp_bench.variants import Variant

_START_SECONDS = 120  # between the first rank and the last one: all import Megatron at the same time
_EXCHANGE_SECONDS = 15  # a rank that waits longer for another one has been left alone
_AGREE_SECONDS = 60  # longer than a case: the rank that hangs is the first one to end, and is the one that is named


def run(job: dict[str, Any]) -> None:
    """Run ``job["cases"]`` (pairs of variant and case id, in order)."""
    faulthandler.register(signal.SIGALRM, chain=True)  # a rank that hangs writes where, and ends
    store, rank, world_size = next(rendezvous("env://"))
    store.set(f"started/{rank}", "")
    store.wait([f"started/{other}" for other in range(world_size)], datetime.timedelta(seconds=_START_SECONDS))
    device = device_of_rank(job["device"])
    cases = {case.id: case for case in all_cases()}
    loaded: dict[str, Variant] = {}
    left = list(job["cases"])
    with device.session(), Path(job["folder"], f"found.{rank}").open("w") as found:
        while left:
            fresh = dist.PrefixStore(f"{len(left)} left", store)  # type: ignore[attr-defined]
            with _process_group(device, fresh, rank, world_size) as everyone, isolated_state(device):
                in_step = True
                while left and in_step:
                    name, id_ = left.pop(0)
                    _tell(found, {"begun": [name, id_]})
                    with preserved_process_state():
                        variant = loaded.get(name) or loaded.setdefault(name, variants.load(name))
                    in_step = _run_case(variant, cases[id_], device, everyone, found)


@contextlib.contextmanager
def _process_group(device: Device, store: Any, rank: int, world_size: int) -> Iterator[Any]:
    """The process group of all ranks; yields another one of them, for what the ranks tell each other about a case.

    Megatron's rolls send in the former. Where a variant raises, messages that nobody received are left in it, and it
    is of no use any more.
    """
    exchange, agree = (datetime.timedelta(seconds=seconds) for seconds in (_EXCHANGE_SECONDS, _AGREE_SECONDS))
    dist.init_process_group(device.backend(), timeout=exchange, store=store, rank=rank, world_size=world_size)
    try:
        yield dist.new_group(timeout=agree, backend="gloo")
    finally:
        _initialized.clear()
        dist.destroy_process_group()


def _run_case(variant: Variant, case: Case, device: Device, everyone: Any, found: IO[str]) -> bool:
    """Run a case on all ranks, and tell what this one saw of it; False where one of them raised."""
    reason = case.applies(variant, case.inputs)
    if reason:
        _tell(found, {"variant": variant.name, "case": case.id, "not_applicable": reason})
        return True
    before = integrity.snapshot() if variants.is_users(variant.name) else {}
    try:
        with preserved_process_state(), isolated_state(device), _parallel(case) as (group, place):
            signal.alarm(CASE_SECONDS)  # it ends the process
            observation = observe_case(variant, replace(case, inputs=share(case, place)), device)
            signal.alarm(0)  # who has come here waits for the others by another limit, so as not to end in their place
            raised_at = time.time() if observation.error else None
            raised: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(raised, raised_at, group=everyone)
    finally:
        integrity.put_back(integrity.replaced_since(before))
    _tell(
        found,
        {
            "variant": variant.name,
            "case": case.id,
            "group": group,
            "place": place,
            "raised_at": raised_at,
            "observation": _as_json(observation),
        },
    )
    return not any(raised)


@contextlib.contextmanager
def _parallel(case: Case) -> Iterator[tuple[int, tuple[int, int]]]:
    """Megatron's groups as the case has them: which of the groups of so many ranks this one is in, and where there.

    Where there are more processes than the case needs, it runs as often as it fits, each time in a pipeline stage.
    """
    from megatron.core import parallel_state

    assert case.ranks is not None
    _initialize(case.ranks.context_parallel, dist.get_world_size() // case.ranks.count)
    stage = parallel_state.get_pipeline_model_parallel_rank()
    yield stage, (parallel_state.get_data_parallel_rank(), parallel_state.get_context_parallel_rank())


_initialized: dict[tuple[int, int], dict[str, Any]] = {}


def _initialize(cp_size: int, stages: int) -> None:
    """Put Megatron's groups in place; those of a layout are made once, since making them takes seconds."""
    from megatron.core import parallel_state

    kept = _initialized.get((cp_size, stages))
    if kept is None:
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(
            context_parallel_size=cp_size,
            pipeline_model_parallel_size=stages,
            create_gloo_process_groups=False,
            distributed_timeout_minutes=_EXCHANGE_SECONDS / 60,
        )
        state = vars(parallel_state).items()
        kept = _initialized[cp_size, stages] = {
            name: value for name, value in state if name[:1] == "_" and not callable(value)
        }
    for name, value in kept.items():
        setattr(parallel_state, name, value)


def _as_json(observation: Observation) -> dict[str, Any]:
    return {name: value for name, value in asdict(observation).items() if value}


def _tell(found: IO[str], message: dict[str, Any]) -> None:
    found.write(json.dumps(message) + "\n")
    found.flush()
