"""Collectives: unwrapped, they run over Gloo on the CPU tensors inside; shape-only ones only keep the ranks in step."""

from __future__ import annotations

from typing import Any

import torch

from mtp_bench.devices.sim.plans import Plan
from mtp_bench.devices.sim.tensor import SimTensor

_read_only = {"c10d::send", "c10d::barrier", "c10d::monitored_barrier_"}


def collective(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a ``c10d`` operator. Where a tensor is shape-only, one element a tensor is exchanged in its place."""
    found: list[SimTensor] = []
    _collect(args, found)
    origin = next((tensor._storage.origin for tensor in found if tensor._storage.origin is not None), None)
    inner = [_unwrap(value, shape_only=origin is not None) for value in args]
    result = plan.op(*inner, **kwargs)
    if origin is not None and plan.base not in _read_only:
        for tensor in found:
            tensor._storage.origin = plan.name
    return _rewrap(plan, args, result)


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
    """The operators return the tensors they were given, beside the work handle."""
    if not isinstance(result, tuple) or not isinstance(result[0], (list, torch.Tensor)):
        return result
    kind, key = plan.returns[0]
    if kind == "new":  # functional in the schema, in place in fact: outputs are the first argument
        key = 0
    return args[key] if isinstance(key, int) else result[0], *result[1:]
