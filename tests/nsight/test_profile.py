"""``mtp-bench profile``, with the installed nsys: a real run, its capture, and all the ways in which it can end."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtp_bench import cli
from mtp_bench.nsight import trial
from mtp_bench.nsight.profile import read_back
from mtp_bench.nsight.tool import Nsys
from mtp_bench.results import load_run
from tests import runs
from tests.nsight.captures import CaptureFile

SMALL = [
    *("--profile", "packed-sft", "--scope", "step", "--device", "sim"),
    *("--set", "sequences=[40, 24, 7]", "--set", "hidden_size=64", "--set", "vocab_size=256"),
    *("--set", "num_layers=1", "--set", "mtp_num_layers=2", "--set", "num_microbatches=2"),
]
QUICK = [
    *("--profile", "packed-sft", "--device", "sim", "--values", "shape", "--variant", "host_lens", "--lead", "0"),
    *("--set", "sequences=[40, 24, 7]", "--set", "hidden_size=64", "--set", "vocab_size=256"),
]
PROFILE = [sys.executable, "-m", "mtp_bench", "profile"]
ROOT = Path(__file__).resolve().parents[2]


def environment(**changes):
    return {**os.environ, "PYTHONPATH": str(ROOT), **changes}


def profile(*arguments, **changes):
    return subprocess.run(
        [*PROFILE, *arguments], capture_output=True, text=True, check=False, env=environment(**changes), timeout=120
    )


def paths(export):
    """How often each path of ranges is in a capture of one thread, read from the tables without mtp_bench's reader."""
    with sqlite3.connect(export) as connection:
        rows = connection.execute(
            "SELECT start, end, coalesce(text, value), globalTid FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId "
            "WHERE eventType IN (59, 60) ORDER BY start, end DESC"
        ).fetchall()
    assert len({thread for *_, thread in rows}) == 1
    found, open_ranges = Counter(), []
    for start, end, text, _ in rows:
        while open_ranges and open_ranges[-1][0] <= start:
            open_ranges.pop()
        assert not open_ranges or end <= open_ranges[-1][0], f"{text} is not within the range around it"
        open_ranges.append((end, text))
        found[tuple(name for _, name in open_ranges)] += 1
    return found


