"""The folder of a run: how it is named, and its reports beside ``run.json``."""

from __future__ import annotations

import datetime
from pathlib import Path

from mtp_bench.errors import InputError
from mtp_bench.results import FILE_NAME, Run, load_run

REPORT_NAME, PAGE_NAME = "report.md", "report.html"


class RunFolder:
    """Where a run goes: the folder asked for, else one named by time and device, known once the device is."""

    def __init__(self, asked: Path | None) -> None:
        self.path = asked
        self._before: int | None = None

    def of_device(self, spec: str) -> Path:
        """The folder of a run on the device ``spec``."""
        if self.path is None:
            now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
            stem = Path("reports") / f"{now}-{spec.replace(':', '-')}"
            self.path, again = stem, 2
            while self.path.exists():
                self.path, again = stem.with_name(f"{stem.name}-{again}"), again + 1
        self._before = self._written_at()
        return self.path

    def what_is_done(self) -> Run | None:
        """What an interrupted run has written; None where it wrote nothing, whatever an earlier run left there."""
        if self.path is None or self._written_at() == self._before:
            return None
        return load_run(self.path)

    def keep(self) -> str:
        """After an interruption, write the reports of what ``run.json`` holds already. Return what to say, if any."""
        run = self.what_is_done()
        if run is None:
            return ""
        self.write_report(run)
        return f"kept {len(run.results)} results in {self.path}"

    def _written_at(self) -> int | None:
        assert self.path is not None
        file = self.path / FILE_NAME
        return file.stat().st_mtime_ns if file.is_file() else None

    def write_report(self, run: Run) -> Path:
        """Write the reports of ``run`` into the folder, which the run has named by now; return the path of one."""
        assert self.path is not None
        return write_report(run, self.path)


def write_report(run: Run, folder: Path) -> Path:
    """Write ``report.md`` and ``report.html`` of ``run`` into ``folder``; InputError where that cannot be."""
    from mtp_bench.report import html, markdown

    for name, render in ((REPORT_NAME, markdown.run_report), (PAGE_NAME, html.run_report)):
        path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(render(run), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}; choose another folder with --out") from None
    return folder / REPORT_NAME
