"""What the running session of the simulated device knows: the size limit, who records, the random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from mtp_bench.devices.sim.profile import DeviceProfile
    from mtp_bench.devices.sim.recorder import Recorder

SHAPE_ONLY_ABOVE = 2**20  # elements


class SimState:
    """One for the process, since PyTorch registers one PrivateUse1 device for the process and for good."""

    def __init__(self) -> None:
        self.registered = False
        self.sessions = 0  # how many sessions are open (they nest)
        self.profile: DeviceProfile | None = None  # of the outermost open session
        self.limit: float = SHAPE_ONLY_ABOVE  # elements above which a new tensor is shape-only
        self.recorder: Recorder | None = None
        self.deferred: BaseException | None = None  # raised by an operation of a running backward
        self.generator: torch.Generator | None = None

    def take_deferred(self) -> BaseException:
        """The error that a running backward had to keep; it is handed out once."""
        error, self.deferred = self.deferred, None
        assert error is not None
        return error

    def device_generator(self) -> torch.Generator:
        """The device's random numbers, apart from the host's."""
        if self.generator is None:
            import torch

            self.generator = torch.Generator().manual_seed(torch.initial_seed())
        return self.generator


STATE = SimState()