@pytest.fixture(scope="module")
def profiled(nsys, tmp_path_factory):
    """A run of two variants under nsys: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("profiled") / "run"
    done = profile(*SMALL, "--variant", "patched", "--variant", "host_lens", "--out", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    return folder, done


STEPS = 7  # a variant: for its values, to warm up, to see its syncs twice, to try a capture, to warm up, to be timed
MICROBATCHES = 2


def test_every_range_is_in_the_capture_nested_as_designed_and_as_often_as_it_ran(profiled):
    folder, _ = profiled
    expected = {("run",): 1, ("run", "workload:packed-sft"): 1}
    for variant in ("patched", "host_lens"):
        around = ("run", "workload:packed-sft", f"variant:{variant}")
        step = (*around, "step")
        expected |= {
            around: 3,  # all passes, the warm-up and the window of steps that are timed
            step: STEPS,
            (*step, "forward"): STEPS * MICROBATCHES,
            (*step, "forward", "mtp_loss"): STEPS * MICROBATCHES,
            (*step, "forward", "mtp_loss", "depth:1"): STEPS * MICROBATCHES,
            (*step, "forward", "mtp_loss", "depth:2"): STEPS * MICROBATCHES,
            (*step, "backward"): STEPS * MICROBATCHES,
            (*step, "finalize"): STEPS,
        }
    assert paths(folder / "nsys.sqlite") == expected


def test_the_run_is_marked_as_profiled_and_says_what_nsys_cannot_tell(profiled):
    folder, done = profiled
    run = load_run(folder)
    assert json.loads(done.stdout) == run.model_dump(mode="json")
    assert [(result.variant, result.status, result.time.profiled) for result in run.results] == [
        ("patched", "ok", True),
        ("host_lens", "ok", True),
    ]
    for result in run.results:
        assert result.syncs.detectors == {"sim": result.syncs.count, "nsys": None}
        assert "nsys cannot tell the syncs: a simulated device makes no CUDA call" in result.warnings
    assert run.environment.packages["nsight-systems"].startswith("20")
    assert run.command.startswith("mtp-bench profile --profile packed-sft ")
    assert "nsys cannot tell the syncs" in (folder / "report.md").read_text()


def test_what_it_writes_is_no_more_open_than_the_user_has_it(profiled):
    folder, done = profiled
    mask = os.umask(0)
    os.umask(mask)
    files = {path.name: path.stat().st_mode & mask for path in folder.iterdir()}
    assert files == dict.fromkeys(files, 0)
    assert {"run.json", "report.md", "nsys.log", "nsys.sqlite", "nsys.nsys-rep"} <= files.keys()
    assert done.stderr.startswith("mtp-bench ")
    assert len(done.stderr.splitlines()) == 1


def test_the_command_for_a_job_script_does_the_same_and_its_capture_is_added_afterwards(nsys, tmp_path):
    folder = tmp_path / "50% of it"
    shown = profile(*QUICK, "--out", str(folder), "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert not folder.exists()
    (line,) = shown.stdout.splitlines()
    words = shlex.split(line)
    assert words[:2] == [nsys.path, "profile"]
    assert {
        *("--trace=cuda,nvtx", "--capture-range=nvtx", "--nvtx-capture=run@mtp_bench", "--capture-range-end=stop"),
        *("--kill=none", "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0"),
    } <= {*words}
    then = shown.stderr.strip().removeprefix("then, to add the capture to the run: mtp-bench ")
    assert then == f"profile --read {shlex.quote(str(folder))}"

    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, env=environment(), cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert load_run(folder).results[0].syncs.detectors.keys() == {"sim"}
    read = CliRunner().invoke(cli.app, ["profile", "--read", str(folder)])
    assert read.exit_code == 0, read.stderr
    assert read.stdout.endswith(f"\nreport: {folder}/report.md\ncapture: {folder}/nsys.sqlite\n")
    (result,) = load_run(folder).results
    assert (result.syncs.detectors["nsys"], result.time.profiled) == (None, True)


def test_each_rank_of_torchrun_has_its_own_run_and_report(nsys, tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"),
            *(*PROFILE, *QUICK, "--out", str(tmp_path / "run")),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=environment(OMP_NUM_THREADS="1"),
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        folder = tmp_path / "run" / f"rank{rank}"
        assert load_run(folder).results[0].status == "ok"
        assert paths(folder / f"nsys-rank{rank}.sqlite")["run", "workload:packed-sft", "variant:host_lens", "step"] >= 3


def test_an_interruption_keeps_what_is_done_with_its_capture(nsys, tmp_path):
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [*PROFILE, *SMALL, "--lead", "0,1,2,3,4,5,6,7,8,9", "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    while not (folder / "run.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == f"kept the results in {folder}\ninterrupted\n"
    assert f"\nreport: {folder}/report.md\ncapture: {folder}/nsys.sqlite\n" in out
    assert paths(folder / "nsys.sqlite")["run",] == 1
    assert load_run(folder).results


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--profile", "nonsense"], 2, "error: no profile 'nonsense'; "),
        (["--device", "cuda:9"], 2, "error: --device cuda:9: no "),
        (
            ["--capture-range", "cudaProfilerApi", "--device", "sim"],
            2,
            "error: --capture-range cudaProfilerApi: sim:h100 ",
        ),
    ],
)
def test_what_the_run_finds_wrong_is_said_as_the_run_says_it(nsys, tmp_path, arguments, code, said):
    done = profile(*arguments, "--out", str(tmp_path))
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["--nonsense"], ["--seed", "-4"], ["stray"], ["--lead", "x"], ["--capture-range", "all"]]
)
def test_options_that_run_does_not_have_stop_it_before_anything_starts(arguments, monkeypatch):
    monkeypatch.setattr(trial, "require_ranges", lambda nsys, **options: pytest.fail("too late"))
    done = CliRunner().invoke(cli.app, ["profile", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")


def test_its_help_has_the_options_of_run(monkeypatch):
    shown = CliRunner().invoke(cli.app, ["profile", "--help"], env={"COLUMNS": "120"}).stdout
    for option in ("--dry-run", "--capture-range", "--python-backtrace", "--read", "--variant", "--lead", "--json"):
        assert f"\n  {option} " in shown


def test_it_does_not_run_within_itself():
    done = profile("--dry-run", NSYS_PROFILING_SESSION_ID="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: this is under Nsight Systems already; ")


def test_without_nsys_the_command_can_still_be_had(tmp_path):
    done = profile("--dry-run", "--out", str(tmp_path), PATH=str(tmp_path), NSYS="")
    assert done.returncode == 0
    assert done.stdout.split()[1:3] == ["profile", "--trace=cuda,nvtx"]


LOST = "0.2.13 loses all ranges silently under nsys 2022.4: use nsys 2024 or later, or nvtx 0.2.11"


def test_ranges_that_versions_are_known_to_lose_cost_no_trial(monkeypatch):
    monkeypatch.setattr(trial, "version", {"nvtx": "0.2.13"}.get)
    monkeypatch.setattr(trial.tool, "run_quietly", lambda *a: pytest.fail("no need to run"))
    with pytest.raises(trial.InputError) as error:
        trial.require_ranges(Nsys("/opt/nsys", (2022, 4, 2)))
    assert str(error.value) == f"nvtx {LOST}"


def test_ranges_that_get_lost_are_found_by_a_real_capture(nsys, monkeypatch, tmp_path):
    """As with an nvtx that takes its domain for disabled: its functions are there, and do nothing."""
    (tmp_path / "nvtx.py").write_text(
        "def push_range(*a, **k): pass\ndef pop_range(*a, **k): pass\n"
        "def start_range(*a, **k): pass\ndef end_range(*a, **k): pass\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(trial.InputError) as error:
        trial.require_ranges(nsys)
    assert "do not reach" in str(error.value)
    assert "use nsys 2024 or later, or nvtx 0.2.11" in str(error.value)


def test_an_nsys_that_fails_once_is_tried_again(nsys, tmp_path):
    script = tmp_path / "nsys"
    failed = tmp_path / "failed"
    script.write_text(
        f'#!/bin/sh\nif [ "$#" -gt 2 ] && [ ! -e {failed} ]; then touch {failed}; exit 1; fi\nexec {nsys.path} "$@"\n'
    )
    script.chmod(0o755)
    trial.require_ranges(Nsys(str(script), nsys.version))
    assert failed.exists()


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """An nsys whose ``profile`` runs a shell script; its ranges are taken to arrive."""

    def install(script):
        path = tmp_path / "nsys"
        path.write_text(
            "#!/bin/bash\ncase $1 in --version) echo 'NVIDIA Nsight Systems version 2025.1.1';; profile)\n"
            f"[ $2 = --help ] && exit\n{script};; esac\n"
        )
        path.chmod(0o755)
        monkeypatch.setenv("NSYS", str(path))
        monkeypatch.setattr(trial, "require_ranges", lambda nsys, **options: None)
        return CliRunner().invoke(cli.app, ["profile", "--out", str(tmp_path / "run")])

    return install


def made_run(tmp_path, result):
    """A line of shell that leaves a run with this result where ``mtp-bench run`` would."""
    made = runs.run([result]).write(tmp_path / "made")
    return f'for out; do true; done; cp {made} "$out/run.json"'


def test_an_nsys_that_fails_is_one_line_with_what_it_said(fake):
    done = fake(
        "echo; echo 'Importer error status: x'; echo 'Failed to start the agent: permission denied' >&2; exit 5"
    )
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "error: nsys 2025.1.1 ended with exit code 5 before any result; "
        "it said: Failed to start the agent: permission denied\n"
    )


def test_results_stay_where_nsys_captured_nothing(fake, tmp_path):
    done = fake(f"{made_run(tmp_path, runs.result('patched'))}; echo 'Generated:'")
    folder = tmp_path / "run"
    assert done.exit_code == 1
    assert done.stderr == (
        f"error: {folder}: Nsight Systems left no capture there, so its range did not open or did not reach it; "
        f"the results are kept in {folder}, without nsys\n"
    )
    assert load_run(folder).results == [runs.result("patched")]
    assert f"\nreport: {folder}/report.md\n" in done.stdout


def test_results_stay_where_the_capture_cannot_be_read(fake, tmp_path):
    done = fake(f"""{made_run(tmp_path, runs.result("patched"))}; echo broken > "$out/nsys.nsys-rep\"""")
    assert done.exit_code == 1
    assert "nsys 2025.1.1 cannot export it: " in done.stderr
    assert done.stderr.endswith(f"; the results are kept in {tmp_path}/run, without nsys\n")
    assert load_run(tmp_path / "run").results == [runs.result("patched")]


