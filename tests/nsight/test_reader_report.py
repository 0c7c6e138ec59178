"""What `mtp-bench import` prints: names that scripts rely on, both times, and no string of a capture that acts."""

import csv
import io
import json
import shutil
import sys

import pytest
from typer.testing import CliRunner

from mtp_bench import cli
from mtp_bench.cli.import_ import _wrapped
from mtp_bench.nsight import read_capture
from mtp_bench.report import capture as report
from tests.nsight.captures import DTOH, EVENT, HTOD, PINNED, CaptureFile

ROW = {"process", "thread", "device", "range", "api", "copy_api", "kind", "op", "site", "stack", "pageable"}
ROW |= {"bytes", "count", "blocked_ns", "copy_ns", "device_idle_ns"}


@pytest.fixture
def capture():
    """Two processes, of which each reads a loss and one waits for an event."""
    made = CaptureFile()
    for process, end in ((100, 1_000_000), (200, 400_000_000)):
        thread = made.thread(process)
        thread.push(0, 900_000_000, "step")
        thread.push(10, 800_000_000, "aten::item")
        thread.launch(20, 30, kernel=(30, end - 5_000))
        thread.copy(100, 20_100, DTOH, PINNED, bytes=4, on_device=(end - 4_000, end - 2_000))
        thread.sync(21_000, end)
        thread.launch(end + 10, end + 20, kernel=(end + 30_000, end + 40_000))
    made.thread(100).sync(850_000_000, 850_050_000, type=EVENT, api="cudaEventSynchronize_v3020")
    made.thread(100).sync(860_000_000, 860_000_100, type=EVENT, api="cudaEventQuery_v3020")
    made.diagnostic(2, "CUDA buffer overflow: 17 events were dropped")
    made.diagnostic(1, "Profiling has started.")
    return made


@pytest.fixture
def run(capture, tmp_path):
    """Write the capture and call `mtp-bench import` with options."""

    def call(*options):
        path = tmp_path / "capture.sqlite"
        if not path.exists():
            capture.write(path)
        result = CliRunner().invoke(cli.app, ["import", str(path), *options], env={"COLUMNS": "100"})
        assert result.exit_code == 0, result.stderr
        return result

    return call


def test_text_says_first_what_the_capture_cannot_tell(run, tmp_path):
    assert (
        run().stdout
        == f"""\
{tmp_path}/capture.sqlite: nsys 2026.2.1.210, export schema 3.25.0
cannot tell:
  device idle of 1 of 3 syncs is unknown: the capture has not both ends of it
  no call chains: where in the code a sync comes from is unknown; profile with --cudabacktrace=sync:0,memory:0, or \
--python-backtrace=cuda, and CPU sampling on
  nsys warning: CUDA buffer overflow: 17 events were dropped

3 syncs in 2 processes: blocked 401.0 ms (401.0 ms in synchronise calls, 0.04 ms in copies), device idle 0.06 ms
blocked: the host waits in the call; device idle: the device has nothing to do from its last work to its next
calls: 2 stream, 0 device, 1 event synchronisations; 1 event queries and 0 stream waits are not syncs
copies: 0 host to device (0 pageable), 2 device to host (0 pageable)

step > aten::item
  2 syncs, dtoh: cudaMemcpyAsync and cudaStreamSynchronize, not pageable, 8 bytes
  blocked 401.0 ms (401.0 ms in synchronise calls, 0.04 ms in copies), device idle 0.06 ms
    process 200, thread 200, device 0: 1, blocked 400.0 ms, device idle 0.03 ms
    process 100, thread 100, device 0: 1, blocked 1.00 ms, device idle 0.03 ms

step
  1 sync, event_sync: cudaEventSynchronize
  blocked 0.05 ms, device idle unknown
    process 100, thread 100, device 0: 1, blocked 0.05 ms, device idle unknown

copies between host and device
  2 device to host, not pageable, 4 bytes each; the host waits in 2
"""
    )


