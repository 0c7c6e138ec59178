"""All of Megatron's process-wide state, saved, replaced and put back: runs must neither see nor leave any."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mtp_bench.patching import replaced

if TYPE_CHECKING:
    import torch

# Megatron sets these when it builds a model and refuses other values found there.
_ENVIRONMENT = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")


class Place(Protocol):
    """What Megatron needs to know of a device; every ``mtp_bench.devices.Device`` is one."""

    @property
    def torch_device(self) -> torch.device:
        """Where new tensors go."""
        ...

    def backend(self) -> str:
        """Backend of the process group."""
        ...


@dataclass(frozen=True)
class HostPlace:
    """The plain CPU, for references and for tests: no device that users choose."""

    @property
    def torch_device(self) -> torch.device:
        """The CPU."""
        import torch

        return torch.device("cpu")

    def backend(self) -> str:
        """Gloo."""
        return "gloo"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what Megatron warns about its own defaults while it builds something out of the user's terminal."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


class _NoRandomStates:
    """Stands for Megatron's CUDA random states where there is no CUDA; nothing here draws a random number."""

    def fork(self, name: str = "") -> Any:
        return nullcontext()

    def is_initialized(self) -> bool:
        return True


@contextmanager
def isolated_state(device: Place, seed: int = 1234, context_parallel_size: int = 1) -> Iterator[None]:
    """Give Megatron a fresh state on ``device``, with process group and model-parallel groups; restore all on leaving.

    Groups that are there already stay, whatever ``context_parallel_size``.

    Covered: the MTP loss tracker, the loss scale, the CUDA random states, the parallel state and its memory buffers,
    the rerun state machine, ``torch.cuda.current_device``, the flag that swaps module parameters on conversion, the
    environment variables that Megatron sets, and the process group where none was there.
    """
    with ExitStack() as stack:
        for part in (_environment, _swap_flag, _class_state, _parallel_state):
            stack.enter_context(part())
        if device.torch_device.type == "cpu":
            # The session of a simulated device answers for itself; the plain CPU has none.
            stack.enter_context(_current_device(device.torch_device))
        stack.enter_context(_process_groups(device.backend(), context_parallel_size))
        stack.enter_context(_random_states(device.torch_device.type == "cuda", seed))
        yield


@contextmanager
def _environment() -> Iterator[None]:
    saved = {name: os.environ.pop(name) for name in _ENVIRONMENT if name in os.environ}
    try:
        yield
    finally:
        for name in _ENVIRONMENT:
            os.environ.pop(name, None)
        os.environ.update(saved)


@contextmanager
def _swap_flag() -> Iterator[None]:
    from torch.__future__ import get_swap_module_params_on_conversion, set_swap_module_params_on_conversion

    saved = get_swap_module_params_on_conversion()
    try:
        yield
    finally:
        set_swap_module_params_on_conversion(saved)


@contextmanager
def _class_state() -> Iterator[None]:
    """The tracker stays the same dict, since others may hold it; its content is set aside."""
    import torch
    from megatron.core import rerun_state_machine
    from megatron.core.models.common.language_module.language_module import LanguageModule
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, MTPLossLoggingHelper

    tracker = MTPLossLoggingHelper.tracker
    logged = dict(tracker)
    scale = MTPLossAutoScaler.main_loss_backward_scale
    rerun = rerun_state_machine._GLOBAL_RERUN_STATE_MACHINE
    warned = getattr(LanguageModule, "embedding_warning_printed", None)
    tracker.clear()
    MTPLossAutoScaler.main_loss_backward_scale = torch.tensor(1.0)
    rerun_state_machine._GLOBAL_RERUN_STATE_MACHINE = None
    try:
        yield
    finally:
        tracker = MTPLossLoggingHelper.tracker
        tracker.clear()
        tracker.update(logged)
        MTPLossAutoScaler.main_loss_backward_scale = scale
        rerun_state_machine._GLOBAL_RERUN_STATE_MACHINE = rerun
        if warned is None and hasattr(LanguageModule, "embedding_warning_printed"):
            del LanguageModule.embedding_warning_printed


@contextmanager
def _parallel_state() -> Iterator[None]:
    """Groups that are there stay; memory buffers are fresh, since they live on one device."""
    from megatron.core import parallel_state

    def state() -> dict[str, Any]:
        # Its groups, ranks and buffers are the private names that are no functions.
        return {name: value for name, value in vars(parallel_state).items() if name[:1] == "_" and not callable(value)}

    saved = state()
    buffers = [name for name in saved if name.endswith("_MEMORY_BUFFER")]
    for name in buffers:
        setattr(parallel_state, name, None)
    if parallel_state.model_parallel_is_initialized():
        parallel_state._set_global_memory_buffer()
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(parallel_state, name, value)


def _current_device(device: torch.device) -> AbstractContextManager[None]:
    import torch

    return replaced(torch.cuda, "current_device", lambda: device)


@contextmanager
def _process_groups(backend: str, context_parallel_size: int) -> Iterator[None]:
    """A process group of one rank unless torchrun started this process, and Megatron's groups on it."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state

    ours = not dist.is_initialized()
    excepthook = sys.excepthook  # replaced by torch.distributed, once more with every group
    if ours and "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        dist.init_process_group(backend)
    elif ours:
        dist.init_process_group(backend, store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=1)
    try:
        if not parallel_state.model_parallel_is_initialized():
            parallel_state.initialize_model_parallel(
                context_parallel_size=context_parallel_size, create_gloo_process_groups=False
            )
        yield
    finally:
        if ours:
            dist.destroy_process_group()
            sys.excepthook = excepthook


@contextmanager
def _random_states(cuda: bool, seed: int) -> Iterator[None]:
    from megatron.core.tensor_parallel import random

    saved = random._CUDA_RNG_STATE_TRACKER, random._CUDA_RNG_STATE_TRACKER_INITIALIZED
    if cuda:
        random._CUDA_RNG_STATE_TRACKER, random._CUDA_RNG_STATE_TRACKER_INITIALIZED = None, False
        random.model_parallel_cuda_manual_seed(seed)
    else:
        random._CUDA_RNG_STATE_TRACKER, random._CUDA_RNG_STATE_TRACKER_INITIALIZED = _NoRandomStates(), True
    try:
        yield
    finally:
        random._CUDA_RNG_STATE_TRACKER, random._CUDA_RNG_STATE_TRACKER_INITIALIZED = saved
