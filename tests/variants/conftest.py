"""Megatron's state for the whole module: setting it up a few hundred times takes longer than the tests."""

from __future__ import annotations

import pytest

from mtp_bench.devices.sim import SimDevice
from mtp_bench.megatron import HostPlace, isolated_state


@pytest.fixture(scope="module")
def on_host():
    with isolated_state(HostPlace()):
        yield HostPlace()


@pytest.fixture(scope="module")
def on_sim():
    device = SimDevice.from_spec("h100")
    with device.session(), isolated_state(device):
        yield device


@pytest.fixture(scope="module", params=["on_host", "on_sim"])
def place(request):
    """The plain CPU, then the simulated device, each in turn for all tests of the module that ask for a place."""
    return request.getfixturevalue(request.param)
