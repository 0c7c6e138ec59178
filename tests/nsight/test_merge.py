"""What a capture adds to the results of its run: detector ``nsys``, and times of syncs, from the timed steps alone."""

from __future__ import annotations

import pytest

from mtp_bench.nsight.merge import merge
from mtp_bench.nsight.steps import Steps, StepSync, TimedSteps, read_steps
from tests import runs
from tests.nsight.captures import DTOH, MARK, CaptureFile

STEP = ("run", "workload:packed-sft", "variant:patched", "step")
MTP_LOSS = (*STEP, "forward", "mtp_loss", "depth:1")
STAGE = "time at lead 1 ms"


class Timeline:
    """A capture of a run on one workload and variant, one microsecond at a time."""

    def __init__(self):
        self.capture = CaptureFile()
        self.main = self.capture.thread(100)
        self.backward = self.capture.thread(100, 101)
        self.capture.domain(100, 1, "mtp_bench")
        self.at = 0

    def mark(self, text):
        self.at += 1_000
        self.capture.row("NVTX_EVENTS", start=self.at, eventType=MARK, text=text, globalTid=self.main.tid, domainId=1)

    def step(self, *syncs):
        """A step of 100 us, with ``syncs``: functions of the time at which they may begin."""
        start = self.at = self.at + 1_000
        self.main.range(start, start + 100_000, "step", domain=1)
        self.main.push(start + 1_000, start + 50_000, "forward", domain=1)
        self.main.push(start + 2_000, start + 40_000, "mtp_loss", domain=1)
        self.main.push(start + 3_000, start + 30_000, "depth:1", domain=1)
        self.main.range(start + 60_000, start + 90_000, "backward", domain=1)
        for sync in syncs:
            sync(self, start)
        self.at = start + 100_000

    def read(self, tmp_path):
        end = self.at + 1_000
        self.main.range(0, end, "run", domain=1)
        self.main.push(1, end, "workload:packed-sft", domain=1)
        self.main.push(2, end, "variant:patched", domain=1)
        return read_steps(self.capture.write(tmp_path / "capture.sqlite"))


def read_scalar(timeline, start):
    """A blocking copy of 4 us in depth:1; the device idles 2 us after it."""
    timeline.capture.kernel(start + 5_000, start + 9_000)
    timeline.main.blocking_copy(start + 6_000, start + 10_000, DTOH, on_device=(start + 9_000, start + 9_500))
    timeline.capture.kernel(start + 11_500, start + 12_000)


def wait_in_backward(timeline, start):
    """A wait of 1 us on a thread of autograd's."""
    timeline.backward.sync(start + 70_000, start + 71_000)


def test_steps_are_counted_by_stage_and_hold_the_syncs_of_all_threads(tmp_path):
    timeline = Timeline()
    timeline.mark("stage: syncs")
    timeline.step(read_scalar)
    timeline.mark(f"stage: {STAGE}")
    timeline.step(read_scalar, wait_in_backward)
    timeline.step(read_scalar, wait_in_backward)
    found = timeline.read(tmp_path)
    assert {key[2]: steps.count for key, steps in found.steps.items()} == {"syncs": 1, STAGE: 2}
    steps = found.steps["packed-sft", "patched", STAGE]
    assert [(sync.range, sync.kind, sync.blocked_ns) for sync in steps.syncs] == [
        (MTP_LOSS, "dtoh", 3_999),  # 10 ns in the copy, and from 11 ns on in the synchronisation
        (MTP_LOSS, "dtoh", 3_999),
        ((*STEP, "backward"), "stream_sync", 1_000),
        ((*STEP, "backward"), "stream_sync", 1_000),
    ]
    assert [end - begin for begin, end in (sync.gap for sync in steps.syncs[:2])] == [2_000, 2_000]
    assert (found.nsys, found.has_cuda) == ("2026.2.1.210", True)


def test_a_capture_without_cuda_has_steps_and_no_syncs(tmp_path):
    timeline = Timeline()
    timeline.mark(f"stage: {STAGE}")
    timeline.step()
    found = timeline.read(tmp_path)
    assert not found.has_cuda
    assert found.steps == {("packed-sft", "patched", STAGE): Steps(1, [])}


def captured(*syncs, count=2):
    return TimedSteps("2026.2.1.210", True, {("packed-sft", "patched", STAGE): Steps(count, [*syncs])})


def sync(path=MTP_LOSS, kind="dtoh", blocked_ns=4_000, gap=None):
    return StepSync(tuple(path), kind, blocked_ns, gap)


