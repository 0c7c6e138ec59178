"""A run's folder gets both its reports, whole or interrupted, and ``mtp-bench report`` makes them again."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtp_bench.cli import app
from mtp_bench.errors import InputError
from mtp_bench.report import html, markdown
from mtp_bench.run_folder import RunFolder, write_report
from tests import runs


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def reports(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in Path(folder).glob("report.*")}


def expected(run):
    return {"report.md": markdown.run_report(run), "report.html": html.run_report(run)}


def test_both_reports_are_written_and_the_markdown_is_named():
    run = runs.modelled_run()
    assert write_report(run, Path("made/here")) == Path("made/here/report.md")
    assert reports("made/here") == expected(run)


def test_an_interrupted_run_gets_the_reports_of_what_it_has():
    folder = RunFolder(Path("here"))
    run = runs.modelled_run()
    run.write(folder.of_device("sim:h100").with_name("other"))
    assert folder.keep() == ""
    assert reports("here") == {}
    run.write(Path("here"))
    assert folder.keep() == "kept 30 results in here"
    assert reports("here") == expected(run)


def test_the_command_makes_both_again_and_names_the_markdown():
    run = runs.modelled_run()
    run.write(Path("here"))
    done = CliRunner().invoke(app, ["report", "here", "--out", "there"])
    assert done.exit_code == 0
    assert done.stdout.endswith("\nreport: there/report.md\n")
    assert reports("there") == expected(run)
    assert reports("here") == {}


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_a_report_that_cannot_be_written_is_said_so(name):
    Path("here", name).mkdir(parents=True)
    with pytest.raises(
        InputError, match=rf"cannot write here/{name}: Is a directory; choose another folder with --out"
    ):
        write_report(runs.modelled_run(), Path("here"))


def test_names_that_no_file_can_hold_do_not_stop_a_report():
    run = runs.run([runs.result("original"), runs.result("\ud800")])
    write_report(run, Path("here"))
    assert "\\ud800" in reports("here")["report.html"]
