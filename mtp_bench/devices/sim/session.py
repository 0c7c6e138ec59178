"""Entering and leaving the simulated device: process-wide switches of PyTorch, set for the time of a session."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _device

from mtp_bench.devices.sim import backend, cuda_alias
from mtp_bench.devices.sim.state import STATE
from mtp_bench.devices.sim.tensor import SimTensor
from mtp_bench.patching import Patches

if TYPE_CHECKING:
    from mtp_bench.devices.sim import SimDevice


@contextmanager
def open_session(device: SimDevice) -> Iterator[None]:
    """Everything that the simulated device changes in the process, undone on leaving; sessions nest."""
    backend.register()
    with ExitStack() as stack:
        stack.callback(setattr, STATE, "limit", STATE.limit)
        STATE.limit = device.shape_only_above
        if STATE.sessions == 0:
            stack.callback(setattr, STATE, "profile", None)
            STATE.profile = device.profile
            stack.enter_context(_switches())
            stack.enter_context(cuda_alias.cuda_means_sim(device.profile))
        STATE.sessions += 1
        try:
            yield
        finally:
            STATE.sessions -= 1
            STATE.deferred = None


@contextmanager
def _switches() -> Iterator[None]:
    future = torch.__future__
    swapped = future.get_swap_module_params_on_conversion()
    multithreaded = torch.autograd.is_multithreading_enabled()
    foreach_users = ("torch.utils._foreach_utils", "torch.optim.optimizer")
    supported = [importlib.import_module(name)._foreach_supported_types for name in foreach_users]
    threads = torch.get_num_threads()
    default_device = _device.CURRENT_DEVICE
    future.set_swap_module_params_on_conversion(True)
    torch.set_num_threads(1)  # values are small; and what they are must not depend on the machine's cores
    torch.autograd.set_multithreading_enabled(False)  # backward keeps the caller's frames and ranges
    for types in supported:
        types.append(SimTensor)  # else optimizers and clipping go one tensor at a time, which CUDA would not
    patches = Patches()
    patches.wrap(torch.autograd, "_engine_run_backward", _raising_deferred)
    try:
        yield
    finally:
        patches.undo()
        if default_device != _device.CURRENT_DEVICE:  # a default of "cuda" would go on meaning the simulated device
            torch.set_default_device(default_device)
        for types in supported:
            types.remove(SimTensor)
        torch.set_num_threads(threads)
        torch.autograd.set_multithreading_enabled(multithreaded)
        future.set_swap_module_params_on_conversion(swapped)


def _raising_deferred(run_backward: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            result = run_backward(*args, **kwargs)
        except Exception as error:
            if _deferred_is_due():  # the cause came first
                raise STATE.take_deferred() from error
            raise
        if _deferred_is_due():
            raise STATE.take_deferred()
        return result

    return run


def _deferred_is_due() -> bool:
    """Inside an outer backward no exception may leave either: it is raised when the outermost has returned."""
    return STATE.deferred is not None and torch._C._current_graph_task_id() < 0
