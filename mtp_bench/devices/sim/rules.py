"""Which operations make the host wait for the device, and why: the one table that decides it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mtp_bench.devices.sim.pinned import is_pinned
from mtp_bench.devices.sim.tensor import SimTensor

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Count = Callable[[Args, Kwargs], int]


@dataclass(frozen=True, slots=True)
class Rule:
    """``op`` ("aten::nonzero", or with an overload "aten::index.Tensor") waits ``syncs(args, kwargs)`` times."""

    op: str
    kind: str
    count: int | Count
    reason: str
    source: str

    def syncs(self, args: Args, kwargs: Kwargs) -> int:
        """How many times the host waits in this call."""
        return self.count if isinstance(self.count, int) else self.count(args, kwargs)


_MASKS = (torch.bool, torch.uint8)
_HOSTCUDA = "counted on tools/hostcuda, PyTorch 2.14.1"
_MAIN = "aten/src/ATen/native"  # paths of PyTorch's sources, v2.13


def _on_device(value: Any) -> bool:
    return isinstance(value, SimTensor)


def _on_host(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, SimTensor)


def _non_blocking(args: Args, kwargs: Kwargs) -> bool:
    return bool(kwargs.get("non_blocking") or (len(args) > 2 and args[2] is True))


def _copy(from_host: bool, non_blocking: bool) -> Count:
    """``target.copy_(source)`` across the border, with something to copy."""

    def count(args: Args, kwargs: Kwargs) -> int:
        target, source = args[0], args[1]
        host, device = (source, target) if from_host else (target, source)
        if not (_on_host(host) and _on_device(device)) or target.numel() == 0:
            return 0
        if _non_blocking(args, kwargs):
            return int(non_blocking and not is_pinned(host))
        return int(not non_blocking)

    return count


def _to_copy(to: str, non_blocking: bool) -> Count:
    """``tensor.to(device)`` across the border."""

    def count(args: Args, kwargs: Kwargs) -> int:
        source, device = args[0], kwargs.get("device")
        if device is None or device.type != to or source.numel() == 0 or _on_device(source) is (to == "sim"):
            return 0
        if _non_blocking(args, kwargs):
            return int(non_blocking and not is_pinned(source))
        return int(not non_blocking)

    return count


def _indices_to_host(indices: Any) -> int:
    """A mask on the device: how many elements it picks is known there only."""
    return sum(_on_device(index) and index.dtype in _MASKS for index in indices)


def _indices_to_device(indices: Any) -> int:
    """Index tensors of the host are copied. A mask of the host is not: its indices go through pinned memory."""
    return sum(_on_host(index) and index.dtype not in _MASKS and index.numel() > 0 for index in indices)


def _becomes_masked_fill(args: Args, kwargs: Kwargs) -> bool:
    """``x[mask] = number``: one device mask and a scalar of the host need no count of elements."""
    value = args[2]
    accumulate = kwargs.get("accumulate", args[3] if len(args) > 3 else False)
    given = [index for index in args[1] if index is not None]
    return (
        not accumulate
        and _on_host(value)
        and value.numel() == 1
        and len(given) == 1
        and given[0].dtype in _MASKS
        and _on_device(given[0])
    )


def _put_dynamic(args: Args, kwargs: Kwargs) -> int:
    return 0 if _becomes_masked_fill(args, kwargs) else _indices_to_host(args[1])


def _put_copies(args: Args, kwargs: Kwargs) -> int:
    if _becomes_masked_fill(args, kwargs):
        return 0
    return _indices_to_device(args[1]) + int(_on_host(args[2]) and args[2].dim() == 0)


def _unless_size_given(args: Args, kwargs: Kwargs) -> int:
    return 0 if kwargs.get("output_size") is not None or args[0].numel() == 0 else 2


def _unless_same(args: Args, kwargs: Kwargs) -> int:
    left, right = args[0], args[1]
    if left.shape != right.shape or left.numel() == 0 or left.is_set_to(right) or _same_memory(left, right):
        return 0
    return 1


def _same_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    if not (isinstance(left, SimTensor) and isinstance(right, SimTensor)) or left._storage is not right._storage:
        return False
    return left.storage_offset() == right.storage_offset() and left.stride() == right.stride()


def _value_on_device(at: int) -> Count:
    return lambda args, kwargs: int(_on_device(args[at] if len(args) > at else kwargs.get("value")))


def _without_bounds(args: Args, kwargs: Kwargs) -> int:
    low = args[2] if len(args) > 2 else kwargs.get("min", 0)
    high = args[3] if len(args) > 3 else kwargs.get("max", 0)
    return 2 if low == high and args[0].numel() else 0


def _unless_empty(count: int) -> Count:
    return lambda args, kwargs: count if args[0].numel() else 0


def _scalars_to_device(args: Args, kwargs: Kwargs) -> int:
    return sum(_on_host(value) for value in args[1:])


def _pairs_to_copy(args: Args, kwargs: Kwargs) -> int:
    if kwargs.get("non_blocking") or (len(args) > 2 and args[2]):
        return 0
    return sum(_on_device(target) and _on_host(source) for target, source in zip(args[0], args[1], strict=True))


def _sorts_to_search(args: Args, kwargs: Kwargs) -> int:
    """Above this size torch.isin sorts instead of comparing all with all."""
    elements, tests = args[0].numel(), args[1].numel()
    if tests < int(10.0 * elements**0.145):
        return 0
    return 1 if kwargs.get("assume_unique") else 3


RULES: tuple[Rule, ...] = (
    # Reading one value.
    Rule(
        "aten::_local_scalar_dense",
        "item",
        1,
        "reads one value into a Python number: item(), bool(), int(), float(), a slice bound",
        f"{_MAIN}/cuda/CUDAScalar.cu: memcpy_and_sync",
    ),
    Rule(
        "aten::masked_fill_.Tensor",
        "item",
        _value_on_device(2),
        "the fill value is read to pass it to the kernel",
        f"{_MAIN}/cuda/Indexing.cu: value.item()",
    ),
    Rule(
        "aten::index_fill_.int_Tensor",
        "item",
        _value_on_device(3),
        "the fill value is read to pass it to the kernel",
        f"{_MAIN}/TensorAdvancedIndexing.cpp: value.item()",
    ),
    # Copies across the border, one sync a copy: cudaMemcpyAsync and then cudaStreamSynchronize.
    Rule(
        "aten::copy_",
        "dtoh",
        _copy(False, False),
        "blocking copy to the host",
        f"{_MAIN}/cuda/Copy.cu: memcpy_and_sync",
    ),
    Rule(
        "aten::copy_",
        "htod",
        _copy(True, False),
        "blocking copy from the host",
        f"{_MAIN}/cuda/Copy.cu: memcpy_and_sync",
    ),
    Rule(
        "aten::copy_",
        "dtoh",
        _copy(False, True),
        "non_blocking into pageable memory of the caller: the driver waits inside the copy",
        "CUDA Driver API, API synchronization behavior: copies to pageable memory; not seen by set_sync_debug_mode",
    ),
    Rule(
        "aten::copy_",
        "htod_pageable_async",
        _copy(True, True),
        "non_blocking from pageable memory: staged by the driver, which may wait",
        "CUDA Driver API, API synchronization behavior; not a wait to set_sync_debug_mode",
    ),
    Rule(
        "aten::_to_copy",
        "dtoh",
        _to_copy("cpu", False),
        "blocking copy to the host",
        f"{_MAIN}/cuda/Copy.cu: memcpy_and_sync",
    ),
    Rule(
        "aten::_to_copy",
        "htod",
        _to_copy("sim", False),
        "blocking copy from the host",
        f"{_MAIN}/cuda/Copy.cu: memcpy_and_sync",
    ),
    Rule(
        "aten::_to_copy",
        "htod_pageable_async",
        _to_copy("sim", True),
        "non_blocking from pageable memory: staged by the driver, which may wait",
        "CUDA Driver API, API synchronization behavior; not a wait to set_sync_debug_mode",
    ),
    # Sizes that only the device knows.
    Rule("aten::nonzero", "dynamic_shape", 1, "reads the number of nonzero elements", f"{_MAIN}/cuda/Nonzero.cu"),
    Rule("aten::masked_select", "dynamic_shape", 1, "nonzero of the mask", f"{_MAIN}/cuda/IndexKernel.cpp"),
    Rule(
        "aten::index",
        "dynamic_shape",
        lambda args, kwargs: _indices_to_host(args[1]),
        "a mask on the device is turned into indices by nonzero; index tensors need none",
        f"{_MAIN}/TensorAdvancedIndexing.cpp: expandTensors",
    ),
    Rule(
        "aten::index",
        "htod",
        lambda args, kwargs: _indices_to_device(args[1]),
        "an index tensor of the host is copied; a mask of the host goes through pinned memory and does not wait",
        f"{_MAIN}/TensorAdvancedIndexing.cpp: make_info",
    ),
    Rule(
        "aten::_index_put_impl_",
        "dynamic_shape",
        _put_dynamic,
        "as indexing; but `x[mask] = number` becomes masked_fill_",
        f"{_MAIN}/TensorAdvancedIndexing.cpp: canDispatchToMaskedFill",
    ),
    Rule(
        "aten::_index_put_impl_",
        "htod",
        _put_copies,
        "index tensors and a scalar value of the host are copied",
        f"{_MAIN}/TensorAdvancedIndexing.cpp: _index_put_impl_",
    ),
    Rule(
        "aten::repeat_interleave.Tensor",
        "dynamic_shape",
        _unless_size_given,
        "checks the smallest count and reads their sum, unless output_size is given",
        f"{_MAIN}/Repeat.cpp",
    ),
    Rule(
        "aten::_unique2",
        "dynamic_shape",
        _unless_empty(1),
        "reads the number of unique values",
        f"{_MAIN}/cuda/UniqueCub.cu",
    ),
    Rule(
        "aten::unique_consecutive",
        "dynamic_shape",
        _unless_empty(1),
        "reads the number of unique values; with dim inside Thrust, which set_sync_debug_mode does not see",
        f"{_MAIN}/cuda/Unique.cu; {_HOSTCUDA}",
    ),
    Rule(
        "aten::unique_dim",
        "dynamic_shape",
        _unless_empty(1),
        "reads the number of unique rows inside Thrust, which set_sync_debug_mode does not see",
        f"{_MAIN}/cuda/Unique.cu; {_HOSTCUDA}",
    ),
    Rule(
        "aten::bincount",
        "dynamic_shape",
        _unless_empty(2),
        "reads the smallest and the largest value",
        f"{_MAIN}/cuda/SummaryOps.cu",
    ),
    # Values that decide what the operator does.
    Rule(
        "aten::equal",
        "data_dependent",
        _unless_same,
        "compares on the device and reads the verdict; another shape or the same memory is decided on the host",
        f"{_MAIN}/cuda/Equal.cpp",
    ),
    Rule(
        "aten::histc",
        "data_dependent",
        _without_bounds,
        "reads smallest and largest value, unless bounds are given",
        f"{_MAIN}/cuda/SummaryOps.cu",
    ),
    Rule(
        "aten::where.self",
        "htod",
        _scalars_to_device,
        "a scalar tensor of the host beside a condition on the device is copied",
        f"{_MAIN}/TensorCompare.cpp: where_self_out",
    ),
    Rule("aten::_foreach_copy_", "htod", _pairs_to_copy, "each copy from the host is blocking", _HOSTCUDA),
    Rule(
        "aten::isin.Tensor_Tensor",
        "dynamic_shape",
        _sorts_to_search,
        "many elements are searched by sorting, with unique() inside",
        f"{_MAIN}/TensorCompare.cpp: isin_sorting",
    ),
    Rule(
        "aten::searchsorted",
        "data_dependent",
        lambda args, kwargs: 2 if kwargs.get("sorter") is not None else 0,
        "checks the smallest and largest index of the sorter",
        f"{_MAIN}/BucketizationUtils.h",
    ),
    Rule(
        "aten::segment_reduce",
        "data_dependent",
        lambda args, kwargs: 2 if kwargs.get("lengths") is not None and not kwargs.get("unsafe") else 0,
        "checks the smallest length and the sum of the lengths",
        _HOSTCUDA,
    ),
    Rule("aten::linalg_matrix_exp", "data_dependent", 2, "reads norms to choose the degree", _HOSTCUDA),
    Rule("aten::_ctc_loss.default", "data_dependent", 4, "copies lengths and offsets of the targets", _HOSTCUDA),
    Rule("aten::_ctc_loss.Tensor", "data_dependent", 8, "reads lengths, and copies lengths and offsets", _HOSTCUDA),
    Rule("aten::_ctc_loss_backward", "data_dependent", 3, "copies lengths and offsets of the targets", _HOSTCUDA),
    Rule(
        "aten::_linalg_svd", "data_dependent", _unless_empty(2), "reads the solver's status and convergence", _HOSTCUDA
    ),
    Rule("aten::_linalg_eigh", "data_dependent", _unless_empty(1), "reads the solver's status", _HOSTCUDA),
    Rule(
        "c10d::barrier",
        "stream_sync",
        1,
        "NCCL's barrier waits on the host",
        "torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ),
)


def rules_for(base: str, overload: str) -> tuple[Rule, ...]:
    """The rows that apply to an operator overload."""
    return tuple(rule for rule in RULES if rule.op in (base, f"{base}.{overload or 'default'}"))
