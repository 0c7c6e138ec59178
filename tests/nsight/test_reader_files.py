"""Files that are no capture, or a broken one: one line that says what is wrong; and nothing is ever written."""

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtp_bench import cli
from mtp_bench.errors import InputError
from mtp_bench.nsight import read_capture
from tests.nsight.captures import HTOD, CaptureFile

AGAIN = "export it again: nsys export --type sqlite"
NOT_SQLITE = "not an SQLite file, or an encrypted one; expected an export of Nsight Systems"


@pytest.fixture
def capture():
    made = CaptureFile()
    main = made.thread(100)
    main.push(0, 1000, "step")
    main.blocking_copy(10, 100, HTOD, chain=[("f", "lib.so")])
    main.launch(200, 210, kernel=(210, 220))
    made.diagnostic(2, "some events were dropped")
    return made


@pytest.fixture
def path(capture, tmp_path):
    return capture.write(tmp_path / "capture.sqlite")


def refusal(path):
    """Why ``path`` is not read."""
    with pytest.raises(InputError) as error:
        read_capture(path)
    return str(error.value)


def test_the_command_says_it_in_one_line_with_exit_code_2(tmp_path):
    path = tmp_path / "empty.sqlite"
    path.touch()
    result = CliRunner().invoke(cli.app, ["import", str(path), "--json"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: {path}: the file is empty; {AGAIN}\n"


def test_a_file_that_is_not_there(tmp_path):
    assert refusal(tmp_path / "no.sqlite") == f"{tmp_path}/no.sqlite: No such file or directory"


def test_a_folder(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path}: not a file; expected an export of Nsight Systems"


@pytest.mark.parametrize("content", [b"id,value\n1,2\n", random.Random(1).randbytes(8192), b"SQLite format 2\0" * 20])
def test_other_files_and_encrypted_ones(tmp_path, content):
    path = tmp_path / "other.sqlite"
    path.write_bytes(content)
    assert refusal(path) == f"{path}: {NOT_SQLITE}"


def test_a_header_of_sqlite_before_anything(tmp_path):
    """As ciphers write it that leave the header plain."""
    path = tmp_path / "encrypted.sqlite"
    path.write_bytes(b"SQLite format 3\0" + random.Random(1).randbytes(8176))
    assert refusal(path).startswith(f"{path}: ")


@pytest.mark.parametrize("kept", [50, 4096, 10_000])
def test_truncated_files(path, kept):
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:kept])
    reason = "it ends within its header" if kept < 100 else f"it has {kept:,} of {size:,} bytes"
    assert refusal(path) == f"{path}: the file is truncated, {reason}; {AGAIN}"


