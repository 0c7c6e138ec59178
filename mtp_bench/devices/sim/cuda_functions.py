"""The functions and classes of ``torch.cuda`` as the simulated device has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from mtp_bench.devices.sim.clock import Timeline
from mtp_bench.devices.sim.profile import DeviceProfile
from mtp_bench.devices.sim.state import STATE
from mtp_bench.devices.sim.tensor import DEVICE_INDEX

_BYTES_PER_GIB = 2**30
_NS_PER_MS = 1e6


def note_wait(kind: str, what: str) -> None:
    """Record that the host waited in ``what``, where anybody records."""
    if STATE.recorder is not None:
        STATE.recorder.wait(kind, what)


class Event:
    """``torch.cuda.Event`` on the modelled timeline; outside of a recording no time passes.

    ``issue_ns`` is the host's time when it was recorded and ``device_ns`` when the device reaches it, NaN before that.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any
    ) -> None:
        self.timeline: Timeline | None = None
        self.issue_ns = 0.0
        self.device_ns = math.nan

    def record(self, stream: Any = None) -> None:
        """Mark the end of what is queued."""
        self.timeline = STATE.recorder.timeline if STATE.recorder is not None else None
        self.issue_ns = self.timeline.issue_ns if self.timeline is not None else 0.0
        self.device_ns = self.timeline.reached_ns() if self.timeline is not None else 0.0

    def wait(self, stream: Any = None) -> None:
        """Make a stream wait, not the host; there is one stream."""

    def query(self) -> bool:
        """Whether the work has finished. Asking does not wait."""
        return True

    def synchronize(self) -> None:
        """Make the host wait."""
        note_wait("event_sync", "torch.cuda.Event.synchronize")

    def elapsed_time(self, end_event: Event) -> float:
        """Modelled milliseconds between two recorded events."""
        if math.isnan(self.device_ns) or math.isnan(end_event.device_ns):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event.device_ns - self.device_ns) / _NS_PER_MS


class Stream:
    """``torch.cuda.Stream``: a name only, since the simulated device has one queue."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = torch.device("sim", DEVICE_INDEX)
        self.priority = priority
        self.cuda_stream = 0
        self._previous: list[Stream] = []

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """As on current GPUs."""
        return 0, -5

    def synchronize(self) -> None:
        """Make the host wait."""
        note_wait("stream_sync", "torch.cuda.Stream.synchronize")

    def query(self) -> bool:
        """Whether all work has finished. Asking does not wait."""
        return True

    def wait_stream(self, stream: Any) -> None:
        """Order two streams on the device; there is one."""

    def wait_event(self, event: Any) -> None:
        """Order this stream behind an event; there is one stream."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record ``event``, or a new one."""
        event = event if event is not None else Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._previous.append(_streams[-1])
        _streams[-1] = self
        return self

    def __exit__(self, *_: object) -> None:
        _streams[-1] = self._previous.pop()


class _DeviceContext:
    """``torch.cuda.device(...)`` and ``device_of``: there is one device."""

    def __init__(self, device: Any = None) -> None:
        self.idx = DEVICE_INDEX

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


_default_stream: Stream | None = None
_streams: list[Any] = [None]


def _the_default_stream(device: Any = None) -> Stream:
    global _default_stream
    if _default_stream is None:
        _default_stream = Stream()
    return _default_stream


def _current_stream(device: Any = None) -> Stream:
    return _streams[-1] or _the_default_stream()


@contextmanager
def _stream(stream: Stream | None) -> Iterator[None]:
    before = _streams[-1]
    _streams[-1] = stream if stream is not None else before
    try:
        yield
    finally:
        _streams[-1] = before


def _set_stream(stream: Stream) -> None:
    _streams[-1] = stream


def _get_rng_state(device: Any = "cuda") -> torch.Tensor:
    return STATE.device_generator().get_state()


def _set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    STATE.device_generator().set_state(new_state)


def _manual_seed(seed: int) -> None:
    STATE.device_generator().manual_seed(int(seed))


def _returning(value: Any) -> Callable[..., Any]:
    """A function of its own for each name: torch._dynamo, imported later, insists that they differ."""

    def function(*_: Any, **__: Any) -> Any:
        return value

    return function


def replacements(profile: DeviceProfile) -> dict[str, Any]:
    """Name in ``torch.cuda`` and what stands in for it."""
    major, minor = profile.compute_capability
    total_bytes = int(profile.memory_gib * _BYTES_PER_GIB)
    properties = SimpleNamespace(
        name=profile.name,
        major=major,
        minor=minor,
        total_memory=total_bytes,
        multi_processor_count=profile.sm_count,
        warp_size=32,
    )
    memory: dict[str, Any] = {
        name: _returning(0)
        for name in (
            "memory_allocated",
            "max_memory_allocated",
            "memory_reserved",
            "max_memory_reserved",
            "device_memory_used",
        )
    }
    return memory | {
        "current_device": lambda: DEVICE_INDEX,
        "device_count": lambda: 1,
        "is_initialized": lambda: True,
        "init": _returning(None),
        "set_device": _returning(None),
        "device": _DeviceContext,
        "device_of": type("device_of", (_DeviceContext,), {}),
        "get_device_name": lambda device=None: profile.name,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_properties": lambda device=None: properties,
        "is_bf16_supported": lambda including_emulation=True: True,
        "synchronize": lambda device=None: note_wait("device_sync", "torch.cuda.synchronize"),
        "Stream": Stream,
        "ExternalStream": type("ExternalStream", (Stream,), {}),
        "Event": Event,
        "stream": _stream,
        "set_stream": _set_stream,
        "current_stream": _current_stream,
        "default_stream": _the_default_stream,
        "is_current_stream_capturing": lambda: False,
        "default_generators": (STATE.device_generator(),),
        "get_rng_state": _get_rng_state,
        "get_rng_state_all": lambda: [_get_rng_state()],
        "set_rng_state": _set_rng_state,
        "set_rng_state_all": lambda states: _set_rng_state(next(iter(states))),
        "manual_seed": _manual_seed,
        "manual_seed_all": lambda seed: STATE.device_generator().manual_seed(int(seed)) and None,
        "initial_seed": lambda: STATE.device_generator().initial_seed(),
        "seed": lambda: STATE.device_generator().seed() and None,
        "seed_all": lambda: STATE.device_generator().seed() and None,
        "empty_cache": _returning(None),
        "ipc_collect": _returning(None),
        "reset_peak_memory_stats": _returning(None),
        "reset_accumulated_memory_stats": _returning(None),
        "reset_max_memory_allocated": _returning(None),
        "memory_stats": lambda device=None: _Zeros(),
        "mem_get_info": lambda device=None: (total_bytes, total_bytes),
    }


class _Zeros(dict[str, int]):
    """Memory statistics of a device without an allocator."""

    def __missing__(self, key: str) -> int:
        return 0
