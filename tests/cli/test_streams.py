"""Standard output and error that are closed, full, gone or not UTF-8, and signals: one line at most, no traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mtp_bench import cli
from tests import runs


@pytest.fixture
def shell(tmp_path):
    """Run a line of shell in a folder that holds the run ``here``; ``$M`` is the command."""
    text = "caf\u00e9 \u2192 x"
    found = runs.modelled_run([0.0]).model_copy(update={"command": text})
    found.workloads["packed-sft"]["title"] = text
    found.write(tmp_path / "here")
    found.write(tmp_path / "caf\u00e9")

    def call(line, **environment):
        return subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            cwd=tmp_path,
            timeout=60,
            check=False,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(cli.__file__).parents[2]),
                "M": f"{sys.executable} -m mtp_bench",
                **environment,
            },
        )

    return call


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}])
@pytest.mark.parametrize("command", ["report here", "compare here", "compare here --format markdown", "list profiles"])
def test_what_the_encoding_lacks_is_escaped(shell, command, environment):
    done = shell(f"$M {command}", **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert command != "report here" or b"caf\\xe9 \\u2192 x" in done.stdout or "caf\u00e9".encode() in done.stdout


@pytest.mark.parametrize(("format_", "declared"), [("html", b'charset="utf-8"'), ("junit", b'encoding="UTF-8"')])
def test_a_document_that_names_utf_8_is_in_it_whatever_the_locale(shell, format_, declared):
    done = shell(f"$M compare here caf\u00e9 --format {format_}", PYTHONIOENCODING="latin-1", PYTHONUTF8="1")
    assert declared in done.stdout
    assert "original (caf\u00e9)" in done.stdout.decode("utf-8")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_like_dev_null(shell, closed):
    done = shell(f"$M report here --out there {closed}; echo $? > code; cat there/report.md")
    assert b"# mtp-bench\n\nmtp-bench 0.1.0 on sim:h100" in done.stdout
    assert done.stderr == b""
    assert shell("cat code").stdout == b"0\n"


@pytest.mark.parametrize("command", ["report here", "compare here", "list devices", "--help", "--version"])
def test_a_full_disk_under_standard_output_is_one_line_and_1(shell, command):
    done = shell(f"$M {command} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == b"error: cannot write to standard output: No space left on device\n"


def test_a_full_disk_under_standard_error_changes_no_exit_code(shell):
    assert shell("$M report none 2> /dev/full").returncode == 2


def test_a_reader_that_has_gone_is_no_error_message(shell):
    done = shell("$M report here | true; echo ${PIPESTATUS[0]}")
    assert done.stdout in (b"1\n", b"0\n")
    assert done.stderr == b""


def test_a_folder_whose_name_is_no_utf_8_is_printed_with_escapes(shell):
    done = shell("$M report here --out $'sur\\xff'")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"report: sur\\udcff/report.md\n")
    done = shell("$M report $'none\\xff'")
    assert (done.returncode, done.stderr[:19]) == (2, b"error: none\\udcff: ")


INTERRUPTED_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder())
from mtp_bench.__main__ import main
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_during_the_first_imports_is_no_traceback(tmp_path, number, code):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT.format(number=int(number))],
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # the tests may run under nohup
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")