def gpu_run(*sites, **changes):
    syncs = runs.syncs(*sites).model_copy(update={"detectors": {"torch": sum(site.count for site in sites)}})
    found = runs.result(
        "patched", device="cuda:0", syncs=syncs, time=runs.time(1.0, modelled=False, profiled=True), **changes
    )
    return runs.run([found], environment=runs.environment(device=runs.GPU))


def gpu_site(count=1, line=40, **changes):
    return runs.site(count, line, **{"range": [*MTP_LOSS], "seen_by": ["torch"], **changes})


def test_nsys_becomes_a_detector_with_times_of_a_step():
    run = gpu_run(gpu_site())
    merged = merge(run, captured(sync(blocked_ns=3_000, gap=(10, 1_010)), sync(blocked_ns=5_000, gap=(20, 2_020))))
    found = merged.results[0].syncs
    assert found.detectors == {"torch": 1, "nsys": 1}
    assert (found.count, found.agreed, found.blocked_ns, found.device_idle_ns) == (1, True, 4_000, 1_500)
    (site,) = found.sites
    assert (site.seen_by, site.blocked_ns, site.device_idle_ns) == (["nsys", "torch"], 4_000, 1_500)
    assert merged.environment.packages["nsight-systems"] == "2026.2.1.210"
    assert merged.results[0].warnings == []


def test_a_gap_that_syncs_share_counts_once():
    merged = merge(gpu_run(gpu_site(2)), captured(*[sync(gap=(10, 1_010))] * 2, count=1))
    assert merged.results[0].syncs.device_idle_ns == 1_000


def test_lines_that_share_a_range_are_both_seen_but_share_no_times():
    merged = merge(gpu_run(gpu_site(2, line=247), gpu_site(1, line=251)), captured(*[sync()] * 3, count=1))
    found = merged.results[0].syncs
    assert (found.agreed, found.blocked_ns) == (True, 12_000)
    assert [(site.seen_by, site.blocked_ns) for site in found.sites] == [(["nsys", "torch"], None)] * 2


@pytest.mark.parametrize("kind", ["item", "dynamic_shape", "data_dependent", "dtoh"])
def test_what_pytorch_waits_in_is_a_copy_to_the_host_for_a_capture(kind):
    assert merge(gpu_run(gpu_site(kind=kind)), captured(*[sync()] * 2)).results[0].syncs.agreed


def test_where_they_differ_it_is_said_where_and_the_sites_stay():
    in_backward = sync((*STEP, "backward"), "stream_sync")
    merged = merge(gpu_run(gpu_site(2)), captured(*[sync()] * 3, in_backward, count=1))
    found = merged.results[0]
    assert found.syncs.detectors == {"torch": 2, "nsys": 4}
    assert not found.syncs.agreed
    assert found.syncs.sites == [gpu_site(2)]
    assert found.warnings == [
        "stream_sync a step in step > backward: nsys saw 1, the other detectors 0",
        "dtoh a step in step > forward > mtp_loss > depth:1: nsys saw 3, the other detectors 2",
    ]


def test_a_number_that_varies_between_steps_is_a_warning():
    merged = merge(gpu_run(gpu_site()), captured(*[sync()] * 5, count=4))
    assert merged.results[0].warnings == ["syncs vary between steps: nsys saw 5 in 4 steps"]
    assert merged.results[0].syncs.detectors["nsys"] == 1


@pytest.mark.parametrize(
    ("of_capture", "why"),
    [
        (TimedSteps("2026.2", False, {}), "it recorded no CUDA call"),
        (TimedSteps("2026.2", True, {}), "no timed step is in its capture"),
        (TimedSteps("2026.2", True, {("packed-sft", "patched", "syncs"): Steps(1)}), "no timed step is in its capture"),
    ],
)
def test_what_nsys_cannot_tell_is_no_zero(of_capture, why):
    found = merge(gpu_run(gpu_site()), of_capture).results[0]
    assert found.syncs.detectors == {"torch": 1, "nsys": None}
    assert (found.syncs.agreed, found.syncs.blocked_ns, found.syncs.sites) == (True, None, [gpu_site()])
    assert found.warnings == [f"nsys cannot tell the syncs: {why}"]


def test_a_simulated_device_makes_no_cuda_call():
    found = merge(runs.run([runs.result("patched")]), TimedSteps("2022.4", False, {})).results[0]
    assert found.warnings == ["nsys cannot tell the syncs: a simulated device makes no CUDA call"]


def test_results_that_were_not_timed_stay_as_they_are():
    failed = runs.result("patched", status="failed", error="no", syncs=None, time=None)
    assert merge(runs.run([failed]), captured()).results == [failed]
