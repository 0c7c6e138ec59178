"""What ``cuda`` and ``sim`` have in common; everything above it is the same code for both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mtp_bench.errors import InputError
from mtp_bench.syncs import Frame, Sync

if TYPE_CHECKING:
    import torch

Step = Callable[[], object]
"""One call of the scope: forward, backward and, in scope ``step``, gradient finalisation."""


@dataclass(frozen=True, slots=True)
class Window:
    """Time of back-to-back steps, as nanoseconds a step. Modelled where the device is simulated."""

    step_ns: float
    host_ns: float  # host time to enqueue a step
    lead_ns: float  # how far the host was ahead of the device at the entry of a step
    device_idle_ns: float | None = None
    sm_clock_mhz: int | None = None
    throttled: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """The syncs of one step in order, and the number of operations dispatched (None where not counted)."""

    syncs: tuple[Sync, ...]
    ops: int | None = None


@dataclass(frozen=True, slots=True)
class GraphCapture:
    """Whether the step can be captured in a CUDA graph; if not, the line that forbids it and why."""

    possible: bool
    site: Frame | None = None
    reason: str = ""


class Device(Protocol):
    """A place to run a step."""

    spec: str  # "cuda:0", "sim:h100"
    modelled: bool
    detectors: tuple[str, ...]  # names of the detectors that observe() uses
    detectors_linger: bool  # they cannot be switched off again: time is measured in a process that never observed

    @property
    def torch_device(self) -> torch.device:
        """The device that tensors are made on."""
        ...

    def describe(self) -> dict[str, Any]:
        """``environment.device`` of run.json: kind, name, modelled, driver, cuda."""
        ...

    def backend(self) -> str:
        """The torch.distributed backend string of its process group."""
        ...

    def session(self) -> AbstractContextManager[None]:
        """All use of the device happens inside; undone on leaving."""
        ...

    def real_values(self) -> AbstractContextManager[None]:
        """Inside, tensors of any size hold real values (a no-op on CUDA, where they always do)."""
        ...

    def record_syncs(self) -> AbstractContextManager[list[Sync]]:
        """Collect the syncs of what runs inside."""
        ...

    def warm_up(self, step: Step) -> None:
        """Run ``step`` until nothing is allocated or initialised any more."""
        ...

    def observe(self, step: Step, lead_ms: float = 0.0) -> Observation:
        """Run ``step`` once with ``lead_ms`` of device work queued before it, and record its syncs."""
        ...

    def graph_capture(self, step: Step) -> GraphCapture:
        """Try to capture ``step`` in a CUDA graph."""
        ...

    def peak_memory_bytes(self, step: Step) -> int | None:
        """Peak device memory of one step; None where it is not known."""
        ...

    def time_window(self, step: Step, steps: int, lead_ms: float = 0.0) -> Window:
        """Time ``steps`` back-to-back steps, each with ``lead_ms`` of device work queued before it (not counted)."""
        ...

    def export_trace(self, step: Step, path: str) -> None:
        """Write the timeline of one step to ``path`` as a Chrome trace (JSON): modelled on sim, Kineto's on CUDA."""
        ...


def resolve(spec: str) -> Device:
    """Return the device that ``spec`` names: ``auto``, ``cuda``, ``cuda:N``, ``sim`` or ``sim:PROFILE``.

    ``auto`` is ``cuda`` where there is a GPU and ``sim:h100`` elsewhere. Raises InputError for anything else, and
    where ``cuda`` is asked for without a GPU: that is never a silent fallback.
    """
    import torch

    kind, _, rest = str(spec).partition(":")
    if spec == "auto":
        kind, rest = ("cuda", "") if torch.cuda.is_available() else ("sim", "h100")
    if kind == "cuda":
        from mtp_bench.devices.cuda import CudaDevice

        return CudaDevice.from_spec(rest)
    if kind == "sim":
        from mtp_bench.devices.sim import SimDevice

        return SimDevice.from_spec(rest or "h100")
    raise InputError(f"--device {spec!r}: no such device; use auto, cuda, cuda:N, sim or sim:PROFILE")
