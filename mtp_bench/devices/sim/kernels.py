"""How much work an operation gives the device: kernels, bytes moved, floating-point operations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from mtp_bench.devices.sim.plans import Plan, aten
from mtp_bench.devices.sim.tensor import SimTensor


@dataclass(frozen=True, slots=True)
class Work:
    """One operation's work on the device."""

    kernels: int
    bytes_moved: int
    flops: int
    dtype: torch.dtype


_NO_KERNEL = aten(
    """
    empty empty_strided empty_like new_empty new_empty_strided set_ resize_ _local_scalar_dense t_ transpose_
    squeeze_ unsqueeze_ as_strided_ detach_ resize_as_ record_stream is_pinned _pin_memory _fused_sdp_choice
    is_same_size
    """
)


# Kernels, copies and memsets that one call enqueues, where it is not one: counted on tools/hostcuda, PyTorch 2.14.1,
# 64 x 64 inputs. What a wait copies is not in them (copy_work).
_LAUNCHES = {
    "aten::addmm": 2,
    "aten::baddbmm": 2,
    "aten::masked_fill.Scalar": 2,
    "aten::constant_pad_nd": 2,
    "aten::slice_backward": 2,
    "aten::select_backward": 2,
    "aten::native_layer_norm_backward": 2,
    "aten::_softmax_backward_data": 2,
    "aten::nll_loss_backward": 2,
    "aten::topk": 2,
    "aten::sort": 5,
    "aten::sort.stable": 5,
    "aten::nonzero": 3,
    "aten::masked_select": 3,
    "aten::bincount": 3,
    "aten::_unique2": 3,
    "aten::_foreach_norm.Scalar": 3,
    "aten::randperm.generator_out": 16,
}
_SORTED_EMBEDDING_ABOVE = 3072  # indices: aten/src/ATen/native/cuda/Embedding.cu


def _launches(plan: Plan, args: tuple[Any, ...]) -> int:
    if plan.name == "aten::embedding_dense_backward":
        return 2 if args[1].numel() <= _SORTED_EMBEDDING_ABOVE else 18
    if plan.name == "aten::_index_put_impl_":
        return 11 if len(args) > 3 and args[3] else 1  # accumulating sorts the indices
    if plan.name == "aten::index.Tensor":
        return 3 if any(index is not None and index.dtype is torch.bool for index in args[1]) else 1
    if plan.name == "aten::nll_loss_forward":
        return 2 if args[3] == 0 else 1
    return _LAUNCHES.get(plan.name, 1)


def work_of(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Work | None:
    """The work of a dispatched operation; None where it only changes metadata, or nothing at all."""
    if plan.is_view or plan.base in _NO_KERNEL:
        return None
    sizes = _Sizes()
    sizes.add(args)
    if kwargs:
        sizes.add(tuple(kwargs.values()))
    if not plan.mutates:
        sizes.add((result,))
    if not sizes.bytes_moved:
        return None
    return Work(
        _launches(plan, args), sizes.bytes_moved, _flops(plan, args, kwargs, result), sizes.dtype or torch.float32
    )


def copy_work(kind: str, args: tuple[Any, ...]) -> int | None:
    """Bytes of the copy that a wait of this kind waits for; None where it is not for a copy."""
    if kind in {"dtoh", "htod", "htod_pageable_async"}:
        return max(
            (tensor.numel() * tensor.element_size() for tensor in args if isinstance(tensor, torch.Tensor)), default=8
        )
    return 8 if kind in {"item", "dynamic_shape", "data_dependent"} else None


class _Sizes:
    __slots__ = ("bytes_moved", "dtype")

    def __init__(self) -> None:
        self.bytes_moved = 0
        self.dtype: torch.dtype | None = None

    def add(self, values: Any) -> None:
        for value in values:
            kind = value.__class__
            if kind is SimTensor:
                self.bytes_moved += value.numel() * value.element_size()
                self.dtype = self.dtype or value.dtype
            elif kind is list or kind is tuple:
                self.add(value)


@cache
def _formulas() -> dict[Any, Any]:
    from torch.utils.flop_counter import flop_registry

    return dict(flop_registry)


def _flops(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    formula = _formulas().get(plan.op._overloadpacket)
    if formula is None:
        return 0
    by_shape = getattr(formula, "__wrapped__", None)  # inside a layer that walks all arguments for their shapes
    if by_shape is None:
        return int(formula(*args, **kwargs, out_val=result))
    return int(by_shape(*map(_shape, args), **kwargs, out_shape=_shape(result)))


def _shape(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape
    return tuple(map(_shape, value)) if isinstance(value, (list, tuple)) else value