def test_json_has_the_documented_names(run):
    document = json.loads(run("--json").stdout)
    assert document == json.loads(run("--format", "json").stdout)
    assert list(document) == [
        "schema_version",
        "source",
        "missing",
        "diagnostics",
        "totals",
        "not_syncs",
        "syncs",
        "copies",
        "ranges",
    ]
    assert document["source"].keys() == {"kind", "version", "schema", "file"}
    assert document["totals"] == {
        "stream_sync": 2,
        "device_sync": 0,
        "event_sync": 1,
        "dtoh": 2,
        "htod": 0,
        "dtoh_pageable": 0,
        "htod_pageable": 0,
        "syncs": 3,
        "blocked_ns": 979_000 + 399_979_000 + 40_000 + 50_000,
        "copy_ns": 40_000,
        "device_idle_ns": 64_000,
    }
    assert document["not_syncs"] == {"event_query": 1, "stream_wait": 0}
    assert [row.keys() for row in document["syncs"]] == [ROW] * 3
    assert document["syncs"][0]["range"] == ["step", "aten::item"]
    assert document["copies"][0].keys() == {
        *("process", "thread", "device", "range", "direction", "pageable", "bytes", "count", "blocking")
    }


def test_csv_is_a_row_a_sync_and_says_on_standard_error_what_is_missing(run):
    result = run("--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert rows[2] == {
        "process": "100",
        "thread": "100",
        "device": "0",
        "range": "step",
        "api": "cudaEventSynchronize",
        "copy_api": "",
        "kind": "event_sync",
        "op": "",
        "site": "",
        "pageable": "",
        "bytes": "",
        "count": "1",
        "blocked_ns": "50000",
        "copy_ns": "0",
        "device_idle_ns": "",
    }
    assert result.stderr.splitlines()[-1] == "cannot tell: nsys warning: CUDA buffer overflow: 17 events were dropped"


def test_markdown_has_the_same_numbers(run):
    text = run("--format", "markdown").stdout
    calls = "`cudaMemcpyAsync + cudaStreamSynchronize`"
    assert f"| `step > aten::item` | dtoh | {calls} | not pageable | 8 | 2 | 401.0 | 0.04 | 0.06 |  |" in text
    assert "| 100 | 100 | 0 | `step` | event_sync | 1 | 0.05 |  |" in text
    assert "- 2 device to host, not pageable, 4 bytes each; the host waits in 2" in text
    assert "- nsys warning: CUDA buffer overflow: 17 events were dropped" in text


@pytest.mark.parametrize("format_", ["terminal", "markdown"])
def test_top_limits_the_places_and_says_how_many_are_left(run, format_):
    text = run("--top", "1", "--format", format_).stdout
    assert "aten::item" in text
    assert "cudaEventSynchronize" not in text
    assert "1 more place: --top shows more, --json all" in text


def test_top_limits_rows_of_json_and_csv_but_not_totals(run):
    document = json.loads(run("--top", "1", "--json").stdout)
    assert (len(document["syncs"]), len(document["copies"]), document["totals"]["syncs"]) == (1, 1, 3)
    assert len(run("--top", "1", "--format", "csv").stdout.splitlines()) == 2


@pytest.mark.parametrize("options", [["--top", "0"], ["--format", "html"], ["--range"]])
def test_what_the_command_cannot_do(capture, tmp_path, options):
    path = capture.write(tmp_path / "capture.sqlite")
    assert CliRunner().invoke(cli.app, ["import", str(path), *options]).exit_code == 2


def test_range_keeps_what_is_inside(run):
    document = json.loads(run("--range", "aten::*", "--json").stdout)
    assert (document["totals"]["syncs"], document["not_syncs"]["event_query"]) == (2, 0)


HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;http://evil.example\x07click\x1b]8;;\x07",
    "a\rb\nc\td\x00e\x9b31m",
    "<script>alert(1)</script>",
    "[link](http://evil.example) ![x](http://evil.example/x.png) @everyone #1",
    "`code` ``more`` | pipe | \\",
    "[bold red]markup[/]",
    '=HYPERLINK("http://evil.example")',
    "\u202egnp.exe\u2066\u200b\ufeff",
    "שלום עולם",
    "x" * 100_000,
    "",
]


@pytest.fixture(params=HOSTILE, ids=range(len(HOSTILE)))
def hostile(request, capture):
    """A string in every place that a capture has for one."""
    text = request.param
    capture.version = text
    main = capture.thread(100)
    main.push(0, 2_000_000_000, text)
    main.push(0, 2_000_000_000, text, domain=1, registered=True)
    capture.domain(100, 1, text)
    main.sync(1_000_000_000, 1_900_000_000, api=f"cuda{text}Synchronize", chain=[(text, text), (text, "lib.so")])
    capture.diagnostic(3, text)
    return text


