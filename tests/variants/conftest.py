"""Megatron's state for the whole module: setting it up a few hundred times takes longer than the tests."""

from __future__ import annotations

import pytest

from mtp_bench.megatron import HostPlace, isolated_state


@pytest.fixture(scope="module")
def on_host():
    with isolated_state(HostPlace()):
        yield HostPlace()
