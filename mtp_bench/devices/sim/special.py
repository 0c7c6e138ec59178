"""Operations that are more than "run it on the inner tensors": copies across, host reads, allocation, collectives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from mtp_bench.devices.sim import shapes
from mtp_bench.devices.sim.distributed import collective
from mtp_bench.devices.sim.pinned import is_pinned, mark_pinned
from mtp_bench.devices.sim.plans import Plan
from mtp_bench.devices.sim.shapes import ShapeOnlyError
from mtp_bench.devices.sim.state import STATE
from mtp_bench.devices.sim.tensor import SimTensor, Storage, adopt, is_shape_only, wrap_shape
from mtp_bench.devices.sim.values import run_shape_only, wrap_new

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _empty(plan: Plan, args: Args, kwargs: Kwargs) -> Any:
    if math.prod(args[0]) <= STATE.limit:
        return wrap_new(plan.op(*args, **_without_device(kwargs)), plan.name)
    spec = shapes.infer(plan.op, args, kwargs)
    return wrap_shape(spec, Storage(plan.name))


def _without_device(kwargs: Kwargs) -> Kwargs:
    return {name: value for name, value in kwargs.items() if name not in {"device", "pin_memory"}}


def _to_copy(plan: Plan, args: Args, kwargs: Kwargs) -> Any:
    source = args[0]
    device = kwargs.get("device") or source.device
    options = {name: value for name, value in kwargs.items() if name not in {"device", "pin_memory", "non_blocking"}}
    if device.type == "meta":
        return plan.op(_meta_twin(source), device=device, **options)
    if device.type == "cpu":
        if is_shape_only(source):
            raise ShapeOnlyError(f"{plan.name} to the host (.cpu(), .to('cpu'))", source._storage.origin)
        copied = plan.op(source._held if isinstance(source, SimTensor) else source, **options)
        if kwargs.get("non_blocking"):
            mark_pinned(copied)  # PyTorch allocates the target of a non_blocking copy in pinned memory
        return copied
    if is_shape_only(source) or source.numel() > STATE.limit:
        return run_shape_only(plan, args, options, plan.name)
    return wrap_new(plan.op(source._held if isinstance(source, SimTensor) else source, **options), plan.name)


def _meta_twin(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _read_scalar(plan: Plan, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    if tensor._storage.origin is not None:
        raise ShapeOnlyError("a host read (item(), bool(), int(), float(), slicing)", tensor._storage.origin)
    return plan.op(tensor._held)


def _equal(plan: Plan, args: Args, kwargs: Kwargs) -> Any:
    left, right = args
    if left.shape != right.shape:
        return False
    for tensor in args:
        if is_shape_only(tensor):
            raise ShapeOnlyError("torch.equal", tensor._storage.origin)
    return plan.op(left._held, right._held)


def _index(plan: Plan, args: Args, kwargs: Kwargs) -> Any:
    """A known mask picks a known number of rows of values that are not known."""
    values, indices = args[0], args[1]
    if not is_shape_only(values) and values.numel() <= STATE.limit:
        return NotImplemented
    known: list[Any] = []
    for index in indices:
        if index is None or index.dtype not in {torch.bool, torch.uint8}:
            known.append(index)
            continue
        if is_shape_only(index):
            raise ShapeOnlyError(f"{plan.name} with a mask", index._storage.origin)
        mask: Any = index._held if isinstance(index, SimTensor) else index
        known.extend(mask.nonzero(as_tuple=True))
    return run_shape_only(plan, (values, known, *args[2:]), kwargs, plan.name)


def _attention_choice(plan: Plan, args: Args, kwargs: Kwargs) -> Any:
    return 0  # the plain matrix products: CUDA's fused kernels have no counterpart on the CPU


def _set(plan: Plan, args: Args, kwargs: Kwargs) -> Any:
    target, source = args[0], (args[1] if len(args) > 1 else None)
    if len(args) == 2 and isinstance(source, SimTensor):
        adopt(target, source)
        return target
    raise NotImplementedError(f"{plan.name}: the simulated device supports Tensor.set_(other_tensor) only")


def _nothing(plan: Plan, args: Args, kwargs: Kwargs) -> Any:
    return None


def _is_pinned(plan: Plan, args: Args, kwargs: Kwargs) -> Any:
    return is_pinned(args[0])


Special = Callable[[Plan, Args, Kwargs], Any]
SPECIAL: dict[str, Special] = {
    "aten::empty": _empty,
    "aten::empty_strided": _empty,
    "aten::_to_copy": _to_copy,
    "aten::_local_scalar_dense": _read_scalar,
    "aten::equal": _equal,
    "aten::index": _index,
    "aten::_fused_sdp_choice": _attention_choice,
    "aten::set_": _set,
    "aten::record_stream": _nothing,
    "aten::is_pinned": _is_pinned,
}


def special_for(plan: Plan) -> Special | None:
    """The handler of an operation that needs one."""
    return collective if plan.base.startswith("c10d::") else SPECIAL.get(plan.base)
