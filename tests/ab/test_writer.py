"""Writing run.json beside a running job: rarely, in one step, and whatever happens to the disk or the process."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest

from mtp_bench.ab import writer as writer_module
from mtp_bench.ab.writer import Writer, interval_s
from mtp_bench.results import Run, load_run
from tests import runs

LONG_S = 60.0  # a bound that a test comes nowhere near


def a_run(seed=0, windows=2):
    result = runs.result("patched", scope="job", time=runs.time(*[100.0] * windows))
    return Run(
        created_at="2026-01-01T00:00:00Z",
        command="train.py",
        seed=seed,
        environment=runs.environment(),
        workloads=runs.WORKLOADS,
        results=[result],
    )


class Made:
    """Counts the runs that were made; the seed of a run is its number."""

    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1
        return a_run(self.count)


@pytest.fixture
def made():
    return Made()


@pytest.fixture
def fast(monkeypatch):
    """The thread looks every millisecond, and an interval is 10 ms."""
    monkeypatch.setattr(writer_module, "_LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(writer_module, "MIN_INTERVAL_S", 0.01)
    monkeypatch.setattr(writer_module, "WRITES_TO_TIME", 0)


def until(condition, at_most_s=LONG_S):
    deadline = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.002)


@pytest.mark.parametrize(("write_s", "expected_s"), [(0.0001, 30.0), (0.003, 30.0), (0.01, 100.0), (2.0, 20_000.0)])
def test_writing_takes_a_ten_thousandth_of_the_time_at_most(write_s, expected_s):
    assert interval_s(write_s) == pytest.approx(expected_s)


def test_nothing_is_written_before_a_window_is_done(tmp_path, made, fast):
    writer = Writer(tmp_path / "rank-0", made)
    time.sleep(0.05)
    assert not (tmp_path / "rank-0").exists()
    writer.window_done()
    until((tmp_path / "rank-0" / "run.json").exists)
    writer.close(LONG_S)


def test_many_windows_in_an_interval_are_one_write(tmp_path, made, monkeypatch):
    monkeypatch.setattr(writer_module, "_LOOK_EVERY_S", 0.001)
    writer = Writer(tmp_path, made)
    writer.window_done()
    until(lambda: made.count == 1)
    for _ in range(20):
        writer.window_done()
        time.sleep(0.005)
    assert made.count == 1
    writer.close(LONG_S)
    assert load_run(tmp_path).seed == made.count == 2


def test_windows_are_written_when_their_interval_is_over(tmp_path, made, fast):
    writer = Writer(tmp_path, made)
    for expected in (1, 2, 3):
        writer.window_done()
        until(lambda expected=expected: made.count == expected)
        time.sleep(0.03)
        assert made.count == expected  # nothing new is not written again
    writer.close(LONG_S)


def test_closing_writes_though_no_window_was_done(tmp_path, made):
    Writer(tmp_path, made).close(LONG_S)
    assert load_run(tmp_path).seed == 1


def test_closing_twice_writes_once(tmp_path, made):
    writer = Writer(tmp_path, made)
    writer.close(LONG_S)
    writer.close(LONG_S)
    assert made.count == 1


def test_after_windows_something_is_asked_on_the_thread_before_they_are_written(tmp_path, fast):
    asked = []
    writer = Writer(tmp_path, lambda: a_run(len(asked)), lambda: asked.append(threading.current_thread().name))
    time.sleep(0.02)
    assert asked == []
    writer.window_done()
    until((tmp_path / "run.json").exists)
    writer.close(LONG_S)
    assert asked == ["mtp_bench.ab", "mtp_bench.ab"]
    assert load_run(tmp_path).seed == 2


def test_a_folder_that_vanishes_is_made_again(tmp_path, made, fast):
    folder = tmp_path / "ab" / "rank-0"
    writer = Writer(folder, made)
    writer.window_done()
    until(lambda: made.count == 1)
    shutil.rmtree(tmp_path / "ab", ignore_errors=True)
    writer.close(LONG_S)
    assert load_run(folder).seed == 2


def test_what_cannot_be_written_is_said_once_and_tried_again(tmp_path, made, fast):
    in_the_way = tmp_path / "ab"
    in_the_way.write_text("a file where the folder should be")
    folder = in_the_way / "rank-0"

    def job():
        writer = Writer(folder, made)
        writer.window_done()
        until(lambda: made.count >= 4)
        in_the_way.unlink()
        writer.close(LONG_S)

    with pytest.warns(RuntimeWarning) as said:
        job()
    assert [str(warning.message) for warning in said] == [
        f"mtp_bench.ab: cannot write to {folder}: Not a directory; the job goes on, and it is tried again"
    ]
    assert load_run(folder).seed == made.count


def test_an_error_of_ours_is_the_job_s_as_little(tmp_path, fast):
    def make():
        raise KeyError("variant")

    def ask():
        raise OSError("no such GPU")

    def job():
        writer = Writer(tmp_path, make, ask)
        writer.window_done()
        writer.close(LONG_S)

    with pytest.warns(RuntimeWarning, match="no such GPU") as said:
        job()
    assert len(said) == 1
    assert not (tmp_path / "run.json").exists()


def test_where_warnings_are_errors_the_thread_lives_on(tmp_path, made, fast):
    in_the_way = tmp_path / "ab"
    in_the_way.write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = Writer(in_the_way, made)
        writer.window_done()
        until(lambda: made.count >= 2)
        in_the_way.unlink()
        writer.close(LONG_S)
    assert load_run(in_the_way).seed == made.count


def test_closing_waits_no_longer_than_it_is_told(tmp_path):
    release = threading.Event()
    writer = Writer(tmp_path, lambda: release.wait() and a_run())
    with pytest.warns(RuntimeWarning, match=r"still writing to .* after 0\.05 s"):
        writer.close(0.05)
    release.set()
    writer.close(LONG_S)
    assert load_run(tmp_path)


def test_a_forked_child_writes_nothing_and_does_not_hang(tmp_path, made, fast):
    writer = Writer(tmp_path / "rank-0", made)
    writer._closing._cond.acquire()  # the thread may hold its locks when the job forks
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        writer.window_done()
        writer.close(LONG_S)
        os._exit(0)
    writer._closing._cond.release()
    assert os.waitpid(child, 0)[1] == 0
    assert not (tmp_path / "rank-0").exists()
    writer.close(LONG_S)
    assert load_run(tmp_path / "rank-0").seed == 1


def script(body, *arguments, **options):
    """Run a script in a process of its own, with this module's names."""
    text = "import os, pathlib, sys\nfrom tests.ab.test_writer import *\n" + body
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([".", *filter(None, sys.path)])}
    return subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        **options,
    )


