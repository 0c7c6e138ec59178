"""Windows that have been measured: fixed memory that the job's thread fills and the writer's thread reads."""

from __future__ import annotations

import math
from array import array

import torch

from mtp_bench.devices.nvml import Clock, Nvml
from mtp_bench.results import Time

MAX_WINDOWS = 10_000  # what a run of ab keeps in memory and in its file: some 600 KB
_MEASURED = 1


class Measured:
    """At most ``windows`` windows, numbered from 0, on the GPU ``device`` or on the simulated one."""

    def __init__(self, device: torch.device, windows: int, *, modelled: bool) -> None:
        assert 1 <= windows <= MAX_WINDOWS
        self.last = windows - 1
        self._modelled = modelled
        self._device = device
        self._nvml: Nvml | None = None
        self._state = bytearray(windows)
        self._variant, self._round, self._sm_mhz, self._throttled = (array("q", bytes(8 * windows)) for _ in range(4))
        self._step_ns, self._host_ns, self._lead_ns, self._loss_ns = (array("d", bytes(8 * windows)) for _ in range(4))
        self._ended = self._sampled = 0  # windows before these have ended, and have a clock

    def begin(self, number: int, variant: int, round_number: int) -> None:
        """A window begins, and those before it have ended."""
        self._variant[number], self._round[number] = variant, round_number
        self._ended = number

    def end(self, number: int) -> None:
        """No window begins after this one."""
        self._ended = number + 1

    def keep(self, number: int, *, step_ns: float, host_ns: float, lead_ns: float, loss_ns: float) -> None:
        """What a window has come to; NaN where it is not known."""
        self._step_ns[number], self._host_ns[number] = step_ns, host_ns
        self._lead_ns[number], self._loss_ns[number] = lead_ns, loss_ns
        self._state[number] = _MEASURED  # last: from now on the other thread reads it

    def sample_clock(self) -> None:
        """Ask NVML for the clock, for the windows that have ended since it was last asked. The writer's thread does."""
        ended = self._ended
        if self._sampled >= ended:
            return
        clock = self._ask_clock()
        for number in range(self._sampled, ended):
            self._sm_mhz[number], self._throttled[number] = clock.sm_mhz or 0, clock.throttled
        self._sampled = ended

    def times(self, variant: int) -> Time | None:
        """The windows of a variant in order; None while there are none. Any thread may ask."""
        measured = bytes(self._state)
        numbers = [n for n, state in enumerate(measured) if state == _MEASURED and self._variant[n] == variant]
        if not numbers:
            return None
        loss_ns = [_known(self._loss_ns[number]) for number in numbers]
        return Time(
            modelled=self._modelled,
            step_ns=[self._step_ns[number] for number in numbers],
            round=[self._round[number] for number in numbers],
            host_ns=[self._host_ns[number] for number in numbers],
            lead_ns=[_known(self._lead_ns[number]) for number in numbers],
            loss_ns=loss_ns if any(value is not None for value in loss_ns) else None,
            sm_clock_mhz=[self._sm_mhz[number] or None for number in numbers],
            throttled=[bool(self._throttled[number]) for number in numbers],
        )

    def _ask_clock(self) -> Clock:
        if self._modelled:
            return Clock()
        if self._nvml is None:
            self._nvml = Nvml.of(self._device.index)
        return self._nvml.clock()


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
