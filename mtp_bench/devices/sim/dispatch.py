"""The one function that every operation on the simulated device goes through."""

from __future__ import annotations

from typing import Any

import torch

from mtp_bench.devices.sim import shapes
from mtp_bench.devices.sim.plans import Plan, make_plan
from mtp_bench.devices.sim.special import Special, special_for
from mtp_bench.devices.sim.state import STATE
from mtp_bench.devices.sim.tensor import SimTensor
from mtp_bench.devices.sim.values import (
    known_although_shape_only,
    placeholder,
    run_shape_only,
    stand_in,
    wrap_result,
)

_plans: dict[Any, tuple[Plan, Special | None]] = {}
_CPU = torch.device("cpu")
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)
_in_backward = torch._C._current_graph_task_id
# Where CUDA takes a tensor of the host beside device tensors, whatever its size.
_TAKES_HOST_TENSORS = frozenset(
    """
    aten::copy_ aten::_to_copy aten::index aten::index_put_ aten::index_put aten::_index_put_impl_ aten::_unsafe_index
    aten::_unsafe_index_put aten::set_ aten::_foreach_copy_ aten::_pack_padded_sequence aten::_ctc_loss
    aten::_ctc_loss_backward aten::repeat_interleave aten::is_same_size aten::_has_same_storage_numel
    """.split()
)


def dispatch(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``op`` as the simulated device would: values on the CPU, syncs and time recorded."""
    known = _plans.get(op)
    if known is None:
        plan = make_plan(op)
        known = _plans[op] = plan, special_for(plan)
    plan, special = known
    if _in_backward() < 0:
        if STATE.deferred is not None:
            raise STATE.take_deferred()
        return _run(plan, special, args, kwargs)
    try:
        return _run(plan, special, args, kwargs)
    except Exception as error:  # the device guard is noexcept: an exception that left here would abort the process
        if STATE.deferred is None:
            STATE.deferred = error
        return placeholder(plan, args, kwargs)


def boxed_fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The PrivateUse1 fallback: operations without a simulated tensor among the arguments, such as factories."""
    return dispatch(op, args, kwargs)


def _run(plan: Plan, special: Special | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    recorder = STATE.recorder
    if recorder is None:
        return _execute(plan, special, args, kwargs)
    waits = [(rule, count) for rule in plan.rules if (count := rule.syncs(args, kwargs))] if plan.rules else ()
    result = _execute(plan, special, args, kwargs)
    if not plan.decompose:
        recorder.operation(plan, args, kwargs, result)
    for rule, count in waits:
        recorder.waits(rule.kind, plan.name, count, args)
    return result


def _execute(plan: Plan, special: Special | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if special is not None:
        result = special(plan, args, kwargs)
        if result is not NotImplemented:
            return result
    if plan.decompose:
        return plan.op.redispatch(_KEYS, *args, **kwargs)
    # Unwrapped by hand: tree_map three times an operation is most of what a naive backend costs.
    origin: str | None = None
    elements = 1  # the product of all sizes: no result of two operands is larger
    largest = 0
    host_tensor = False
    plain: list[Any] = []
    for value in args:
        kind = value.__class__
        if kind is SimTensor:
            origin = origin or value._storage.origin
            count = value.numel()
            elements *= count or 1
            if count > largest:
                largest = count
            plain.append(value._values)
        elif kind is list or kind is tuple:
            inner, origin, elements, largest = _unwrap_list(value, origin, elements, largest)
            plain.append(inner)
        elif kind is torch.device:
            plain.append(_CPU)
        else:
            if isinstance(value, torch.Tensor) and value.dim():
                host_tensor = True
            plain.append(value)
    if host_tensor:
        _refuse_host_tensor(plan, args)
    if kwargs:
        plain_kwargs, origin = _unwrap_kwargs(kwargs, origin)
    else:
        plain_kwargs = kwargs
    if origin is not None:
        if not known_although_shape_only(plan, args):
            return run_shape_only(plan, args, kwargs, origin)
        if plan.reads_shape:
            plain[0] = stand_in(args[0])
    elif not plan.is_view:
        limit = STATE.limit
        if largest > limit or (elements > limit and plan.grows and _grows_past(plan, args, kwargs, limit)):
            return run_shape_only(plan, args, kwargs, plan.name)
    result = _run_random(plan, plain, plain_kwargs) if plan.random else plan.op(*plain, **plain_kwargs)
    if kwargs and plan.reads_shape and _elsewhere(kwargs):
        return result
    return wrap_result(plan, args, kwargs, result)


def _unwrap_list(values: Any, origin: str | None, elements: int, largest: int) -> tuple[list[Any], str | None, int, int]:
    inner = []
    for value in values:
        if value.__class__ is SimTensor:
            origin = origin or value._storage.origin
            count = value.numel()
            elements *= count or 1
            if count > largest:
                largest = count
            inner.append(value._values)
        else:
            inner.append(value)
    return inner, origin, elements, largest


def _unwrap_kwargs(kwargs: dict[str, Any], origin: str | None) -> tuple[dict[str, Any], str | None]:
    plain = {}
    for name, value in kwargs.items():
        if value.__class__ is SimTensor:
            origin = origin or value._storage.origin
            plain[name] = value._values
        elif value.__class__ is list or value.__class__ is tuple:
            plain[name], origin, _, _ = _unwrap_list(value, origin, 1, 0)
        elif value.__class__ is torch.device:
            plain[name] = value if value.type == "meta" else _CPU
        elif name == "pin_memory":
            plain[name] = None
        else:
            plain[name] = value
    return plain, origin


def _elsewhere(kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return device is not None and device.type in {"cpu", "meta"}


def _grows_past(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], limit: float) -> bool:
    try:
        return shapes.largest(shapes.infer(plan.op, args, kwargs)) > limit
    except Exception:  # no shape rule, or the size depends on values: computed, and dropped if it is too large
        return False


def _refuse_host_tensor(plan: Plan, args: tuple[Any, ...]) -> None:
    if plan.base.startswith("aten::") and plan.base not in _TAKES_HOST_TENSORS and any(
        isinstance(value, SimTensor) for value in args
    ):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, sim:0 and cpu! ({plan.name})"
        )


def _run_random(plan: Plan, plain: list[Any], kwargs: dict[str, Any]) -> Any:
    """Draw from the device's own generator, so that the host's stays where it would be on CUDA."""
    generator = STATE.device_generator()
    if plan.takes_generator:
        if kwargs.get("generator") is None:
            kwargs = {**kwargs, "generator": generator}
        return plan.op(*plain, **kwargs)
    default = torch.default_generator
    host_state = default.get_state()
    default.set_state(generator.get_state())
    try:
        return plan.op(*plain, **kwargs)
    finally:
        generator.set_state(default.get_state())
        default.set_state(host_state)


SimTensor._dispatch = staticmethod(dispatch)
