"""From what nsys leaves to SQLite, with the real importer and export."""

from __future__ import annotations

import os
import shutil
import sqlite3

import pytest

from mtp_bench.errors import InputError, RunError
from mtp_bench.nsight import convert
from mtp_bench.nsight.convert import importer, to_sqlite
from mtp_bench.nsight.tool import Nsys


def texts(path):
    with sqlite3.connect(path) as export:
        rows = export.execute(
            "SELECT coalesce(text, value) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId "
            "WHERE eventType IN (59, 60) ORDER BY start"
        )
        return [text for (text,) in rows]


@pytest.fixture
def capture(captured, tmp_path):
    """A copy of the real capture, alone in a folder."""
    (tmp_path / "here").mkdir()
    return shutil.copy(captured, tmp_path / "here" / f"real{captured.suffix}")


def test_a_real_capture_becomes_sqlite_beside_it(capture, nsys):
    found = to_sqlite(capture, nsys)
    assert found == capture.with_suffix(".sqlite")
    assert texts(found) == ["run", "depth:0", "depth:1", "depth:2"]
    assert {path.suffix for path in capture.parent.iterdir()} == {capture.suffix, ".nsys-rep", ".sqlite"}


def test_what_is_there_already_is_taken_until_the_capture_is_newer(capture, nsys):
    found = to_sqlite(capture, nsys)
    found.write_text("as it was")
    assert to_sqlite(capture, Nsys("/nowhere/nsys", ())).read_text() == "as it was"
    os.utime(capture, ns=(found.stat().st_mtime_ns + 1,) * 2)
    assert texts(to_sqlite(capture, nsys))[0] == "run"


def test_an_sqlite_file_is_taken_as_it_is(tmp_path):
    path = tmp_path / "a.sqlite"
    path.touch()
    assert to_sqlite(path) == path


def test_where_nothing_can_be_written_it_goes_to_a_temporary_folder(monkeypatch, capture, nsys):
    monkeypatch.setattr(convert.os, "access", lambda path, mode: False)
    found = to_sqlite(capture, nsys)
    assert texts(found)[0] == "run"
    assert found.parent.name.startswith("mtp-bench-")
    assert [*capture.parent.iterdir()] == [capture]
    shutil.rmtree(found.parent)


@pytest.mark.parametrize("suffix", [".nsys-rep", ".qdstrm"])
@pytest.mark.parametrize("content", [b"", b"hello\n", "half"])
def test_what_is_no_capture_is_said_in_one_line_with_what_nsys_said(suffix, content, captured, nsys, tmp_path):
    path = tmp_path / f"bad{suffix}"
    if content == "half":
        whole = captured if captured.suffix == suffix else to_sqlite(captured, nsys).with_suffix(suffix)
        content = whole.read_bytes()[: whole.stat().st_size // 2]
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        to_sqlite(path, nsys)
    verb = "export" if suffix == ".nsys-rep" else "import"
    assert str(error.value).startswith(f"{path}: ")
    assert f"{nsys.name} cannot {verb} it: " in str(error.value)
    assert "\n" not in str(error.value)
    assert [*tmp_path.iterdir()] == [path]


def test_files_that_cannot_be_captures(tmp_path):
    for path, message in (
        (tmp_path / "none.nsys-rep", "no such file"),
        (tmp_path, "not a file"),
        (tmp_path / "trace.txt", "not a capture of Nsight Systems; expected .nsys-rep, .sqlite or .qdstrm"),
    ):
        if path.suffix == ".txt":
            path.touch()
        with pytest.raises(InputError) as error:
            to_sqlite(path)
        assert str(error.value) == f"{path}: {message}"


def test_without_an_importer_it_is_said_where_the_stream_can_be_read(monkeypatch, nsys, tmp_path):
    monkeypatch.setattr(convert, "importer", lambda nsys: None)
    stream = tmp_path / "nsys.qdstrm"
    stream.touch()
    with pytest.raises(RunError) as error:
        to_sqlite(stream, nsys)
    assert str(error.value) == (
        f"{stream}: {nsys.name} has no QdstrmImporter here, so it cannot become a report; take it to a machine with "
        "all of Nsight Systems and run QdstrmImporter -i nsys.qdstrm, then mtp-bench import nsys.nsys-rep"
    )


def test_the_importer_is_found_along_links_to_nsys(tmp_path):
    """As Debian has it: a link to a link, and the importer beside the middle one."""
    target = tmp_path / "lib/x/target-linux-x64/nsys"
    middle = tmp_path / "lib/nsight/bin/nsys"
    program = tmp_path / "bin/nsys"
    found = tmp_path / "lib/nsight/host-linux-x64/QdstrmImporter"
    for path in (target, middle, program, found):
        path.parent.mkdir(parents=True)
    target.touch()
    found.touch()
    middle.symlink_to("../../x/target-linux-x64/nsys")
    program.symlink_to("../lib/nsight/bin/nsys")
    assert importer(Nsys(str(program), ())) == found
