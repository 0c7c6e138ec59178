"""What an argument of ``compare`` stands for: a ``run.json``, a run's folder, a folder of runs, or a glob of these."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from mtp_bench.errors import InputError
from mtp_bench.results import FILE_NAME, Run, load_run


def load_sides(arguments: Sequence[str]) -> list[tuple[str, list[tuple[str, Run]]]]:
    """The sides of a comparison, an argument each: (label, [(label of the run, run), ...]).

    A run that an argument names in two ways counts once. Raises InputError, which names the file, for an argument that
    names no run and for a file that is none.
    """
    found = [_files(argument) for argument in arguments]
    loaded = {file: load_run(file) for files in found for file in files}
    return [
        (label, [(name, loaded[file]) for name, file in zip(_run_labels(files), files, strict=True)])
        for label, files in zip(_labels(arguments, found), found, strict=True)
    ]


def _files(argument: str) -> list[Path]:
    """The ``run.json`` files that an argument names, in order of their paths, each once."""
    if not argument:  # a shell's variable that is not set; as a path it would be the folder that one is in
        raise InputError("an empty argument names no run; give a run.json or the folder that holds one")
    path = Path(argument)
    if not os.path.lexists(argument) and glob.has_magic(argument):
        files = _matching(argument)
    elif os.path.isdir(argument):
        files = list(_in_folder(path))
        if not files:
            raise InputError(f"{argument}: no run there nor below; a run's folder holds a {FILE_NAME}")
    else:
        files = [path]  # what is wrong with it is for its reader to say
    once: dict[str, Path] = {}
    for file in files:
        once.setdefault(os.path.realpath(file), file)
    return list(once.values())


def _matching(pattern: str) -> list[Path]:
    """The runs that a glob names; everything that it matches is one or holds some."""
    matches = sorted(glob.glob(pattern, recursive=True))
    if not matches:
        raise InputError(f"{pattern}: nothing matches")
    files = []
    for match in matches:
        found = list(_in_folder(Path(match))) if os.path.isdir(match) else [Path(match)]
        if not found:
            raise InputError(f"{match}: matches {pattern}, and there is no run in it nor below")
        files += found
    return files


def _in_folder(path: Path) -> Iterator[Path]:
    """The run of a folder, else all runs below it; what begins with a dot is left alone."""
    if os.path.isfile(path / FILE_NAME):
        yield path / FILE_NAME
        return
    seen = set()
    for folder, folders, files in os.walk(path, onerror=_cannot_read, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:  # a link to where we come from
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if FILE_NAME in files:
            yield Path(folder, FILE_NAME)
            folders.clear()  # what a run's folder holds is its own


def _cannot_read(error: OSError) -> NoReturn:
    raise InputError(f"{error.filename}: {error.strerror}")


def _labels(arguments: Sequence[str], found: Sequence[Sequence[Path]]) -> list[str]:
    """What sides are called: their run's or folder's name or the glob's last part; else the argument as it is."""
    names = [
        _name(files[0]) if len(files) == 1 else _last_part(argument)
        for argument, files in zip(arguments, found, strict=True)
    ]
    return names if len(set(names)) == len(names) else _numbered(arguments)


def _run_labels(files: Sequence[Path]) -> list[str]:
    """What the runs of a side are called: their folder's name, or their path where that is not theirs alone."""
    names = [_name(file) for file in files]
    return names if len(set(names)) == len(names) else [str(_run(file)) for file in files]


def _name(file: Path) -> str:
    run = _run(Path(os.path.abspath(file)))
    return run.name or str(run)


def _run(file: Path) -> Path:
    return file.parent if file.name == FILE_NAME else file


def _last_part(argument: str) -> str:
    """``main-*`` of ``runs/main-*/run.json``; the whole argument where the last part is no name."""
    part = _run(Path(os.path.normpath(argument)) if not glob.has_magic(argument) else Path(argument)).name
    part = part or Path(os.path.abspath(argument)).name
    return part if any(map(str.isalnum, part)) else argument


def _numbered(names: Sequence[str]) -> list[str]:
    """``names``, and a number where one comes again: a run may be compared with itself."""
    numbered = [f"{name} ({names[: index + 1].count(name)})" for index, name in enumerate(names)]
    return [name if names.count(name) == 1 else other for name, other in zip(names, numbered, strict=True)]
