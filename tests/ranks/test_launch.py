"""Ranks are started together and end together, whatever one of them does, and whatever becomes of who asked."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mtp_bench.errors import RunError
from mtp_bench.ranks.launch import Ranks, launch

HERE = Path(__file__).parent
LIMIT_S = 60


@pytest.fixture(autouse=True)
def _functions_to_launch(monkeypatch):
    monkeypatch.syspath_prepend(HERE)


def start(function, job, ranks=2, time_limit_s=LIMIT_S):
    return launch(f"ranks_to_launch:{function}", job, ranks=ranks, time_limit_s=time_limit_s)


def alive(pid):
    """Whether the process runs (a zombie does not)."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def written(folder, names):
    """The process ids in the files of ``folder``, when all are there."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return [int((folder / name).read_text()) for name in names]
        time.sleep(0.05)
    raise AssertionError(f"{names} were not written")


def gone(pids):
    deadline = time.monotonic() + LIMIT_S
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))


def test_every_rank_answers():
    assert start("product", {"factor": 3}, ranks=3) == [
        {"rank": 0, "of": 3, "product": 27},
        {"rank": 1, "of": 3, "product": 27},
        {"rank": 2, "of": 3, "product": 27},
    ]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "rank 1 of 2 failed; its output ends with:\n"),
        ("exits", "rank 1 of 2 ended with exit code 7; its output ends with:\nrank 1 is about to fail"),
        ("is killed", "rank 1 of 2 was killed by SIGKILL; its output ends with:\nrank 1 is about to fail"),
    ],
)
def test_a_rank_that_fails_ends_all_and_is_named_with_its_output(how, said):
    with pytest.raises(RunError) as failure:
        start("one_fails", {"how": how})
    assert str(failure.value).startswith(said)
    assert "rank 1 is about to fail" in str(failure.value)
    assert ("ValueError: no loss here" in str(failure.value)) == (how == "raises")


def test_the_rank_that_is_missed_is_named_and_not_the_one_that_misses_it():
    with pytest.raises(RunError, match="rank 1 of 2 ended with exit code 9; its output ends with:\nrank 1 is about to"):
        start("one_leaves", {"code": 9})


def test_a_rank_that_leaves_without_a_result_is_not_taken_for_one_that_is_done():
    with pytest.raises(RunError, match="rank 0 of 1 ended without a result; it wrote nothing"):
        start("leave", {}, ranks=1)


def test_a_result_that_json_cannot_hold_is_that_ranks_failure():
    with pytest.raises(RunError, match="Object of type object is not JSON serializable"):
        start("unreadable", {}, ranks=1)


def test_ranks_that_hang_are_ended_with_what_they_started_and_say_where_they_stood(tmp_path):
    with Ranks("ranks_to_launch:sleep", {"folder": str(tmp_path)}, 2) as ranks:
        pids = written(tmp_path, ["rank.0", "rank.1", "child.0", "child.1"])
        with pytest.raises(RunError) as failure:
            ranks.results(time_limit_s=0.5)
    text = str(failure.value)
    assert text.startswith("ranks 0, 1 of 2 gave no answer in 0.5 s\nrank 0; its output ends with:\ngoing to sleep")
    assert text.count("ranks_to_launch.py") >= 2  # the stack of each
    assert text.count(" in sleep") == 2
    assert gone(pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_no_rank_outlives_the_process_that_asked_for_it(number, tmp_path):
    script = (
        "import sys; from mtp_bench.ranks.launch import launch; launch(*sys.argv[1:2], {'folder': sys.argv[2]}, "
        "ranks=2, time_limit_s=600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, "ranks_to_launch:sleep", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.getcwd()])},
        stderr=subprocess.DEVNULL,
    )
    pids = written(tmp_path, ["rank.0", "rank.1", "child.0", "child.1"])
    parent.send_signal(number)
    assert parent.wait(LIMIT_S) != 0
    assert gone(pids)


def test_no_rank_outlives_its_launcher(tmp_path):
    with Ranks("ranks_to_launch:sleep", {"folder": str(tmp_path)}, 2) as ranks:
        pids = written(tmp_path, ["rank.0", "rank.1"])
        os.kill(ranks._launcher.pid, signal.SIGKILL)
        with pytest.raises(RunError, match=r"torch.distributed.run ended by itself \(-9\)"):
            ranks.results(LIMIT_S)
        assert gone(pids)
