"""One session of the simulated device for a whole module: setting Megatron's state up takes longer than a case."""

from __future__ import annotations

import pytest

from mtp_bench.devices import resolve
from mtp_bench.megatron import isolated_state


@pytest.fixture(scope="module")
def sim():
    device = resolve("sim")
    with device.session(), isolated_state(device):
        yield device
