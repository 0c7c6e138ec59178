"""`mtp_bench.check` on the CUDA build of PyTorch: the lines that wait are those that the simulated device names."""

from __future__ import annotations

import pytest

import mtp_bench

VARIANTS = ("original", "patched", "sync_free", "host_lens", "boundary_roll", "exact", "megatron")
# Not no-sync-empty: a runtime that computes nothing has no count of 0, so the branch for it is not taken.
CASES = ("no-sync", "no-sync-packed")


def syncs(device):
    report = mtp_bench.check(VARIANTS, CASES, device, ranks=False)
    return {(result.variant, result.case.id): result.observed["syncs"] for result in report.results}


@pytest.fixture(scope="module")
def on_cuda():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTCUDA_READS", "1")
        return syncs("cuda")


def test_the_lines_that_wait_are_those_of_sim(on_cuda):
    on_sim = syncs("sim")
    assert len(on_sim["patched", "no-sync-packed"]) == 3
    assert on_cuda == on_sim
