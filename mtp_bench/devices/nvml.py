"""What NVML says of a GPU between windows: clock, throttling, driver. Nothing where NVML is absent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Clock:
    """State of the GPU right after a window. ``sm_mhz`` is None where it is not known."""

    sm_mhz: int | None = None
    throttled: bool = False


class Nvml:
    """One GPU, or none of which anything is known."""

    def __init__(self, library: Any = None, handle: Any = None) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def of(cls, index: int) -> Nvml:
        """The GPU that PyTorch calls ``index``, found by its UUID: CUDA_VISIBLE_DEVICES renumbers, NVML does not."""
        import torch

        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = str(torch.cuda.get_device_properties(index).uuid)
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode()))
        except Exception:  # not installed, no driver, no such device, an error class of pynvml: no clocks then
            return cls()

    @property
    def driver_version(self) -> str | None:
        """Such as ``570.86.15``."""
        version: str | bytes | None = self._ask(lambda nvml: nvml.nvmlSystemGetDriverVersion())
        return version.decode() if isinstance(version, bytes) else version

    def clock(self) -> Clock:
        """Read the SM clock, and whether heat, power supply or hardware slow it down.

        The software power cap is not counted as throttling: a GPU under heavy load runs at it, and the clock shows it.
        """
        mhz = self._ask(lambda nvml: nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM))
        return Clock(mhz, bool(self._ask(self._slowed)))

    def _slowed(self, nvml: Any) -> bool:
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        return bool(
            reasons
            & (
                nvml.nvmlClocksThrottleReasonHwSlowdown
                | nvml.nvmlClocksThrottleReasonSwThermalSlowdown
                | nvml.nvmlClocksThrottleReasonHwThermalSlowdown
                | nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
            )
        )

    def _ask(self, question: Any) -> Any:
        if self._library is None:
            return None
        try:
            return question(self._library)
        except self._library.NVMLError:  # each question may be unsupported on a GPU or in a container
            return None
