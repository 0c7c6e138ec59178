"""From what nsys leaves behind to what can be read: ``.qdstrm`` -> ``.nsys-rep`` -> ``.sqlite``.

nsys converts by itself where it finds its importer. Debian's does not find it, though it is installed; and the nodes of
a cluster often have the part of Nsight Systems that captures without the part that imports.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mtp_bench.errors import InputError, RunError
from mtp_bench.nsight import tool
from mtp_bench.nsight.tool import Nsys

STREAM, REPORT, SQLITE = ".qdstrm", ".nsys-rep", ".sqlite"
_IMPORTER = "host-linux-*/QdstrmImporter"
_INSTALLS = ("usr/lib/nsight-systems", "opt/nvidia/nsight-systems*/*", "usr/local/cuda*/nsight-systems*")
_CONVERSION_SECONDS = 3600


def to_sqlite(path: Path, nsys: Nsys | None = None) -> Path:
    """The SQLite export of a capture: ``path`` itself, or made beside it from a ``.nsys-rep`` or ``.qdstrm``.

    An export that is there and not older than ``path`` is taken as it is. Where nothing can be written beside the file
    it goes to a temporary folder, which lasts as long as this process. ``nsys`` is by default the installed one.

    Raises InputError where ``path`` is no capture that this nsys can read, or there is no nsys, and RunError where the
    installation lacks what the conversion needs.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file" if not path.exists() else f"{path}: not a file")
    if path.suffix == SQLITE:
        return path
    if path.suffix not in (STREAM, REPORT):
        raise InputError(f"{path}: not a capture of Nsight Systems; expected {REPORT}, {SQLITE} or {STREAM}")
    ready = path.with_suffix(SQLITE)
    if _is_up_to_date(ready, path):
        return ready
    nsys = nsys or tool.installed()
    report = path if path.suffix == REPORT else _import(path, nsys)
    with _writing(report, SQLITE) as (partial, target):
        done = nsys.ask(
            "export",
            "--type=sqlite",
            "--force-overwrite=true",
            f"--output={partial}",
            str(report.absolute()),
            seconds=_CONVERSION_SECONDS,
        )
        if done.returncode != 0 or not partial.is_file():
            raise InputError(
                f"{report}: {nsys.name} cannot export it: {tool.said(done)} "
                "(a report is read by the nsys that wrote it, or by a newer one)"
            )
        os.replace(partial, target)
    return target


def importer(nsys: Nsys) -> Path | None:
    """The importer that belongs to ``nsys``, else the newest installed; None without one."""
    beside = [path for folder in _folders_of(nsys.path) for path in folder.glob(_IMPORTER)]
    if beside:
        return beside[0]
    installs = [path for place in _INSTALLS for path in Path("/").glob(f"{place}/{_IMPORTER}")]
    return max(installs, key=lambda path: tool.numbers(str(path))) if installs else None


def _import(stream: Path, nsys: Nsys) -> Path:
    """The ``.nsys-rep`` of a ``.qdstrm``."""
    ready = stream.with_suffix(REPORT)
    if _is_up_to_date(ready, stream):
        return ready
    program = importer(nsys)
    if program is None:
        raise RunError(
            f"{stream}: {nsys.name} has no QdstrmImporter here, so it cannot become a report; take it to a machine "
            f"with all of Nsight Systems and run QdstrmImporter -i {stream.name}, then mtp-bench import {ready.name}"
        )
    with _writing(stream, REPORT) as (partial, target):
        done = tool.run_quietly(
            [str(program), "-i", str(stream.absolute()), "-o", str(partial)], seconds=_CONVERSION_SECONDS
        )
        if done.returncode != 0 or not partial.is_file():
            raise InputError(f"{stream}: {program.name} of {nsys.name} cannot import it: {tool.said(done)}")
        os.replace(partial, target)
    return target


def _is_up_to_date(made: Path, source: Path) -> bool:
    return made.is_file() and made.stat().st_mtime_ns >= source.stat().st_mtime_ns


def _folders_of(program: str) -> Iterator[Path]:
    """The installation that holds ``program``, by each symbolic link on the way: Debian's nsys is a link to a link."""
    path = Path(os.path.abspath(program))
    while True:
        yield path.parent.parent
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / os.readlink(path)))


@contextlib.contextmanager
def _writing(source: Path, suffix: str) -> Iterator[tuple[Path, Path]]:
    """(Where to write first, where it belongs), beside ``source`` or else in a temporary folder; the first is removed.

    What is interrupted never looks finished: the second appears in one step.
    """
    folder = source.parent.absolute()
    if not os.access(folder, os.W_OK):
        folder = _temporary_folder()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".mtp-bench-") as scratch:
        yield Path(scratch) / f"capture{suffix}", folder / source.with_suffix(suffix).name


def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="mtp-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
