"""Collectives: unwrapped, they run over Gloo on the CPU tensors inside; shape-only ones only keep the ranks in step."""

from __future__ import annotations

from typing import Any

import torch

from mtp_bench.devices.sim.plans import Plan
from mtp_bench.devices.sim.tensor import SimTensor

_WRITES_NOTHING = frozenset({"c10d::send", "c10d::barrier", "c10d::monitored_barrier_"})
# With one rank their result is their input. Gloo would still hand them to its own threads, a millisecond or so each.
_NOTHING_TO_DO_ALONE = frozenset({"c10d::allreduce_", "c10d::allreduce_coalesced_", "c10d::broadcast_"})


def collective(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a ``c10d`` operator. Where a tensor is shape-only, one element a tensor is exchanged in its place."""
    if plan.base in _NOTHING_TO_DO_ALONE and _alone(args[1]):
        done = torch._C._distributed_c10d.FakeWork().boxed()
        return done if len(plan.returns) == 1 else (args[0], done)
    found: list[SimTensor] = []
    _collect(args, found)
    shape_only = any(tensor._storage.origin is not None for tensor in found)
    result = plan.op(*[_unwrap(value, shape_only) for value in args], **kwargs)
    if shape_only and plan.base not in _WRITES_NOTHING:
        for tensor in found:
            tensor._storage.origin = plan.name
    return _rewrap(plan, args, result)


def _alone(process_group: Any) -> bool:
    return torch.distributed.ProcessGroup.unbox(process_group).size() == 1


def _collect(value: Any, found: list[SimTensor]) -> None:
    if isinstance(value, SimTensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, found)


def _unwrap(value: Any, shape_only: bool) -> Any:
    if isinstance(value, SimTensor):
        return torch.zeros(1, dtype=value.dtype) if shape_only else value._held
    if isinstance(value, (list, tuple)):
        return [_unwrap(item, shape_only) for item in value]
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _rewrap(plan: Plan, args: tuple[Any, ...], result: Any) -> Any:
    """The operators return the output tensors that they were given, as their first argument, and a work handle."""
    if isinstance(result, tuple) and isinstance(result[0], (list, torch.Tensor)):
        return args[0], *result[1:]
    return result