@pytest.mark.parametrize("format_", ["terminal", "markdown", "json", "csv"])
def test_strings_do_not_act(run, hostile, format_):
    result = run("--format", format_)
    for output in (result.stdout, result.stderr):
        assert all(char.isprintable() or char == "\n" for char in output)
        if format_ in ("terminal", "markdown"):
            assert max(map(len, output.splitlines()), default=0) < 2_000


def test_markdown_keeps_names_inside_of_code(run, hostile):
    """What is not in a code span holds nothing that Markdown or HTML would take for its own."""
    for line in run("--format", "markdown").stdout.splitlines():
        outside = without_code(line.replace("\\|", ""))
        assert "<" not in outside
        assert "](" not in outside
        assert "@" not in outside
        if line.startswith("| "):
            assert outside.count("|") in (9, 11)


def without_code(line):
    """``line`` without its code spans, as CommonMark finds them."""
    kept, rest = "", line
    while "`" in rest:
        before, rest = rest.split("`", 1)
        fence = "`"
        while rest.startswith("`"):
            fence, rest = fence + "`", rest[1:]
        end = find_run(rest, len(fence))
        kept += before
        if end < 0:
            return kept + fence + rest
        rest = rest[end + len(fence) :]
    return kept + rest


def find_run(text, length):
    """Where a run of exactly ``length`` backticks begins; -1 if nowhere."""
    position = 0
    while (position := text.find("`", position)) >= 0:
        run = len(text[position:]) - len(text[position:].lstrip("`"))
        if run == length:
            return position
        position += run
    return -1


def test_spreadsheets_get_no_formula(tmp_path):
    capture = CaptureFile()
    main = capture.thread(100)
    for start, text in enumerate(("=1+1", "+1", "-1", "@SUM(A1)")):
        main.push(start * 100, start * 100 + 90, text)
        main.blocking_copy(start * 100 + 1, start * 100 + 50, HTOD)
    found = read_capture(capture.write(tmp_path / "capture.sqlite"))
    rows = csv.DictReader(io.StringIO(report.to_csv(found)))
    assert [row["range"] for row in rows] == ["'=1+1", "'+1", "'-1", "'@SUM(A1)"]


def test_lines_are_wrapped_on_a_terminal_only(monkeypatch):
    line = "  two blanks and some words"
    assert _wrapped(line) == line
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "16")
    assert _wrapped(line) == "  two blanks and\n  some words"


def test_ranges_of_mtp_bench_are_shown(run, capture):
    capture.domain(100, 1, "mtp_bench")
    capture.thread(100).range(0, 5_000_000, "run", domain=1)
    for start in (1_000_000, 2_000_000):
        capture.thread(100).range(start, start + 400_000, "step", domain=1)
    assert run().stdout.endswith(
        "\nranges of mtp-bench\n  run: 1, 5.00 ms, process 100\n  run > step: 2, 0.80 ms, process 100\n"
    )
    assert "| `run > step` | 100 | 2 | 0.80 |" in run("--format", "markdown").stdout
    assert json.loads(run("--json").stdout)["ranges"][1] == {
        "process": 100,
        "range": ["run", "step"],
        "count": 2,
        "total_ns": 800_000,
    }


def test_only_some_diagnostics_are_shown(run, capture):
    for number in range(30):
        capture.diagnostic(3, f"failure {number}")
    text = run().stdout
    assert "  nsys error: failure 16\n  and 13 more; --json has all\n" in text
    assert len(json.loads(run("--json").stdout)["diagnostics"]) == 31


def test_a_report_of_a_file_of_nsys_that_cannot_be_converted(tmp_path):
    path = tmp_path / "capture.nsys-rep"
    path.write_bytes(b"not a report")
    result = CliRunner().invoke(cli.app, ["import", str(path)])
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_the_name_of_a_file_does_not_act_in_an_error(tmp_path):
    path = tmp_path / "\x1b[31mcapture.nsys-rep"
    path.write_bytes(b"not a report")
    result = CliRunner().invoke(cli.app, ["import", str(path)])
    assert result.stderr.startswith(
        f"error: {tmp_path}/\\x1b[31mcapture.nsys-rep: " if shutil.which("nsys") else "error: "
    )
    assert "\x1b" not in result.stderr