def capture_of_nothing(tmp_path):
    """A line of shell that leaves a capture without any event."""
    capture = CaptureFile()
    capture.domain(100, 1, "mtp_bench")
    return f'cp {capture.write(tmp_path / "made.sqlite")} "$out/nsys.sqlite"'


def test_a_variant_that_failed_is_said_once(fake, tmp_path):
    failed = runs.result("mine:loss", status="failed", error="no", syncs=None, time=None)
    said = "error: mine:loss failed on packed-sft"
    done = fake(f"{made_run(tmp_path, failed)}; {capture_of_nothing(tmp_path)}; echo '{said}'; exit 1")
    assert (done.exit_code, done.stderr) == (1, f"{said}\n")


@pytest.mark.parametrize(
    ("said", "nsys_code", "code", "stderr"),
    [
        ("interrupted", 143, 143, "interrupted\n"),
        (
            "error: the worker process died outside of any variant",
            1,
            1,
            "error: the worker process died outside of any variant\n",
        ),
    ],
)
def test_a_run_that_did_not_come_to_its_end_is_no_success(fake, tmp_path, said, nsys_code, code, stderr):
    part = made_run(tmp_path, runs.result("patched"))
    done = fake(f"{part}; {capture_of_nothing(tmp_path)}; echo '{said}'; exit {nsys_code}")
    assert (done.exit_code, done.stderr) == (code, stderr)
    assert load_run(tmp_path / "run").results[0].variant == "patched"


def test_a_capture_of_an_earlier_run_is_not_taken_for_this_ones(fake, tmp_path):
    (tmp_path / "run").mkdir()
    for suffix in ("nsys-rep", "qdstrm", "sqlite"):
        (tmp_path / "run" / f"nsys.{suffix}").touch()
    fake("exit 3")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["nsys.log"]


def test_what_is_read_back_is_the_capture_and_not_an_export_of_an_earlier_one(captured, nsys, tmp_path):
    runs.run([runs.result("patched")]).write(tmp_path)
    earlier = CaptureFile(version="1999.1").write(tmp_path / "nsys.sqlite")
    capture = shutil.copy(captured, tmp_path / f"nsys{captured.suffix}")
    os.utime(capture, ns=(earlier.stat().st_mtime_ns + 1,) * 2)
    run, _ = read_back(tmp_path, nsys)
    assert run.environment.packages["nsight-systems"] == ".".join(map(str, nsys.version))


def test_only_a_run_can_be_read_back(tmp_path):
    done = CliRunner().invoke(cli.app, ["profile", "--read", str(tmp_path)])
    assert (done.exit_code, done.stderr.startswith(f"error: {tmp_path}/run.json: no such run")) == (2, True)
