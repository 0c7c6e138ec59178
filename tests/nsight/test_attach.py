"""Attaching to a user's own program: the ranges of two lines, and sessions started and stopped from outside."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtp_bench import cli
from mtp_bench.nsight import attach, read_capture, tool
from mtp_bench.nsight.command import command_line, find_output, program_environment
from mtp_bench.nsight.convert import to_sqlite
from mtp_bench.nsight.tool import Nsys

SCRIPT = str(Path(__file__).with_name("training_script.py"))


def counts(capture, nsys):
    return Counter({found.path: found.count for found in read_capture(to_sqlite(capture, nsys)).ranges})


def test_two_lines_in_a_training_script_give_a_capture_of_the_steps_asked_for(nsys, tmp_path):
    output = tmp_path / "training"
    done = tool.run_quietly(
        command_line(nsys, [sys.executable, SCRIPT, "8", "0.01"], output), environment=program_environment()
    )
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "trained")
    assert counts(find_output(output), nsys) == {("run",): 1, ("run", "step"): 3}


@pytest.fixture
def session(nsys):
    """A program in a session of nsys, under way."""
    name = f"mtp-bench-test-{uuid.uuid4().hex}"
    program = subprocess.Popen(
        [nsys.path, "launch", f"--session-new={name}", "--trace=cuda,nvtx", sys.executable, SCRIPT, "200", "0.05"],
        env=program_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not any((found.name, found.launched) == (name, 1) for found in attach.sessions(nsys)):
        assert program.poll() is None
        time.sleep(0.1)
    yield name
    nsys.ask("shutdown", f"--session={name}", "--kill=sigkill")
    program.wait()


def command(*arguments):
    done = CliRunner().invoke(cli.app, ["attach", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_session_is_started_stopped_and_asked_while_its_program_runs_on(session, nsys, tmp_path):
    def status():
        code, said, _ = command("--session", session, "status")
        return code, said.partition(", there for")[0]

    assert status() == (0, f"{session}: not collecting (Launched)")
    code, _, said = command("--session", session, "stop")
    assert (code, said) == (2, f"error: --session {session}: it collects nothing; start it first\n")

    for name in ("one", "two"):  # as often as one likes
        output = tmp_path / "new" / name
        assert command("--session", session, "start", "--out", str(output)) == (
            0,
            f"collecting in session {session}; its capture will be {output}.*\n",
            "",
        )
        assert status() == (0, f"{session}: collecting (Collection)")
        code, _, said = command("--session", session, "start")
        assert (code, said) == (2, f"error: --session {session}: it collects already; stop it first\n")
        time.sleep(0.5)
        code, said, _ = command("--session", session, "stop")
        capture = find_output(output)
        assert (code, said) == (0, f"capture: {capture}\nread it with: mtp-bench import {capture}\n")
        steps = counts(capture, nsys)
        assert 5 <= steps["step",] <= 60
        assert steps.keys() <= {("step",), ("run",), ("run", "step")}
        assert status() == (0, f"{session}: not collecting (Launched)")

    code, _, said = command("--session", session, "start", "--out", str(output))
    there = find_output(output)
    assert (code, said) == (2, f"error: {there} is there already; choose another file with --out\n")


def test_a_session_that_is_not_there_is_said_with_those_that_are(session):
    code, _, said = command("--session", f"{session}x", "start")
    assert (code, said) == (2, f"error: --session {session}x: no such session; did you mean '{session}'?\n")


@pytest.mark.parametrize("action", ["start", "stop", "status"])
def test_without_any_session_it_is_said_how_to_start_one(action, monkeypatch):
    monkeypatch.setattr(attach, "sessions", lambda nsys: [])
    monkeypatch.setattr(tool, "installed", lambda: Nsys("nsys", ()))
    code, _, said = command("--session", "job7", action)
    assert (code, said) == (
        2,
        "error: --session job7: no session of nsys here, of this user and with this TMPDIR; start the program with "
        "nsys launch --session-new=job7 --trace=cuda,nvtx PROGRAM\n",
    )


def test_what_nsys_lists(monkeypatch):
    listed = (
        "              ID         TIME                       STATE LAUNCH NAME\n"
        "         1013410        00:01                    Launched      1 j4\n"
        "        10345602     01:02:35                  Collection     12 profile-345586 of me \n"
        "          106097        00:41           DelayedCollection      0 late\n"
    )
    done = subprocess.CompletedProcess([], 0, listed, "")
    monkeypatch.setattr(Nsys, "ask", lambda self, *arguments, **kwargs: done)
    assert attach.sessions(Nsys("nsys", ())) == [
        attach.Session("j4", "Launched", "00:01", 1),
        attach.Session("profile-345586 of me", "Collection", "01:02:35", 12),
        attach.Session("late", "DelayedCollection", "00:41", 0),
    ]


@pytest.fixture
def fake(monkeypatch):
    """An nsys with one session ``j`` in ``state``, whose start and stop answer as told."""

    def install(state, code=0, stdout="", stderr=""):
        monkeypatch.setattr(attach, "sessions", lambda nsys: [attach.Session("j", state, "00:01", 1)])
        monkeypatch.setattr(Nsys, "ask", lambda self, *a, **k: subprocess.CompletedProcess([], code, stdout, stderr))
        monkeypatch.setattr(tool, "installed", lambda: Nsys("nsys", (2022, 4)))

    return install


def test_a_start_that_nsys_passes_over_in_silence_is_found(fake, tmp_path):
    fake("Launched")
    code, _, said = command("--session", "j", "start", "--out", str(tmp_path / "a"))
    assert (code, said) == (
        1, "error: nsys 2022.4 did not start to collect in session j: nothing, with exit code 0\n"
    )  # fmt: skip


def test_a_capture_that_went_elsewhere_is_found_there(fake, tmp_path):
    """nsys keeps a capture in the temporary folder where it cannot write it to the place that it was told."""
    elsewhere = tmp_path / "nsys-report-db2b.qdstrm"
    elsewhere.touch()
    fake("Collection", 0, f"Generating '{elsewhere}'\nGenerated:\n    {elsewhere}\n", "Failed to create 'x'\n")
    code, said, _ = command("--session", "j", "stop")
    assert (code, said.splitlines()[0]) == (0, f"capture: {elsewhere}")


def test_a_stop_without_a_capture_is_one_line(fake):
    fake("Collection", 1, "", "The request is not applicable in this state: StopRequest.\n")
    code, _, said = command("--session", "j", "stop")
    assert (code, said) == (
        1,
        "error: nsys 2022.4 wrote no capture of session j: The request is not applicable in this state: StopRequest.\n",
    )


def test_only_a_start_takes_a_file(tmp_path):
    code, _, said = command("--session", "j", "stop", "--out", str(tmp_path / "a"))
    assert (code, said) == (2, "error: --out: stop takes none; the capture is where start was told to put it\n")
