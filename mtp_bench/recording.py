"""``record_syncs``: the host-device syncs of any code, on a simulated device or a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mtp_bench.devices import resolve
from mtp_bench.syncs import Sync


@contextmanager
def record_syncs(device: str = "auto") -> Iterator[list[Sync]]:
    """Collect the syncs of the code inside, in order.

    On ``sim`` the device named ``sim`` exists inside, and ``cuda`` means it. Raises InputError where the device cannot
    be had: ``cuda`` without a GPU, or ``sim`` and ``cuda`` in one process.
    """
    chosen = resolve(device)
    with chosen.session(), chosen.record_syncs() as syncs:
        yield syncs
