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
    found = _Found()
    plain = _unwrap(args, found)
    plain_kwargs = _unwrap_kwargs(kwargs, found) if kwargs else kwargs
    if found.host_tensor and found.any_simulated and plan.refuses_host_tensors:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, sim:0 and cpu! "
            f"({plan.name})"
        )
    if found.origin is not None:
        if not known_although_shape_only(plan, args):
            return run_shape_only(plan, args, kwargs, found.origin)
        if plan.reads_shape:
            plain[0] = stand_in(args[0])
    elif not plan.is_view and _too_large(plan, args, kwargs, found):
        return run_shape_only(plan, args, kwargs, plan.name)
    result = _run_random(plan, plain, plain_kwargs) if plan.random else plan.call(*plain, **plain_kwargs)
    if kwargs and plan.reads_shape and _elsewhere(kwargs):
        return result
    return wrap_result(plan, args, kwargs, result)


class _Found:
    """What the arguments were found to hold."""

    __slots__ = ("any_simulated", "elements", "host_tensor", "largest", "origin")

    def __init__(self) -> None:
        self.origin: str | None = None  # the operation that made a shape-only argument
        self.elements = 1  # the product of all sizes: no result of two operands is larger
        self.largest = 0
        self.any_simulated = False
        self.host_tensor = False  # other than a scalar


def _unwrap(values: Any, found: _Found) -> list[Any]:
    # By hand: tree_map three times an operation is most of what a naive backend costs.
    plain: list[Any] = []
    for value in values:
        kind = value.__class__
        if kind is SimTensor:
            origin = value._storage.origin
            if origin is not None and found.origin is None:
                found.origin = origin
            count = value.numel()
            found.elements *= count or 1
            found.largest = max(found.largest, count)
            found.any_simulated = True
            plain.append(value._held)
        elif kind is list or kind is tuple:
            plain.append(_unwrap(value, found))
        elif kind is torch.device:
            plain.append(_CPU if value.type == "sim" else value)
        else:
            if kind is torch.Tensor and value.dim():
                found.host_tensor = True
            plain.append(value)
    return plain


def _unwrap_kwargs(kwargs: dict[str, Any], found: _Found) -> dict[str, Any]:
    plain = dict(zip(kwargs, _unwrap(kwargs.values(), found), strict=True))
    if plain.get("pin_memory"):
        plain["pin_memory"] = None
    return plain


def _too_large(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], found: _Found) -> bool:
    limit = STATE.limit
    if found.largest > limit:
        return True
    if found.elements <= limit or not plan.grows:
        return False
    try:
        return shapes.largest(shapes.infer(plan.op, args, kwargs)) > limit
    except Exception:  # no shape rule, or the size depends on values: computed, and dropped if it is too large
        return False


def _elsewhere(kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return device is not None and device.type in {"cpu", "meta"}


def _run_random(plan: Plan, plain: list[Any], kwargs: dict[str, Any]) -> Any:
    """Draw from the device's own generator, so that the host's stays where it would be on CUDA."""
    generator = STATE.device_generator()
    if plan.takes_generator:
        if kwargs.get("generator") is None:
            kwargs = {**kwargs, "generator": generator}
        return plan.call(*plain, **kwargs)
    default = torch.default_generator
    host_state = default.get_state()
    default.set_state(generator.get_state())
    try:
        return plan.call(*plain, **kwargs)
    finally:
        generator.set_state(default.get_state())
        default.set_state(host_state)


SimTensor._dispatch = staticmethod(dispatch)
