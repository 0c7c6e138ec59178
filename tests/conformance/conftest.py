"""One session of the simulated device for all tests of a module: Megatron's state takes longer to set up than a case."""

from __future__ import annotations

import pytest

from mtp_bench.devices import resolve
from mtp_bench.megatron import isolated_state


@pytest.fixture(scope="module")
def sim():
    device = resolve("sim")
    with device.session(), isolated_state(device):
        yield device
