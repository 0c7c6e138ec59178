"""What an argument of ``compare`` stands for: a ``run.json``, a run's folder, a folder of runs, or a glob of these."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

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
        (label, [(name, loaded[file]) for name, file in zip(_distinct(files), files, strict=True)])
        for label, files in zip(_labels(arguments, found), found, strict=True)
    ]


def _files(argument: str) -> list[Path]:
    """The ``run.json`` files that an argument names, in order of their paths."""
    path = Path(argument)
    if not path.exists() and glob.has_magic(argument):
        matches = [Path(match) for match in sorted(glob.glob(argument, recursive=True))]
        files = [file for match in matches for file in _below(match)]
        if not files:
            what = f"{len(matches)} matches, and no {FILE_NAME} among or below them" if matches else "nothing matches"
            raise InputError(f"{argument}: {what}")
    elif path.is_dir():
        files = list(_below(path))
        if not files:
            raise InputError(f"{argument}: no run there nor below; a run's folder holds a {FILE_NAME}")
    else:
        files = [path]  # what is wrong with it is for its reader to say
    return list({file.resolve(): file for file in files}.values())


def _below(path: Path) -> Iterator[Path]:
    """The run that ``path`` is or holds, else all runs somewhere below; what begins with a dot is left alone."""
    if path.is_file():
        yield path
    elif (path / FILE_NAME).is_file():
        yield path / FILE_NAME
    elif path.is_dir():
        for folder, folders, files in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if FILE_NAME in files:
                yield Path(folder, FILE_NAME)
                folders.clear()  # what a run's folder holds is its own


def _labels(arguments: Sequence[str], found: Sequence[Sequence[Path]]) -> list[str]:
    """The last part of each argument that tells it from the others; the argument as it is where none does."""
    if all(len(files) == 1 for files in found):
        return _distinct([files[0] for files in found], arguments)
    names = [Path(argument).resolve().name or argument for argument in arguments]
    return names if len(set(names)) == len(names) else _numbered(arguments)


def _distinct(files: Sequence[Path], otherwise: Sequence[str] = ()) -> list[str]:
    """What runs are called: their folder's name; where that is not theirs alone, their path or ``otherwise``."""
    named = [file.resolve().parent.name if file.name == FILE_NAME else file.name for file in files]
    if len(set(named)) == len(named):
        return named
    return _numbered(otherwise or [str(file.parent) if file.name == FILE_NAME else str(file) for file in files])


def _numbered(names: Sequence[str]) -> list[str]:
    """``names``, and a number where one comes again: a run may be compared with itself."""
    numbered = [f"{name} ({names[: index + 1].count(name)})" for index, name in enumerate(names)]
    return [name if names.count(name) == 1 else other for name, other in zip(names, numbered, strict=True)]
