import pytest

from mtp_bench.devices.sim import SimDevice


@pytest.fixture
def sim():
    """A simulated H100, in a session of its own."""
    device = SimDevice.from_spec("h100")
    with device.session():
        yield device


@pytest.fixture
def device():
    """The simulated device with Megatron's groups; an experiment that a failed test has left is ended."""
    from mtp_bench.ab import Experiment
    from tests.ab import planted, training

    planted.calls.clear()
    with training.simulated() as device:
        yield device
        if Experiment.running is not None:
            Experiment.running.stop()