def test_a_process_ends_though_writing_hangs(tmp_path):
    done = script(
        """
writer_module._LOOK_EVERY_S = 0.001
began = threading.Event()
def make():
    began.set()
    threading.Event().wait()
writer = Writer(pathlib.Path(sys.argv[1]), make)
writer.window_done()
began.wait()
print("the job's last line")
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "the job's last line\n")


WRITES_UNTIL_KILLED = """
import random
writer_module._LOOK_EVERY_S = 0
writer_module.MIN_INTERVAL_S = 0
writer_module.WRITES_TO_TIME = 0
seen = set()
for moment in range(20):
    folder = pathlib.Path(sys.argv[1], str(moment))
    child = os.fork()
    if child == 0:
        made = iter(range(10**9))
        writer = Writer(folder, lambda: a_run(number := next(made), windows=1 + 50 * (number % 40)))
        while True:
            writer.window_done()
            time.sleep(0.0005)
    until((folder / "run.json").exists)
    time.sleep(random.Random(moment).uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    run = load_run(folder)
    assert len(run.results[0].time.step_ns) == 1 + 50 * (run.seed % 40)
    seen.add(run.seed)
print(len(seen) > 1)
"""


def test_a_process_killed_at_any_moment_leaves_a_whole_file(tmp_path):
    done = script(WRITES_UNTIL_KILLED, tmp_path)
    assert done.stdout == "True\n", done.stderr


FILLS_THE_DISK = """
writer_module._LOOK_EVERY_S = 0.001
writer_module.MIN_INTERVAL_S = 0.01
writer_module.WRITES_TO_TIME = 0
sizes = iter([2, *[4_000] * 3, *[2] * 10**6])
made = []
def make():
    made.append(next(sizes))
    return a_run(seed=len(made), windows=made[-1])
folder = pathlib.Path(sys.argv[1])
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    writer = Writer(folder, make)
    writer.window_done()
    until((folder / "run.json").exists)
    writer.window_done()
    until(lambda: len(made) == 3)
    assert load_run(folder).seed == 1
    until(lambda: len(made) == 5)
    writer.close(LONG_S)
assert load_run(folder).seed == len(made)
print(*[str(warning.message).partition(": cannot write to ")[2] for warning in said])
"""


def test_a_full_disk_leaves_the_last_whole_file_and_is_tried_again(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        done = script(FILLS_THE_DISK, disk / "rank-0")
    finally:
        subprocess.run(["umount", disk], check=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{disk / 'rank-0'}: No space left on device; the job goes on, and it is tried again\n"


def test_a_limit_of_the_file_s_size_leaves_the_last_whole_file_too(tmp_path):
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, 2**18))}
    done = script(FILLS_THE_DISK, tmp_path / "rank-0", **limited)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'rank-0'}: File too large; the job goes on, and it is tried again\n"
