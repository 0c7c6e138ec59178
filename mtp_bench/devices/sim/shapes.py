"""Sizes of results without computing them: one run of an operator on meta tensors, remembered by its arguments."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from mtp_bench.devices.sim.tensor import SimTensor, Spec, spec_of


class ShapeOnlyError(RuntimeError):
    """The host, or an operation whose flow depends on values, asked for values that nobody computed."""

    def __init__(self, wanted_by: str, made_by: str | None) -> None:
        super().__init__(
            f"{wanted_by} needs values that the simulated device does not have: the tensor is shape-only, made by "
            f"{made_by} (tensors above the size limit hold no values, and neither does what is computed from them)"
        )


_memory: dict[Any, Any] = {}


def infer(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The specs of the results of ``op(*args, **kwargs)``, in the structure that it returns: a Spec for each tensor."""
    try:
        key = (op, _freeze(args), _freeze(tuple(kwargs.items())) if kwargs else None)
        known = _memory.get(key)
    except TypeError:  # an argument that cannot be hashed: no memory
        return _specs(_run_on_meta(op, args, kwargs))
    if known is None:
        known = _memory[key] = _specs(_run_on_meta(op, args, kwargs))
    return known


def _freeze(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.storage_offset(), value.dtype
    if isinstance(value, (list, tuple)):
        return tuple([_freeze(item) for item in value])
    if isinstance(value, (int, float)):
        return value.__class__, value
    if isinstance(value, torch.Generator):
        return None
    return value


def _run_on_meta(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    meta_args = [_to_meta(value) for value in args]
    meta_kwargs = {name: _to_meta(value) for name, value in kwargs.items()}
    if "device" in meta_kwargs and meta_kwargs["device"] is None and not _has_tensor(args):
        meta_kwargs["device"] = torch.device("meta")
    try:
        with _without_dynamo():
            return op(*meta_args, **meta_kwargs)
    except NotImplementedError as error:
        raise NotImplementedError(f"the simulated device has no shape rule for {op.name()}: {error}") from None


@contextmanager
def _without_dynamo() -> Iterator[None]:
    """PyTorch's shape rules in Python import torch._dynamo, a second or more, only to switch it off for themselves."""
    if "torch._dynamo" in sys.modules:
        yield
        return
    off = ModuleType("torch._dynamo")
    off.disable = lambda fn, *_, **__: fn  # type: ignore[attr-defined]
    sys.modules["torch._dynamo"] = off
    try:
        yield
    finally:
        if sys.modules.get("torch._dynamo") is off:
            del sys.modules["torch._dynamo"]


def _has_tensor(args: tuple[Any, ...]) -> bool:
    return any(isinstance(value, (torch.Tensor, list)) for value in args)


def _to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return [_to_meta(item) for item in value]
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, torch.Generator):
        return None
    return value


def _specs(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return spec_of(result)
    if isinstance(result, (list, tuple)):
        return [_specs(item) for item in result]
    return result


def numel(spec: Spec) -> int:
    """Number of elements."""
    count = 1
    for size in spec[0]:
        count *= size
    return count


def largest(specs: Any) -> int:
    """The largest number of elements among ``specs``."""
    if isinstance(specs, tuple):
        return numel(specs)
    return max((largest(spec) for spec in specs), default=0) if isinstance(specs, list) else 0


def origin_of(value: Any) -> str | None:
    """Which operation made the values unknown, for the first shape-only tensor in ``value``."""
    if isinstance(value, SimTensor):
        return value._storage.origin
    if isinstance(value, (list, tuple)):
        return next((origin for item in value if (origin := origin_of(item)) is not None), None)
    return None
