"""The command line of ``nsys profile``, for the versions that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtp_bench.errors import InputError, RunError
from mtp_bench.nsight.command import command_line, find_output, remove_output
from mtp_bench.nsight.tool import Nsys

OLD = {
    *("trace", "sample", "cpuctxsw", "cudabacktrace", "resolve-symbols", "cuda-memory-usage", "capture-range"),
    *("capture-range-end", "nvtx-capture", "kill", "wait", "export", "stats", "env-var", "force-overwrite", "output"),
}
NEW = {*OLD, "python-backtrace", "python-sampling", "cuda-event-trace"}


class Installed(Nsys):
    """An nsys with these options."""

    def __init__(self, options, version=(2025, 6, 1, 190)):
        super().__init__("/opt/nsys", version)
        object.__setattr__(self, "profile_options", frozenset(options))


def command(options, output="/runs/a/nsys", **asked):
    return command_line(Installed(options), ["mtp-bench", "run"], Path(output), **asked)


def test_of_2022_4():
    assert command(OLD) == [
        *("/opt/nsys", "profile"),
        *("--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cudabacktrace=none", "--resolve-symbols=false"),
        *("--cuda-memory-usage=false", "--capture-range=nvtx", "--nvtx-capture=run@mtp_bench"),
        *("--capture-range-end=stop", "--kill=none", "--wait=primary", "--export=none", "--stats=false"),
        *("--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0", "--force-overwrite=true", "--output=/runs/a/nsys"),
        *("mtp-bench", "run"),
    ]


def test_newer_versions_are_told_what_they_would_do_by_themselves():
    assert {*command(NEW)} - {*command(OLD)} == {
        "--python-backtrace=none", "--python-sampling=false", "--cuda-event-trace=false",
    }  # fmt: skip


def test_where_its_help_cannot_be_read_only_what_all_versions_have_is_passed():
    assert command(()) == [
        *("/opt/nsys", "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--capture-range=nvtx"),
        *("--nvtx-capture=run@mtp_bench", "--capture-range-end=stop", "--kill=none"),
        *("--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0", "--force-overwrite=true", "--output=/runs/a/nsys"),
        *("mtp-bench", "run"),
    ]


def test_the_profiler_api_is_asked_of_the_run():
    found = command(OLD, capture_range="cudaProfilerApi")
    assert "--capture-range=cudaProfilerApi" in found
    assert "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0,MTP_BENCH_CAPTURE_RANGE=cudaProfilerApi" in found
    assert not any(option.startswith("--nvtx-capture") for option in found)


def test_python_backtraces_need_cpu_sampling_and_come_with_the_calls_that_wait():
    found = command(NEW, python_backtrace=True)
    assert {"--python-backtrace=cuda", "--cudabacktrace=sync:0,memory:0", "--sample=process-tree"} <= {*found}
    assert "--resolve-symbols=false" not in found


def test_an_nsys_without_python_backtraces_is_said_so():
    with pytest.raises(InputError) as error:
        command(OLD, python_backtrace=True)
    assert str(error.value) == "--python-backtrace: nsys 2025.6.1.190 has no such option; use nsys 2024 or later"


def test_an_nsys_that_is_too_old_is_said_so():
    with pytest.raises(RunError) as error:
        command(OLD - {"capture-range-end"})
    assert str(error.value) == (
        "nsys 2025.6.1.190 at /opt/nsys is too old: it has no --capture-range-end; use nsys 2022.4 or later"
    )


def test_percent_signs_in_a_path_are_no_patterns_of_nsys():
    assert "--output=/runs/50%% a/nsys" in command(OLD, output="/runs/50% a/nsys")


def test_a_report_is_preferred_to_a_stream_and_both_go_before_the_next_capture(tmp_path):
    output = tmp_path / "nsys.rank1"
    assert find_output(output) is None
    stream, report, other = (tmp_path / f"nsys.rank1{suffix}" for suffix in (".qdstrm", ".nsys-rep", ".log"))
    stream.touch()
    assert find_output(output) == stream
    report.touch()
    other.touch()
    assert find_output(output) == report
    remove_output(output)
    assert [*tmp_path.iterdir()] == [other]
