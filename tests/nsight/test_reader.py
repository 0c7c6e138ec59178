"""What the reader finds in a capture: which calls waited, with which copy, how long, and what the device lost."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtp_bench.nsight import read_capture
from mtp_bench.nsight.idle import Timeline
from mtp_bench.nsight.model import CapturedCopy, CapturedSync, NotSyncs, RangeName, Totals
from tests.nsight.captures import (
    CONTEXT,
    DTOD,
    DTOH,
    EVENT,
    HTOD,
    PINNED,
    STREAM_WAIT,
    CaptureFile,
)


@pytest.fixture
def capture():
    return CaptureFile()


@pytest.fixture
def main(capture):
    """The main thread of process 100."""
    return capture.thread(100)


@pytest.fixture
def read(capture, tmp_path):
    """Write the capture and read it."""
    numbers = itertools.count()

    def call(without=None, shuffle=False, **options):
        path = capture.write(tmp_path / f"{next(numbers)}.sqlite", without, shuffle)
        return read_capture(path, **options)

    return call


def kinds(found):
    """Kind, call and number of the rows, in the order of time blocked."""
    return [(row.kind, row.api, row.count) for row in found.syncs]


def test_a_copy_and_its_synchronisation_are_one_sync(main, read):
    main.copy(1000, 1300, DTOH, bytes=4)
    main.sync(1310, 1400)
    assert read().syncs == (
        CapturedSync(
            process=100,
            thread=100,
            device=0,
            range=(),
            api="cudaStreamSynchronize",
            copy_api="cudaMemcpyAsync",
            kind="dtoh",
            op=None,
            site=None,
            stack=(),
            pageable=True,
            bytes=4,
            count=1,
            blocked_ns=390,
            copy_ns=300,
            device_idle_ns=None,
        ),
    )


def test_totals_count_calls_and_copies_as_the_capture_has_them(main, read):
    main.blocking_copy(0, 100, DTOH)
    main.blocking_copy(200, 250, HTOD, PINNED)
    main.sync(300, 310)
    main.sync(320, 340, type=CONTEXT, api="cudaDeviceSynchronize_v3020")
    main.sync(350, 390, type=EVENT, api="cudaEventSynchronize_v3020")
    main.copy(400, 405, HTOD, PINNED)
    found = read()
    assert found.totals == Totals(
        stream_sync=3,
        device_sync=1,
        event_sync=1,
        dtoh=1,
        htod=2,
        dtoh_pageable=1,
        htod_pageable=0,
        syncs=5,
        blocked_ns=10 + 89 + 10 + 39 + 10 + 20 + 40,
        copy_ns=20,
        device_idle_ns=190 + 190,
    )
    assert [(row.kind, row.count) for row in found.syncs] == [
        ("dtoh", 1),
        ("htod", 1),
        ("event_sync", 1),
        ("device_sync", 1),
        ("stream_sync", 1),
    ]


def test_a_kernel_launched_in_between_parts_them(main, read):
    main.copy(0, 10, HTOD, PINNED)
    main.launch(20, 30, kernel=(40, 60))
    main.sync(40, 70)
    assert kinds(read()) == [("stream_sync", "cudaStreamSynchronize", 1)]


def test_calls_that_give_the_device_nothing_do_not_part_them(main, read):
    main.copy(0, 10, HTOD, PINNED)
    main.call("cudaStreamIsCapturing_v10000", 12, 14)
    main.sync(15, 70)
    assert kinds(read()) == [("htod", "cudaStreamSynchronize", 1)]


def test_only_the_last_of_several_copies_is_the_synchronisations(main, read):
    for start in (0, 10, 20):
        main.copy(start, start + 5, DTOH, PINNED)
    main.sync(30, 90)
    found = read()
    assert [(row.kind, row.count, row.blocked_ns, row.bytes) for row in found.syncs] == [("dtoh", 1, 65, 8)]
    assert [(row.count, row.blocking) for row in found.copies] == [(3, 1)]


@pytest.mark.parametrize("other", ["stream", "thread", "process", "range"])
def test_a_copy_elsewhere_is_not_the_synchronisations(capture, main, read, other):
    copying, stream = main, 7
    if other == "stream":
        stream = 13
    elif other == "thread":
        copying = capture.thread(100, 101)
    elif other == "process":
        copying = capture.thread(200)
    else:
        main.push(0, 12, "load")
    copying.copy(5, 10, HTOD, PINNED, stream=stream)
    main.sync(15, 70)
    assert kinds(read()) == [("stream_sync", "cudaStreamSynchronize", 1)]


def test_copies_of_pageable_memory_wait_in_their_own_call(main, read):
    main.copy(0, 100, DTOH)
    main.copy(200, 250, HTOD)
    main.copy(300, 400, DTOH, PINNED)
    main.copy(500, 600, HTOD, PINNED)
    assert kinds(read()) == [("dtoh", "cudaMemcpyAsync", 1), ("htod_pageable_async", "cudaMemcpyAsync", 1)]


@pytest.mark.parametrize(
    ("api", "kind"),
    [("cudaMemcpy_v3020", DTOH), ("cuMemcpyDtoH_v2", DTOH), ("cudaMemcpy2D_v3020", DTOH), ("cuMemcpyHtoD_v2", HTOD)],
)
def test_copies_that_are_not_async_wait_whatever_the_memory(main, read, api, kind):
    main.copy(0, 100, kind, PINNED, api=api)
    direction = {DTOH: "dtoh", HTOD: "htod"}[kind]
    assert kinds(read()) == [(direction, api.removesuffix("_v3020"), 1)]


def test_copies_within_the_device_do_not_wait(main, read):
    main.copy(0, 100, DTOD, api="cudaMemcpy_v3020")
    found = read()
    assert (found.syncs, found.copies) == ((), ())


@pytest.mark.parametrize(
    ("api", "type", "kind"),
    [
        ("cudaStreamSynchronize_v3020", 3, "stream_sync"),
        ("cudaStreamSynchronize_ptsz_v7000", 3, "stream_sync"),
        ("cuStreamSynchronize", 3, "stream_sync"),
        ("cudaDeviceSynchronize_v3020", CONTEXT, "device_sync"),
        ("cuCtxSynchronize", CONTEXT, "device_sync"),
        ("cudaEventSynchronize_v3020", EVENT, "event_sync"),
        ("cuEventSynchronize", EVENT, "event_sync"),
        ("cudaFree_v3020", CONTEXT, "device_sync"),
        ("cuModuleUnload", 3, "stream_sync"),
        ("cudaEventQuery_v3020", EVENT, None),
        ("cuEventQuery", EVENT, None),
        ("cudaStreamQuery_v3020", 3, None),
        ("cudaStreamWaitEvent_v3020", STREAM_WAIT, None),
    ],
)
def test_the_call_behind_a_record_decides_its_kind(main, read, api, type, kind):
    main.sync(0, 50, type=type, api=api)
    assert [(row.kind, row.blocked_ns) for row in read().syncs] == ([] if kind is None else [(kind, 50)])


def test_queries_and_stream_waits_are_counted_apart(main, read):
    for start in (0, 10, 20):
        main.sync(start, start + 5, type=EVENT, api="cudaEventQuery_v3020")
    main.sync(30, 35, type=STREAM_WAIT, api="cudaStreamWaitEvent_v3020")
    found = read()
    assert (found.not_syncs, found.totals.syncs) == (NotSyncs(event_query=3, stream_wait=1), 0)


def test_a_driver_call_inside_a_runtime_call_waits_once(capture, main, read):
    main.call("cudaMemcpy_v3020", 0, 100)
    main.copy(10, 90, DTOH, PINNED, api="cuMemcpyDtoH_v2")
    main.call("cudaStreamSynchronize_v3020", 200, 320)
    main.sync(210, 290, api="cuStreamSynchronize")
    found = read()
    assert [(row.kind, row.api, row.blocked_ns) for row in found.syncs] == [
        ("stream_sync", "cudaStreamSynchronize", 120),
        ("dtoh", "cudaMemcpy", 100),
    ]
    assert found.totals.stream_sync == 1


def test_records_without_a_call_give_what_they_can(capture, read):
    for correlation, (type, end) in enumerate([(3, 30), (CONTEXT, 40), (EVENT, 50), (STREAM_WAIT, 60)]):
        capture.device_work("SYNCHRONIZATION", 10, end, 100, correlationId=correlation, syncType=type)
    capture.device_work("MEMCPY", 10, 20, 100, correlationId=9, bytes=8, copyKind=HTOD, srcKind=0, dstKind=2)
    capture.thread(100).call("cudaGetDevice_v3020", 0, 1, correlation=50)
    found = read()
    assert [(row.kind, row.api, row.thread, row.blocked_ns) for row in found.syncs] == [
        ("device_sync", "(unknown)", None, 30),
        ("stream_sync", "(unknown)", None, 20),
    ]
    assert found.missing[-3:] == (
        "1 records of events have no call in the capture: queries, in which the host does not wait, or "
        "synchronisations; they are left out",
        "2 synchronisations have no call in the capture: their thread, ranges and call site are unknown, and blocked "
        "time is what the record of the synchronisation says",
        "1 of 1 copies between host and device have no call in the capture: whether the host waited for them is "
        "unknown",
    )
    assert found.totals.htod_pageable == 1


def test_copies_in_cuda_graphs_have_no_call_of_their_own(capture, read):
    capture.device_work(
        "MEMCPY", 10, 20, 100, correlationId=9, bytes=8, copyKind=DTOH, srcKind=2, dstKind=1, graphNodeId=5
    )
    capture.thread(100).call("cudaGraphLaunch_v10000", 0, 1, correlation=9)
    found = read()
    assert not [text for text in found.missing if "no call in" in text]
    assert found.copies == (CapturedCopy(100, None, 0, (), "dtoh", False, 8, 1, 0),)


def test_several_copies_of_one_call_are_one_sync(capture, main, read):
    main.copy(0, 50, DTOH, bytes=8, api="cudaMemcpyBatchAsync_v12080")
    for _ in range(2):
        capture.device_work(
            "MEMCPY", 0, 50, 100, correlationId=capture.correlation, bytes=8, copyKind=DTOH, srcKind=2, dstKind=0
        )
    found = read()
    assert (kinds(found), found.totals.dtoh) == ([("dtoh", "cudaMemcpyBatchAsync", 1)], 3)


def test_processes_with_the_same_correlation_ids_stay_apart(capture, read):
    for process, (kind, device, end) in {100: (DTOH, 0, 100), 200: (HTOD, 1, 50)}.items():
        capture.correlation = 0
        capture.thread(process).blocking_copy(0, end, kind, device=device)
    found = read()
    assert [(row.process, row.kind, row.device) for row in found.syncs] == [(100, "dtoh", 0), (200, "htod", 1)]


def test_the_device_of_a_synchronisation_is_where_its_process_works(capture, read):
    """The record of it says device 0 in every process."""
    for process, device in ((100, 0), (200, 1)):
        thread = capture.thread(process)
        thread.launch(0, 5, kernel=(5, 20), device=device)
        thread.sync(10, 30 + process)
    assert [(row.process, row.device) for row in read().syncs] == [(200, 1), (100, 0)]


def test_the_device_of_a_context_where_a_process_has_several(capture, main, read):
    for context, device in ((1, 0), (2, 1)):
        capture.device_work("KERNEL", 0, 10, 100, contextId=context, deviceId=device)
    for context, (start, end) in {1: (10, 50), 2: (60, 80), 3: (90, 100)}.items():
        number = main.call("cudaStreamSynchronize_v3020", start, end)
        capture.device_work("SYNCHRONIZATION", start, end, 100, contextId=context, correlationId=number, syncType=3)
    assert [row.device for row in read().syncs] == [0, 1, None]


def test_idle_is_from_the_last_work_before_the_return_to_the_next(capture, main, read):
    capture.kernel(10, 40)
    capture.device_work("MEMSET", 45, 50, 100)
    main.sync(20, 60)
    capture.kernel(90, 95)
    capture.kernel(75, 80, process=200)
    assert read().totals.device_idle_ns == 40


def test_nothing_is_idle_where_something_still_ran(capture, main, read):
    capture.kernel(10, 40)
    capture.device_work("GRAPH_TRACE", 50, 70, 100, streamId=9)
    main.sync(20, 60)
    capture.kernel(90, 95)
    found = read()
    assert found.totals.device_idle_ns == 0
    assert "CUDA graphs are recorded as a whole" in " ".join(found.missing)


def test_a_gap_that_syncs_share_counts_once(capture, main, read):
    capture.kernel(10, 40)
    main.sync(20, 60)
    main.sync(70, 80)
    main.sync(81, 82, type=CONTEXT, api="cudaDeviceSynchronize_v3020")
    capture.kernel(140, 150)
    found = read()
    assert [(row.count, row.device_idle_ns) for row in found.syncs] == [(2, 100), (1, 100)]
    assert found.totals.device_idle_ns == 100


def test_idle_is_unknown_where_the_capture_has_not_both_ends(capture, main, read):
    main.sync(0, 5)
    capture.kernel(10, 40)
    main.sync(20, 60)
    found = read()
    assert [row.device_idle_ns for row in found.syncs] == [None]
    assert "device idle of 2 of 2 syncs is unknown: the capture has not both ends of it" in found.missing


@given(
    works=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12),
    returns=st.lists(st.integers(0, 80), min_size=1, max_size=6),
)
def test_idle_is_as_defined(works, returns):
    works = [(start, start + length) for start, length in works]
    timeline = Timeline(returns)
    for start, end in works:
        timeline.take(start, end)
    for at, gap in timeline.gaps().items():
        before = [end for start, end in works if end <= at]
        after = [start for start, end in works if start >= at]
        if any(start < at < end for start, end in works):
            expected = (at, at)
        else:
            expected = (max(before), min(after)) if before and after else None
        assert gap == expected


def test_the_call_chain_says_where_a_sync_comes_from(main, read):
    chain = [
        ("cuStreamSynchronize", "/usr/lib/libcuda.so.550.54"),
        ("cudart::sync(CUstream_st*)", "/opt/torch/lib/libcudart-1b2c.so.12"),
        ("at::native::_local_scalar_dense_cuda", "/opt/torch/lib/libtorch_cuda.so"),
        ("PyObject_Call", "/usr/bin/python3.12"),
        ("read_lengths()", "/opt/mine/libloader.so"),
        ("main", "/usr/bin/trainer"),
    ]
    main.sync(0, 10, chain=chain)
    (row,) = read().syncs
    assert row.site == "read_lengths() (libloader.so)"
    assert row.stack[0] == "cuStreamSynchronize (libcuda.so.550.54)"
    assert len(row.stack) == 6


def test_python_frames_come_first(main, read):
    chain = [("cuStreamSynchronize", "libcuda.so.1"), ("helper()", "libmine.so"), ("loss_fn", "/home/u/train/loss.py")]
    main.sync(0, 10, chain=chain)
    main.sync(20, 29, chain=chain)
    main.sync(30, 35, chain=chain[:2])
    assert [(row.site, row.count) for row in read().syncs] == [
        ("loss_fn (/home/u/train/loss.py)", 2),
        ("helper() (libmine.so)", 1),
    ]


def test_copies_are_shown_by_direction_size_and_memory(main, read):
    main.push(0, 1000, "load")
    for start in (0, 100):
        main.blocking_copy(start, start + 50, HTOD, bytes=8)
    main.copy(200, 210, HTOD, PINNED, bytes=4096, device=1)
    path = (RangeName("", "load"),)
    assert read().copies == (
        CapturedCopy(100, 100, 0, path, "htod", True, 8, 2, 2),
        CapturedCopy(100, 100, 1, path, "htod", False, 4096, 1, 0),
    )


def test_row_order_does_not_matter(capture, main, read):
    main.push(0, 1000, "step")
    main.push(100, 300, "load")
    main.blocking_copy(110, 200, HTOD)
    main.launch(210, 220, kernel=(220, 250))
    main.launch(225, 230, kernel=(250, 260))
    main.sync(400, 500)
    main.launch(510, 520, kernel=(530, 540))
    one, other = read(), read(shuffle=True)
    assert (one.syncs, one.totals, one.copies) == (other.syncs, other.totals, other.copies)


def test_what_nsys_lost_is_said(capture, main, read):
    main.sync(0, 10)
    capture.diagnostic(1, "Profiling has started.")
    capture.diagnostic(1, "Number of CUDA events dropped: 3")
    capture.diagnostic(3, "no events\n collected")
    found = read()
    assert [(said.severity, said.text) for said in found.diagnostics] == [
        ("information", "Number of CUDA events dropped: 3"),
        ("error", "no events collected"),
    ]
    assert found.missing[-2:] == (
        "nsys information: Number of CUDA events dropped: 3",
        "nsys error: no events collected",
    )


def test_schema_3_0_reads_as_3_25_does(capture, main, read):
    main.push(0, 1000, "step", registered=True)
    main.blocking_copy(110, 200, HTOD, chain=[("f", "lib.so")])
    capture.kernel(300, 310)
    main.sync(400, 500)
    capture.diagnostic(2, "some events were dropped")
    newer = read()
    capture.schema, capture.version = "3.0.0", "2022.4.2.1"
    older = read()
    assert (older.source.schema, older.source.version) == ("3.0.0", "2022.4.2.1")
    for name in ("missing", "diagnostics", "totals", "syncs", "copies", "ranges"):
        assert getattr(older, name) == getattr(newer, name)
