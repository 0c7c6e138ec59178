"""NVTX paths of syncs: nesting per thread, domains, process-wide ranges, and threads that work inside those."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtp_bench.nsight import read_capture
from mtp_bench.nsight.model import CapturedRange, RangeName
from mtp_bench.nsight.ranges import Span, stacks
from tests.nsight.captures import HTOD, PINNED, CaptureFile


@pytest.fixture
def capture():
    return CaptureFile()


@pytest.fixture
def main(capture):
    """The main thread of process 100."""
    return capture.thread(100)


@pytest.fixture
def read(capture, tmp_path):
    def call(**options):
        path = tmp_path / "capture.sqlite"
        path.unlink(missing_ok=True)
        return read_capture(capture.write(path), **options)

    return call


def paths(found):
    """The path of each sync, the longest blocked first."""
    return [" > ".join(name.text for name in row.range) for row in found.syncs]


def test_push_and_pop_nest(main, read):
    main.push(0, 1000, "step")
    main.push(10, 500, "forward")
    main.push(20, 100, "embedding")
    main.sync(30, 90)
    main.sync(200, 240)
    main.sync(600, 620)
    main.sync(1000, 1010)
    assert paths(read()) == ["step > forward > embedding", "step > forward", "step", ""]


def test_each_thread_has_its_own(capture, main, read):
    main.push(0, 100, "main")
    other = capture.thread(100, 101)
    other.push(0, 100, "loader")
    other.sync(10, 50)
    main.sync(10, 20)
    capture.thread(100, 102).sync(10, 12)
    capture.thread(200).sync(10, 11)
    assert paths(read()) == ["loader", "main", "", ""]


def test_names_of_operators_go_without_the_numbers_of_the_call(main, read):
    main.push(0, 1000, "aten::to, seq = 45328, op_id = 990724")
    main.push(5, 900, "FSDP::post_forward (encoder, block 1), op_id = 320410")
    main.push(10, 500, "aten::copy_, op_id = 7, sizes = [[2, 3], []]")
    main.sync(30, 90)
    (row,) = read().syncs
    assert [name.text for name in row.range] == ["aten::to", "FSDP::post_forward (encoder, block 1)", "aten::copy_"]
    assert row.op == "aten::copy_"


def test_texts_may_be_registered_strings(main, read):
    main.push(0, 100, "step", registered=True)
    main.sync(10, 20)
    assert paths(read()) == ["step"]


def test_ranges_of_several_domains_nest_in_time(capture, main, read):
    capture.domain(100, 1, "mtp_bench")
    main.push(0, 100, "step")
    main.push(1, 90, "mtp_loss", domain=1)
    main.push(2, 80, "ncclSend", domain=2)
    main.sync(10, 20)
    (row,) = read().syncs
    assert row.range == (RangeName("", "step"), RangeName("mtp_bench", "mtp_loss"), RangeName("domain 2", "ncclSend"))


def test_domains_are_numbered_by_process(capture, read):
    capture.domain(100, 1, "mtp_bench")
    capture.domain(200, 1, "NCCL")
    for process in (100, 200):
        thread = capture.thread(process)
        thread.push(0, 100, "x", domain=1)
        thread.sync(10, 20 + process)
    found = read()
    assert [row.range[0].domain for row in found.syncs] == ["NCCL", "mtp_bench"]
    assert found.ranges == (CapturedRange(100, ("x",), 1, 100),)


def test_a_process_wide_range_is_around_every_thread(capture, main, read):
    main.range(0, 100, "step")
    main.sync(10, 50)
    capture.thread(100, 101).sync(10, 30)
    capture.thread(200).sync(10, 20)
    assert paths(read()) == ["step", "step", ""]


def test_worker_threads_are_inside_of_what_the_process_wide_range_is_in(capture, main, read):
    """As mtp-bench's own ranges are: backward runs on autograd's threads."""
    main.range(0, 1000, "run")
    main.push(10, 900, "variant:patched")
    main.range(20, 800, "step")
    main.push(30, 200, "forward")
    main.range(300, 700, "backward")
    worker = capture.thread(100, 101)
    worker.push(310, 600, "autograd::engine::evaluate_function")
    worker.sync(320, 420)
    worker.sync(650, 690)
    main.sync(320, 350)
    worker.sync(100, 120)
    worker.sync(910, 920)
    assert paths(read()) == [
        "run > variant:patched > step > backward > autograd::engine::evaluate_function",
        "run > variant:patched > step > backward",
        "run > variant:patched > step > backward",
        "run > variant:patched > step",
        "run",
    ]


def test_a_thread_with_work_of_its_own_does_not_inherit(capture, main, read):
    loader = capture.thread(100, 101)
    main.push(0, 1000, "step")
    loader.push(0, 1000, "loader")
    loader.range(100, 500, "fetch")
    main.sync(200, 300)
    assert paths(read()) == ["step > fetch"]


def test_a_range_that_the_capture_does_not_see_end_is_still_open(main, read):
    main.push(0, None, "step")
    main.sync(10, 20)
    assert paths(read()) == ["step"]


def test_ranges_of_the_own_domain_are_counted_by_path(capture, main, read):
    capture.domain(100, 1, "mtp_bench")
    main.range(0, 1000, "run", domain=1)
    main.push(10, 900, "other")
    for start in (100, 300):
        main.range(start, start + 100, "step", domain=1)
        main.push(start + 10, start + 40, "forward", domain=1, registered=True)
    main.push(500, None, "forward", domain=1)
    assert read().ranges == (
        CapturedRange(100, ("run",), 1, 1000),
        CapturedRange(100, ("run", "step"), 2, 200),
        CapturedRange(100, ("run", "step", "forward"), 2, 60),
        CapturedRange(100, ("run", "forward"), 1, 0),
    )


@pytest.mark.parametrize(
    ("glob", "counts"),
    [
        ("forward", 1),
        ("forw*", 1),
        ("step", 2),
        ("step > forward", 1),
        ("*@mtp_bench", 1),
        ("step@mtp_bench", 0),
        ("Step", 0),
        ("*", 3),
    ],
)
def test_a_glob_keeps_what_is_inside_a_range(capture, main, read, glob, counts):
    capture.domain(100, 1, "mtp_bench")
    main.push(0, 500, "step")
    main.push(10, 200, "forward", domain=1)
    main.sync(20, 40)
    main.sync(300, 310)
    main.sync(600, 605)
    assert read(range_glob=glob).totals.stream_sync == counts


@pytest.mark.parametrize(
    ("glob", "known"), [("forward", True), ("step > aten::a[!b]d", True), ("forw", False), ("step > backward", False)]
)
def test_a_glob_that_is_no_range_is_said(capture, main, read, glob, known):
    """Nothing in a range that is there is an answer; nothing in one that is not may be a slip of the keyboard."""
    main.push(0, 500, "step")
    main.push(10, 20, "forward", registered=True)
    main.push(30, 40, "aten::add, op_id = 3")
    main.sync(600, 605)
    found = read(range_glob=glob)
    assert found.totals.syncs == 0
    assert (f"no range like {glob!r} is in the capture" in found.missing) != known


def test_a_glob_narrows_everything(capture, main, read):
    main.push(0, 100, "load")
    main.push(200, 300, "train")
    for start in (10, 210):
        main.copy(start, start + 5, HTOD, PINNED)
        main.sync(start + 20, start + 25, type=1, api="cudaEventQuery_v3020")
        main.sync(start + 30, start + 35, type=2, api="cudaStreamWaitEvent_v3020")
    found = read(range_glob="train")
    assert (found.totals.htod, found.not_syncs.event_query, found.not_syncs.stream_wait) == (1, 1, 1)


@given(
    spans=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=10),
    times=st.lists(st.integers(0, 50), max_size=8),
)
def test_the_ranges_around_a_moment_are_those_that_hold_it_the_earliest_first(spans, times):
    made = [
        Span(start, start, start + length, 1, RangeName("", str(number)))
        for number, (start, length) in enumerate(spans)
    ]
    made.sort(key=lambda span: (span.start, -span.until))
    found = dict(stacks(made, times))
    assert found == {at: [span for span in made if span.start <= at < span.until] for at in times}
