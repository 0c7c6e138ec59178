"""A run that Nsight Systems watches, on ``cuda``: as few windows as its capture needs, and all in one process."""

import pytest

import mtp_bench


@pytest.fixture(scope="module")
def run():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTCUDA_KERNEL_NS", "20000")
        patch.setenv("HOSTCUDA_GEMM_NS", "20000")
        patch.setenv("HOSTCUDA_READS", "1")
        patch.setenv("NSYS_PROFILING_SESSION_ID", "105378")
        patch.setenv("MTP_BENCH_CAPTURE_RANGE", "cudaProfilerApi")
        small = ("hidden_size=64", "vocab_size=512", "sequences=[512, 37, 1, 100]")
        return mtp_bench.run(["packed-sft"], ["patched"], "cuda", set=small, leads_ms=[0.0], values="shape")


def test_it_is_timed_as_profiled_in_five_windows(run):
    (result,) = run.results
    assert (result.status, result.error) == ("ok", None)
    assert (result.time.profiled, len(result.time.step_ns), result.time.stop_reason) == (True, 5, "profiled")


def test_its_syncs_are_those_of_any_run(run):
    (result,) = run.results
    assert result.syncs.detectors == {"torch": 33}
