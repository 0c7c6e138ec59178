"""The reader on real captures of two GPUs (shared/data), and on the benchmark's of eight ranks."""

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.import_nsys import EIGHT_RANKS, EIGHT_RANKS_SECONDS, make_capture
from mtp_bench import cli
from mtp_bench.nsight import read_capture
from mtp_bench.nsight.model import NotSyncs, Totals

DATA = Path(__file__).parents[3] / "shared" / "data"
TRAINING, INFERENCE = DATA / "mfu_2gpu_before.sqlite", DATA / "h100_2gpu_1s.sqlite"
needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is not here")


def texts(row):
    return [name.text for name in row.range]


@needs_data
def test_33_synchronisations_of_blocking_copies():
    found = read_capture(TRAINING)
    assert found.totals == Totals(
        stream_sync=33,
        device_sync=0,
        event_sync=0,
        dtoh=0,
        htod=34,
        dtoh_pageable=0,
        htod_pageable=34,
        syncs=33,
        blocked_ns=324_534_733 + 438_372,
        copy_ns=438_372,
        device_idle_ns=1_814_205,
    )
    assert found.not_syncs == NotSyncs(event_query=133, stream_wait=200)
    assert [(row.process, row.device, row.count, row.kind, row.bytes) for row in found.syncs] == [
        (144, 0, 16, "htod", 128),
        (145, 1, 17, "htod", 136),
    ]
    for row in found.syncs:
        assert texts(row) == ["aten::to", "aten::_to_copy", "aten::copy_"]
        assert (row.api, row.copy_api, row.op, row.pageable) == (
            "cudaStreamSynchronize",
            "cudaMemcpyAsync",
            "aten::copy_",
            True,
        )
    assert [(row.bytes, row.pageable, row.count, row.blocking) for row in found.copies] == [
        (8, True, 17, 17),
        (8, True, 16, 16),
        (8, True, 1, 0),
    ]


@needs_data
def test_8_synchronisations_block_long_and_idle_little():
    found = read_capture(INFERENCE)
    totals = found.totals
    assert (totals.stream_sync, totals.blocked_ns - totals.copy_ns, totals.device_idle_ns) == (
        8,
        856_929_451,
        1_683_047,
    )
    assert (totals.dtoh, totals.dtoh_pageable, totals.htod_pageable) == (4, 0, 4)
    assert found.not_syncs == NotSyncs(event_query=0, stream_wait=236)
    assert {(tuple(texts(row)), row.kind) for row in found.syncs} == {
        (("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"), "dtoh"),
        (("aten::item", "aten::_local_scalar_dense"), "dtoh"),
        (("aten::to", "aten::_to_copy", "aten::copy_"), "htod"),
    }


@needs_data
@pytest.mark.parametrize(
    ("path", "line"),
    [
        (
            TRAINING,
            "33 syncs in 2 processes: blocked 325.0 ms (324.5 ms in synchronise calls, 0.44 ms in copies), "
            "device idle 1.81 ms",
        ),
        (
            INFERENCE,
            "8 syncs in 2 processes: blocked 857.0 ms (856.9 ms in synchronise calls, 0.11 ms in copies), "
            "device idle 1.68 ms",
        ),
    ],
)
def test_the_command_says_both_times(path, line):
    assert line in CliRunner().invoke(cli.app, ["import", str(path)]).stdout.splitlines()


@pytest.mark.slow
def test_five_steps_of_eight_ranks(tmp_path):
    path = tmp_path / "capture.sqlite"
    make_capture(path, EIGHT_RANKS)
    started = time.process_time()
    found = read_capture(path)
    assert time.process_time() - started < EIGHT_RANKS_SECONDS
    assert (found.totals.stream_sync, found.totals.htod) == (4448, 4448)
    backward = {row.process: row.count for row in found.ranges if row.path == ("step", "backward")}
    assert backward == dict.fromkeys(range(1000, 1008), 5)
    assert {tuple(texts(row)) for row in found.syncs if row.kind == "htod"} == {
        ("step", "aten::to", "aten::_to_copy", "aten::copy_"),
        ("step", "backward", "aten::to", "aten::_to_copy", "aten::copy_"),
    }