def test_damaged_files(path):
    content = bytearray(path.read_bytes())
    for page in range(1, len(content) // 4096):
        content[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path}: the file is damaged or truncated (")


def test_an_sqlite_file_of_something_else(tmp_path):
    path = tmp_path / "history.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE urls (id INTEGER, url TEXT)")
    assert refusal(path) == (
        f"{path}: an SQLite file, but not an export of Nsight Systems: it has none of its tables; "
        "make one with nsys export --type sqlite"
    )


def test_a_locked_file(path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    assert (
        refusal(path) == f"{path}: the file is locked: another program is writing to it; try again when it has finished"
    )
    connection.close()


def test_a_file_whose_writer_was_killed(path):
    script = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA cache_size = 1')\n"
        "connection.execute('BEGIN')\n"
        "connection.execute('CREATE TABLE more AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT "
        "9000) SELECT i, hex(randomblob(50)) AS text FROM n')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, path], check=True)
    assert refusal(path) == (
        f"{path}: the program that wrote the file was stopped half way (capture.sqlite-journal is left); {AGAIN}"
    )


@pytest.mark.parametrize("schema", ["2.1.4", "4.0.0"])
def test_schemas_that_are_not_known(capture, tmp_path, schema):
    capture.schema = schema
    path = capture.write(tmp_path / "capture.sqlite")
    assert refusal(path) == (
        f"{path}: export schema {schema} is not known; 3.0 to 3.25 are, which nsys 2022.4 to 2026.2 export"
    )


def test_a_newer_schema_is_read_with_a_warning(capture, tmp_path):
    capture.schema = "3.99.1"
    found = read_capture(capture.write(tmp_path / "capture.sqlite"))
    assert found.totals.htod == 1
    assert found.missing[-2] == "schema 3.99.1 is newer than 3.25, the newest that was tried: check a number or two"


def test_a_file_that_does_not_say_its_schema_is_read_with_a_warning(capture, tmp_path):
    found = read_capture(capture.write(tmp_path / "capture.sqlite", without={"META": None}))
    assert (found.totals.htod, found.missing[-2]) == (1, "the file does not say of which schema it is")


@pytest.mark.parametrize("log", ["folded in", "pending", "written on"])
def test_write_ahead_mode(path, log):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    if log == "folded in":
        connection.close()
    else:
        connection.execute("INSERT INTO DIAGNOSTIC_EVENT (severity, text) VALUES (3, 'late')")
        connection.commit()
    if log == "pending":  # as a program leaves it that was killed
        pending = {name: (path.parent / name).read_bytes() for name in (path.name, f"{path.name}-wal")}
        connection.close()
        for name, content in pending.items():
            (path.parent / name).write_bytes(content)
    before = {found.name: found.read_bytes() for found in path.parent.iterdir()}
    found = read_capture(path)
    assert found.totals.syncs == 1
    assert [said.text for said in found.diagnostics][1:] == ([] if log == "folded in" else ["late"])
    assert path.read_bytes() == before[path.name]
    if log != "pending":
        assert {found.name for found in path.parent.iterdir()} == set(before)
    connection.close()


def test_nothing_is_written(path):
    before = path.read_bytes(), path.stat().st_mtime_ns
    path.chmod(0o444)
    path.parent.chmod(0o555)
    assert read_capture(path).totals.syncs == 1
    path.parent.chmod(0o755)
    assert ((path.read_bytes(), path.stat().st_mtime_ns), [*path.parent.iterdir()]) == (before, [path])


@pytest.mark.skipif(not Path("/proc/self/mounts").exists() or os.geteuid() != 0, reason="needs root to mount")
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_file_system_that_cannot_be_written(path, tmp_path, mode):
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.close()
    mounted = subprocess.run(["mount", "--bind", "-o", "ro", tmp_path, tmp_path], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("mount is not permitted here")
    try:
        if not os.access(tmp_path, os.W_OK):
            assert read_capture(path).totals.syncs == 1
    finally:
        subprocess.run(["umount", tmp_path], check=True)


TABLES = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": "no CUDA calls",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "no record of synchronisations",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "no record of copies",
    "CUPTI_ACTIVITY_KIND_KERNEL": "device idle of 1 of 1 syncs is unknown",
    "NVTX_EVENTS": "no NVTX ranges",
    "CUDA_CALLCHAINS": "no call chains",
    "StringIds": "no CUDA calls (table StringIds)",
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_is_not_there_is_said_first(capture, tmp_path, table):
    found = read_capture(capture.write(tmp_path / "capture.sqlite", without={table: None}))
    assert [text for text in found.missing if text.startswith(TABLES[table])]


def test_launches_without_kernels_make_device_idle_too_high(capture, tmp_path):
    capture.thread(100).copy(300, 310, HTOD, on_device=(310, 320))
    found = read_capture(capture.write(tmp_path / "capture.sqlite", without={"CUPTI_ACTIVITY_KIND_KERNEL": None}))
    assert found.totals.device_idle_ns == 310 - 20
    assert (
        "no record of kernels (table CUPTI_ACTIVITY_KIND_KERNEL) though there are 1 launches: "
        "device idle is that between copies and memsets, and too high"
    ) in found.missing


def test_without_cuda_trace(tmp_path):
    capture = CaptureFile()
    capture.thread(100).push(0, 10, "step")
    found = read_capture(capture.write(tmp_path / "capture.sqlite"))
    assert found.missing == (
        "no CUDA trace: there is nothing about syncs, copies and device idle; profile with --trace=cuda,nvtx",
    )
    assert (found.syncs, found.totals.syncs, found.totals.device_idle_ns) == ((), 0, None)


def test_without_calls_the_records_are_what_there_is(tmp_path):
    capture = CaptureFile()
    main = capture.thread(100)
    main.sync(0, 50)
    main.sync(60, 70, type=2)
    main.sync(80, 90, type=1)
    found = read_capture(capture.write(tmp_path / "capture.sqlite", without={"CUPTI_ACTIVITY_KIND_RUNTIME": None}))
    assert [(row.kind, row.blocked_ns) for row in found.syncs] == [("stream_sync", 50)]
    assert found.not_syncs.stream_wait == 1
    assert found.missing[0].startswith("no CUDA calls (table CUPTI_ACTIVITY_KIND_RUNTIME): which call waited")


COLUMNS = [
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId"),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "callchainId"),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"),
    ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "streamId"),
    ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "contextId"),
    ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "syncType"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "srcKind"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "deviceId"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind"),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId"),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"),
    ("NVTX_EVENTS", "domainId"),
    ("NVTX_EVENTS", "textId"),
    ("NVTX_EVENTS", "text"),
    ("NVTX_EVENTS", "eventType"),
    ("CUDA_CALLCHAINS", "module"),
    ("DIAGNOSTIC_EVENT", "severity"),
]
NEEDED = {"globalTid", "syncType", "copyKind", "globalPid", "eventType", "module", "severity"}


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_column_that_is_not_there(capture, tmp_path, table, column):
    """Is done without, or its table is, and then that is said."""
    found = read_capture(capture.write(tmp_path / "capture.sqlite", without={table: [column]}))
    said = f"table {table} has no column {column}" in found.missing
    assert said == (column in NEEDED)


