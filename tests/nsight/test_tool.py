"""Which nsys is used, what it is known to have, and how what it says is passed on."""

from __future__ import annotations

import subprocess
import uuid

import pytest

from mtp_bench.errors import InputError, RunError
from mtp_bench.nsight import ending, tool
from mtp_bench.nsight.tool import Nsys

HELP = """
usage: nsys profile [<args>] [application] [<application args>]

\t-c, --capture-range=

\t   Possible values are none, cudaProfilerApi, nvtx, hotkey.
\t   Applicable only when used along with
\t   --capture-range option of another kind.

\t--export=<format>[,<format>...]

\t--nvtx-domain-[include|exclude]=

\t-h, --help=[<tag>]

\t--quoted
\t   Note that '--hotkey' is no option here.
"""


@pytest.fixture
def program(tmp_path):
    """Make an executable shell script."""

    def make(name, script="true"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


def test_the_variable_nsys_comes_before_path(program, tmp_path):
    on_path, asked = program("bin/nsys"), program("other/nsys-2026")
    environment = {"PATH": str(tmp_path / "bin")}
    assert tool.find(environment) == str(on_path)
    assert tool.find({**environment, "NSYS": str(asked)}) == str(asked)


def test_the_variable_nsys_must_name_a_program(tmp_path):
    with pytest.raises(InputError, match=f"NSYS={tmp_path}/none: no such program; set it to the path of nsys"):
        tool.find({"PATH": "", "NSYS": f"{tmp_path}/none"})


def test_of_the_usual_folders_the_newest_is_taken(monkeypatch, program, tmp_path):
    program("opt/2024.5.1/bin/nsys")
    newest = program("opt/2025.10.1/bin/nsys")
    program("opt/2025.2.1/bin/nsys")
    monkeypatch.setattr(tool, "_PLACES", (f"{str(tmp_path)[1:]}/opt/*/bin/nsys",))
    assert tool.find({"PATH": ""}) == str(newest)


def test_without_nsys_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(tool, "find", lambda: None)
    with pytest.raises(InputError, match=r"nsys is not on PATH nor in the usual folders; install .* or set NSYS to"):
        tool.installed()


def test_an_nsys_that_does_not_run_is_one_line(monkeypatch, program):
    path = program("nsys", "echo 'libfoo.so: cannot open shared object file' >&2; exit 127")
    monkeypatch.setenv("NSYS", str(path))
    with pytest.raises(RunError) as error:
        tool.installed()
    assert str(error.value) == f"{path} does not run: libfoo.so: cannot open shared object file"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVIDIA Nsight Systems version 2022.4.2.1-df9881f\n", (2022, 4, 2, 1)),
        ("NVIDIA Nsight Systems version 2025.6.1.190-256136914041v0\n", (2025, 6, 1, 190)),
        ("", ()),
    ],
)
def test_the_version_is_read(text, version):
    assert tool.parse_version(text) == version


def test_options_are_those_of_its_own_help(program):
    nsys = Nsys(str(program("nsys", f"cat << 'END'\n{HELP}\nEND")), (2026, 1))
    assert nsys.profile_options == {"capture-range", "export", "nvtx-domain-", "help", "quoted"}


def test_the_real_help_has_what_a_profile_needs(nsys):
    assert nsys.profile_options >= {"capture-range", "capture-range-end", "nvtx-capture", "kill", "sample", "env-var"}
    assert nsys.options("launch") >= {"session-new", "trace"}
    assert nsys.options("start") >= {"session", "output", "sample"}


@pytest.mark.parametrize(
    ("stdout", "stderr", "words"),
    [
        ("", "\nunrecognised option '--x'\n\nusage: nsys profile\n", "unrecognised option '--x'"),
        ("Generated:\n", "", "Generated:"),
        ("", "Exporting: [1%   ]\rExporting: [==100%]\rExportation error: no\n", "Exportation error: no"),
        ("", "\x1b[31mred\x1b[0m \x07bell\n", "[31mred [0m bell"),
        ("", "", "nothing, with exit code 3"),
    ],
)
def test_what_it_said_is_one_clean_line(stdout, stderr, words):
    assert tool.said(subprocess.CompletedProcess([], 3, stdout, stderr)) == words


def test_what_does_not_end_is_ended(program):
    path = program("nsys", "sleep 60")
    with pytest.raises(RunError, match=r"nsys sessions did not end within 0\.2 s"):
        Nsys(str(path), ()).ask("sessions", "list", seconds=0.2)


@pytest.mark.parametrize(
    ("nvtx", "nsys_version", "why"),
    [
        ("0.2.11", (2022, 4, 2), ""),
        (
            "0.2.12",
            (2022, 4, 2),
            "0.2.12 loses all ranges silently under nsys 2022.4: use nsys 2024 or later, or nvtx ",
        ),
        ("0.2.17", (2023, 4), "0.2.17 loses all ranges silently under nsys 2023.4"),
        ("0.2.17", (2024, 1), ""),
        ("0.2.17", (), ""),
        (None, (2026, 1), "not installed: pip install nvtx"),
    ],
)
def test_pairs_of_versions_that_lose_every_range(nvtx, nsys_version, why):
    found = tool.why_ranges_are_lost(nvtx, nsys_version)
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_with_nsys_end_its_agent_and_its_program(nsys, program, tmp_path):
    """They lead sessions of their own, and would be left where nsys hangs and is killed."""
    hanging = program(f"hang-{uuid.uuid4().hex}", "sleep 60")
    command = [nsys.path, "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", f"--output={tmp_path}/a"]
    with pytest.raises(RunError, match=r"nsys profile did not end within 2 s"):
        tool.run_quietly([*command, str(hanging)], seconds=2)
    assert [found.arguments for found in ending._processes() if hanging.name in " ".join(found.arguments)] == []
