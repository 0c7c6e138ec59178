"""Registers the device ``sim`` with PyTorch: once in a process, and for good."""

from __future__ import annotations

from typing import Any

import torch

from mtp_bench.devices.sim import autocast, dispatch, tensor
from mtp_bench.devices.sim.state import STATE
from mtp_bench.errors import InputError

NAME = "sim"
# C++ calls these with the Python key excluded, as torch.tensor(..., device=) does: the boxed fallback alone dies there.
_DIRECT_KERNELS = ("_to_copy", "empty_strided", "copy_", "empty.memory_format", "_local_scalar_dense")
_libraries: list[Any] = []  # a library that is collected takes its kernels with it


class _Module:
    """``torch.sim``: what PyTorch asks of an accelerator's module."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return tensor.DEVICE_INDEX

    def set_device(self, device: Any) -> None:
        pass

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        STATE.device_generator().manual_seed(seed)

    manual_seed = manual_seed_all

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return STATE.device_generator().get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        STATE.device_generator().set_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16, torch.float32]


def register() -> None:
    """Make ``torch.device("sim")`` exist. Raises InputError where CUDA is in use, or PyTorch cannot do it."""
    if STATE.registered:
        return
    cuda: Any = torch.cuda
    if cuda.is_initialized():
        raise InputError(
            "the simulated device cannot run in a process that has started CUDA (PyTorch knows one accelerator a "
            "process); run it in a process of its own"
        )
    from torch.utils import backend_registration

    setup = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        raise InputError(f"the simulated device needs PyTorch >= 2.11, this is {torch.__version__}")
    setup(NAME, backend_module=_Module())
    tensor._DEVICE.append(torch.device(NAME, tensor.DEVICE_INDEX))
    _register_kernels()
    STATE.registered = True


def _register_kernels() -> None:
    library: Any = torch.library.Library
    everything = library("_", "IMPL")
    everything.fallback(dispatch.boxed_fallback, "PrivateUse1")
    aten = library("aten", "IMPL")
    for name in _DIRECT_KERNELS:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        aten.impl(name, _kernel(op), "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    autocast.register(aten)
    _libraries.extend((everything, aten))


def _kernel(op: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        return dispatch.dispatch(op, args, kwargs)

    return run
