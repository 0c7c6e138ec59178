import pytest

from mtp_bench.devices.sim import SimDevice


@pytest.fixture
def sim():
    """A simulated H100, in a session of its own."""
    device = SimDevice.from_spec("h100")
    with device.session():
        yield device
