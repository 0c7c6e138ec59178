"""Which results hold values and which only a shape: the size limit, and how unknown values spread through storages."""

from __future__ import annotations

from typing import Any

import torch

from mtp_bench.devices.sim import shapes
from mtp_bench.devices.sim.plans import Plan
from mtp_bench.devices.sim.shapes import ShapeOnlyError
from mtp_bench.devices.sim.state import STATE
from mtp_bench.devices.sim.tensor import SimTensor, Storage, adopt, spec_of, wrap, wrap_shape


def wrap_new(values: torch.Tensor, name: str) -> SimTensor:
    """A new tensor made by the operation ``name``; above the limit its values are dropped."""
    if values.numel() > STATE.limit:
        return wrap_shape(spec_of(values), Storage(name))
    return wrap(values, Storage())


def argument(key: int | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The argument at a position, or of a keyword."""
    if isinstance(key, int):
        return args[key] if key < len(args) else None
    return kwargs.get(key)


def wrap_result(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Put what the operation returned for the inner tensors back into simulated ones."""
    returns = plan.returns
    if len(returns) == 1:
        return _wrap_one(plan, returns[0], args, kwargs, result)
    if not returns:
        return None
    return tuple([_wrap_one(plan, how, args, kwargs, part) for how, part in zip(returns, result, strict=True)])


def _wrap_one(plan: Plan, how: tuple[str, int | str], args: tuple[Any, ...], kwargs: dict[str, Any], part: Any) -> Any:
    kind, key = how
    if kind == "new":
        if isinstance(part, torch.Tensor):
            return wrap_new(part, plan.name)
        return [wrap_new(item, plan.name) for item in part] if part.__class__ is list else part
    source = argument(key, args, kwargs)
    if kind == "same":
        if source.__class__ is SimTensor and (plan.reshapes or _inner(source).shape != source.shape):
            _follow_inner(plan, source)
        return source
    if source.__class__ is not SimTensor:  # a plain tensor viewed: nothing of ours in it
        return part
    storage = source._storage
    return [wrap(item, storage) for item in part] if isinstance(part, (list, tuple)) else wrap(part, storage)


def _follow_inner(plan: Plan, tensor: SimTensor) -> None:
    values, storage = _inner(tensor), tensor._storage
    if values.numel() > STATE.limit:
        storage.origin = plan.name
        adopt(tensor, wrap_shape(spec_of(values), storage))
    else:
        adopt(tensor, wrap(values, storage))


def _inner(tensor: SimTensor) -> torch.Tensor:
    assert tensor._held is not None
    return tensor._held


def known_although_shape_only(plan: Plan, args: tuple[Any, ...]) -> bool:
    """Whether the operation can run for real although an argument is shape-only.

    So it is for views (the storage keeps the state), for what only takes over a shape, and for what overwrites the
    whole of a storage with known values, after which its values are known again.
    """
    first = args[0] if args else None
    if first.__class__ is not SimTensor:
        return False
    if plan.is_view:
        return first._held is not None
    if plan.reads_shape:
        size = args[1] if plan.base.startswith("aten::new_") else first.shape
        return _count(size) <= STATE.limit
    if not plan.overwrites or first._held is None or shapes.origin_of(args[1:]) is not None:
        return False
    values = first._held
    if values.numel() * values.element_size() != values.untyped_storage().nbytes():
        return False
    first._storage.origin = None
    return True


def _count(size: Any) -> int:
    count = 1
    for length in size:
        count *= length
    return count


def stand_in(tensor: SimTensor) -> torch.Tensor:
    """A CPU tensor of the same size, strides and dtype, for operations that look at nothing else."""
    if tensor._held is not None:
        return tensor._held
    return (
        torch.empty(1, dtype=tensor.dtype).expand(tensor.shape)
        if tensor.numel() > STATE.limit
        else torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    )


def run_shape_only(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], origin: str) -> Any:
    """Run the operation on shapes alone, and mark every storage that it writes to."""
    try:
        specs = shapes.infer(plan.op, args, kwargs)
    except Exception as error:
        if plan.dynamic:
            raise ShapeOnlyError(plan.name, origin) from error
        raise
    for key in plan.mutates:
        _mark(plan, argument(key, args, kwargs), origin)
    returns = plan.returns
    if len(returns) == 1:
        return _shape_of_one(plan, returns[0], args, kwargs, specs)
    return (
        tuple([_shape_of_one(plan, how, args, kwargs, spec) for how, spec in zip(returns, specs or (), strict=True)])
        or None
    )


def _mark(plan: Plan, written: Any, origin: str) -> None:
    if isinstance(written, SimTensor):
        written._storage.origin = plan.name
    elif isinstance(written, torch.Tensor):
        raise ShapeOnlyError(f"{plan.name} into a tensor of the host", origin)
    elif isinstance(written, (list, tuple)):
        for item in written:
            _mark(plan, item, origin)


def _shape_of_one(
    plan: Plan, how: tuple[str, int | str], args: tuple[Any, ...], kwargs: dict[str, Any], spec: Any
) -> Any:
    kind, key = how
    if kind == "new":
        return _wrap_spec(spec, None, plan.name)
    source = argument(key, args, kwargs)
    if kind == "same":
        if source.__class__ is SimTensor and isinstance(spec, tuple) and spec[0] != tuple(source.shape):
            adopt(source, wrap_shape(spec, source._storage))
        return source
    return _wrap_spec(spec, source._storage, plan.name)


def _wrap_spec(spec: Any, storage: Storage | None, name: str) -> Any:
    if spec.__class__ is tuple:
        return wrap_shape(spec, storage or Storage(name))
    if isinstance(spec, list):
        return [_wrap_spec(item, storage, name) for item in spec]
    return spec


def placeholder(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Something of the right shape to return from a failed operation inside backward, whose error is kept."""
    try:
        return run_shape_only(plan, args, kwargs, plan.name)
    except Exception:
        first = next((item for item in args if isinstance(item, SimTensor)), None)
        if not plan.op._schema.returns:
            return None
        if str(plan.op._schema.returns[0].type) != "Tensor":
            return 0
        parts = [first if first is not None else torch.empty(0) for _ in plan.returns]
        return parts[0] if len(parts) == 1 else tuple(parts)
