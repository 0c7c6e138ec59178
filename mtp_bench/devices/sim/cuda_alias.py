"""``cuda`` means the simulated device: what training code says, redirected for the time of a session.

Redirected: ``device=`` arguments, ``.cuda()``, ``.to("cuda")``, autocast, pinned memory, process groups on NCCL, and
the functions of ``torch.cuda`` that training code calls. Any other function of ``torch.cuda`` raises an error with its
name.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
import torch.utils._device as device_context

from mtp_bench.devices.sim import cuda_functions
from mtp_bench.devices.sim.pinned import is_pinned, mark_pinned
from mtp_bench.devices.sim.profile import DeviceProfile
from mtp_bench.devices.sim.tensor import SimTensor
from mtp_bench.patching import Patches

_LIKE = ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")
_NEW = ("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "new_empty_strided")
# Functions of torch.cuda that do no more than Python, or that PyTorch itself calls in passing.
_HARMLESS = frozenset({"check_error", "get_sync_debug_mode", "is_bf16_supported", "is_tf32_supported", "cudart"})


@contextmanager
def cuda_means_sim(profile: DeviceProfile) -> Iterator[None]:
    """Redirect ``cuda`` to ``sim:0`` until the block ends."""
    patches = Patches()
    try:
        _redirect_device_arguments(patches)
        _redirect_pinning(patches)
        _redirect_autocast(patches)
        _redirect_process_groups(patches)
        _redirect_torch_cuda(patches, profile)
        yield
    finally:
        patches.undo()


def as_sim(device: Any) -> Any:
    """``device``, or ``sim:0`` where it names a CUDA device of any index."""
    if isinstance(device, str):
        return "sim:0" if device == "cuda" or device.startswith("cuda:") else device
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device("sim:0")
    return device


def _redirect_device_arguments(patches: Patches) -> None:
    constructors = device_context._device_constructors()  # remembered by PyTorch: must be computed before
    names = {getattr(function, "__name__", "") for function in constructors}
    for name in sorted({name for name in names if hasattr(torch, name)} | set(_LIKE)):
        patches.wrap(torch, name, _device_keyword)
    for name in _NEW:
        patches.wrap(torch.Tensor, name, _device_keyword)
    patches.wrap(torch.Tensor, "to", _to)
    patches.set(torch.Tensor, "cuda", _cuda)
    patches.wrap(device_context.DeviceContext, "__init__", _device_context)
    patches.wrap(torch, "set_default_device", lambda set_default: lambda device: set_default(as_sim(device)))


def _device_keyword(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = as_sim(kwargs["device"])
        if kwargs.pop("pin_memory", False):
            return mark_pinned(function(*args, **kwargs))
        return function(*args, **kwargs)

    return call


def _to(to: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if "device" in kwargs:
            kwargs["device"] = as_sim(kwargs["device"])
        elif args:
            args = (as_sim(args[0]), *args[1:])
        return to(self, *args, **kwargs)

    return call


def _cuda(
    self: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format
) -> torch.Tensor:
    return self.to("sim:0", non_blocking=non_blocking, memory_format=memory_format)


def _device_context(init: Callable[..., None]) -> Callable[..., None]:
    return lambda self, device: init(self, as_sim(device))


def _redirect_pinning(patches: Patches) -> None:
    def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        if isinstance(self, SimTensor):
            raise RuntimeError(f"cannot pin '{self.type()}': only dense CPU tensors can be pinned")
        return self if is_pinned(self) else mark_pinned(self.clone())

    patches.set(torch.Tensor, "pin_memory", pin_memory)
    patches.set(torch.Tensor, "is_pinned", lambda self, device=None: is_pinned(self))


def _redirect_autocast(patches: Patches) -> None:
    def redirected(init: Callable[..., None]) -> Callable[..., None]:
        def call(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
            init(self, "sim" if device_type == "cuda" else device_type, *args, **kwargs)

        return call

    def device_first(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(device_type: str = "cuda", *args: Any) -> Any:
            return function("sim" if device_type == "cuda" else device_type, *args)

        return call

    patches.wrap(torch.autocast, "__init__", redirected)
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        patches.wrap(torch, name, device_first)
    patches.set(torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype("sim"))


def _redirect_process_groups(patches: Patches) -> None:
    if not torch.distributed.is_available():
        return

    def over_gloo(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if args and isinstance(args[0], str) and "nccl" in args[0]:
                args = ("gloo", *args[1:])
            if "nccl" in str(kwargs.get("backend")):
                kwargs["backend"] = "gloo"
            kwargs.pop("device_id", None)
            kwargs.pop("pg_options", None)
            made = function(*args, **kwargs)
            _serve_sim(made if made is not None else torch.distributed.group.WORLD)
            return made

        return call

    def barrier(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs.pop("device_ids", None)
            cuda_functions.note_wait("stream_sync", "torch.distributed.barrier")
            return function(*args, **kwargs)

        return call

    for name in ("init_process_group", "new_group"):
        patches.wrap(torch.distributed, name, over_gloo)
    patches.wrap(torch.distributed, "barrier", barrier)


def _serve_sim(group: Any) -> None:
    """Let the group's Gloo backend answer for ``sim``: PyTorch asks for a backend by device before some calls."""
    if isinstance(group, torch.distributed.ProcessGroup):
        gloo = group._get_backend(torch.device("cpu"))
        group._register_backend(torch.device("sim"), torch.distributed.ProcessGroup.BackendType.GLOO, gloo)


def _redirect_torch_cuda(patches: Patches, profile: DeviceProfile) -> None:
    ours = cuda_functions.replacements(profile)
    for module in (torch.cuda, torch.cuda.memory, torch.cuda.random):
        for name, value in list(vars(module).items()):
            if name in ours:
                patches.set(module, name, ours[name])
            elif _must_refuse(name, value):
                patches.set(module, name, _refusal(f"torch.cuda.{name}", value))
    for name in ("CUDAGraph", "graph"):
        patches.set(torch.cuda, name, _refused_class(f"torch.cuda.{name}"))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        patches.set(torch.cuda.nvtx, name, _no_range)
    patches.set(torch.cuda, "is_available", _is_available)


def _must_refuse(name: str, value: Any) -> bool:
    return (
        isinstance(value, FunctionType)
        and value.__module__.startswith("torch.cuda")
        and not name.startswith("_")
        and name not in _HARMLESS
    )


def _refusal(name: str, original: FunctionType) -> Callable[..., Any]:
    @functools.wraps(original)  # torch._dynamo, imported later, looks below the decorators of some
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name} is not supported on the simulated device")

    return refuse


def _refused_class(name: str) -> type:
    """A class that says what it is when it is made; code that only asks isinstance goes on."""

    def refuse(self: object, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{name} is not supported on the simulated device")

    return type(name.rpartition(".")[2], (), {"__init__": refuse})


def _no_range(*args: Any, **kwargs: Any) -> int:
    return 0


def _is_available() -> bool:
    """True for the code under test, which asks whether to use ``cuda``; honest for PyTorch's own (autocast apart)."""
    caller = sys._getframe(1).f_globals.get("__name__", "")
    inside_torch = caller == "torch" or caller.startswith("torch.")
    return not inside_torch or caller.startswith(("torch.cuda.amp", "torch.amp"))