def test_values_of_the_wrong_type_are_no_traceback(capture, tmp_path):
    """SQLite stores anything in any column."""
    path = capture.write(tmp_path / "capture.sqlite")
    with sqlite3.connect(path) as connection:
        for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_KERNEL"):
            connection.execute(f"INSERT INTO {table} (start, \"end\") VALUES ('soon', 'later')")
            connection.execute(f'INSERT INTO {table} (start, "end") VALUES (50, 10)')
            connection.execute(f"UPDATE {table} SET correlationId = 'x' || correlationId")
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET bytes = x'00', deviceId = 'gpu', srcKind = 'host'")
        connection.execute("UPDATE NVTX_EVENTS SET text = x'ff00ff', domainId = 'd', globalTid = 1.5")
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 2e30, globalPid = 'p'")
        connection.execute("UPDATE StringIds SET value = CAST(x'ff' || value AS TEXT)")
        connection.execute("UPDATE DIAGNOSTIC_EVENT SET text = x'ff1b'")
    read_capture(path)


def test_an_interrupt_ends_the_reading(tmp_path):
    """A query over a large table does not keep Ctrl-C waiting."""
    script = (
        "import sqlite3, sys, time, os, signal, threading\n"
        "from mtp_bench.nsight.sqlite import open_export\n"
        "from pathlib import Path\n"
        "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "with open_export(Path(sys.argv[1])) as export:\n"
        "    list(export.rows('WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i FROM n WHERE i < 0'))\n"
    )
    capture = CaptureFile()
    capture.kernel(0, 1)
    path = capture.write(tmp_path / "capture.sqlite")
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=20, check=False)
    assert "KeyboardInterrupt" in done.stderr


@pytest.mark.parametrize("seed", range(60))
def test_any_bytes_may_be_wrong(path, seed):
    """Wrong bytes are an error in one line or a report, which nothing in them can make act."""
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 5, 50, 500])):
        content[chance.randrange(16, len(content))] = chance.randrange(256)
    path.write_bytes(content[: chance.choice([len(content), chance.randrange(100, len(content))])])
    result = CliRunner().invoke(
        cli.app, ["import", str(path), "--format", chance.choice(["terminal", "markdown", "csv"])]
    )
    assert result.exit_code in (0, 2), result.exception
    assert all(char.isprintable() or char == "\n" for char in result.output)
