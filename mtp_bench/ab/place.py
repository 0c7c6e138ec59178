"""Where a job runs: its device, and the ways in which it cannot be measured there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import torch

from mtp_bench.errors import InputError
from mtp_bench.profiles import profile_names

if TYPE_CHECKING:
    from mtp_bench.devices.sim.profile import DeviceProfile
    from mtp_bench.syncs import Sync

_FULL_ITERATION = "full_iteration"


class JobDevice(Protocol):
    """What is asked of the device that the model is on; each of ``mtp_bench.devices`` can tell."""

    spec: str
    detectors: tuple[str, ...]

    @property
    def torch_device(self) -> torch.device:
        """Where the model's tensors are."""
        ...

    def describe(self) -> dict[str, Any]:
        """``environment.device`` of run.json."""
        ...

    def record_syncs(self) -> AbstractContextManager[list[Sync]]:
        """Collect the syncs of what runs inside."""
        ...


def device_of(model: torch.nn.Module) -> JobDevice:
    """The device of the model's parameters. InputError where that is neither a GPU nor the simulated device."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if device.type == "cuda":
        from mtp_bench.devices.cuda import CudaDevice

        return CudaDevice(torch.cuda.current_device() if device.index is None else device.index)
    if device.type == "sim":
        from mtp_bench.devices.sim import SimDevice
        from mtp_bench.devices.sim.state import STATE

        if STATE.profile is not None:
            return SimDevice(STATE.profile, _sim_spec(STATE.profile))
    raise InputError(
        f"the model is on {device}, where no host is ahead of a device: move it to cuda, or build it inside a session "
        'of the simulated device (mtp_bench.devices.resolve("sim").session())'
    )


def obstacle(wrapped: list[Any], config: Any) -> str | None:
    """Why the loss cannot be exchanged while the job runs: it is compiled, or captured in a graph. None where it can.

    ``wrapped`` are the model's modules from the outermost inwards.
    """
    for module in wrapped:
        if _is_compiled(module):
            return (
                f"{type(module).__name__} is compiled by torch.compile, which keeps the loss that it has seen: call "
                "mtp_bench.ab on a model that is not compiled"
            )
    if config.mtp_num_layers and _captures_iterations(config):
        return (
            "the whole iteration is captured in a CUDA graph (full_iteration), which keeps the loss that it was "
            "captured with: turn that graph off for the experiment (graphs of single layers may stay)"
        )
    return None


def in_graph_or_compiled() -> str | None:
    """Why the call of the loss that now runs cannot be exchanged; None where it can."""
    if torch.compiler.is_compiling():
        return "the MTP loss is inside a region that torch.compile is compiling: leave it out of that region"
    if torch.cuda.is_current_stream_capturing():
        return "the MTP loss is inside a CUDA graph that is being captured: turn that graph off for the experiment"
    return None


def _sim_spec(profile: DeviceProfile) -> str:
    """The simulated device as ``--device`` takes it; a profile that is not ours goes by its device's name."""
    from mtp_bench.devices.sim.profile import load_profile

    names = profile_names("devices")
    return f"sim:{next((name for name in names if load_profile(name) == profile), profile.name)}"


def _is_compiled(module: Any) -> bool:
    from torch._dynamo.eval_frame import OptimizedModule

    return (
        isinstance(module, OptimizedModule)
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(getattr(module, "forward", None), "_torchdynamo_orig_callable")
    )


def _captures_iterations(config: Any) -> bool:
    """megatron-core 0.14: ``enable_cuda_graph``; 0.15 to 0.17: ``cuda_graph_impl="local"``, both with that scope;
    from 0.18 on an implementation of its own.
    """
    implementation = getattr(config, "cuda_graph_impl", "local" if config.enable_cuda_graph else "none")
    if implementation == _FULL_ITERATION:
        return True
    scope = getattr(config, "cuda_graph_scope", None) or []
    names = scope.split(",") if isinstance(scope, str) else [getattr(part, "name", part) for part in scope]
    return implementation == "local" and _FULL_ITERATION in names
