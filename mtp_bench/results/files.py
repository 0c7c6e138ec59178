"""Runs as files: ``run.json`` is written in one step, and checked on reading."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mtp_bench.errors import InputError
from mtp_bench.results.schema import SCHEMA_VERSION, Run

FILE_NAME = "run.json"


def write_run(run: Run, folder: Path) -> Path:
    """Write ``run.json`` into ``folder`` in one step, so that a reader never sees half of it; return its path."""
    path = folder / FILE_NAME
    partial = folder / f".{FILE_NAME}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_text(text_of(run), encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    return path


def text_of(run: Run) -> str:
    """The text of ``run.json``."""
    return json.dumps(run.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"


def require_writable(folder: Path, option: str = "--out") -> None:
    """Make ``folder`` where it is missing; InputError where nothing can be written there. What is there stays."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _cannot_write(folder, error, option) from None


def _cannot_write(folder: Path, error: OSError, option: str = "--out") -> InputError:
    return InputError(f"cannot write to {folder}: {error.strerror}; choose another folder with {option}")


def load_run(path: str | os.PathLike[str]) -> Run:
    """Read a ``run.json`` or the folder that holds one; InputError says what is wrong with it and where."""
    file = Path(path, FILE_NAME) if os.path.isdir(path) else Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")  # an editor may have put a byte order mark there
    except FileNotFoundError:
        raise InputError(f"{file}: no such run; give a {FILE_NAME} or the folder that holds one") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: not JSON: not a text file in UTF-8") from None
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    values = _parse_json(file, text)
    version = values.get("schema_version") if isinstance(values, dict) else None
    if type(version) is not int:
        raise InputError(f"{file}: not a run of mtp-bench: it has no schema_version")
    if version > SCHEMA_VERSION:
        raise InputError(
            f"{file}: written by a newer mtp-bench (schema_version {version}, this one reads up to {SCHEMA_VERSION}); "
            "update mtp-bench"
        )
    if version < SCHEMA_VERSION:
        raise InputError(f"{file}: schema_version: no mtp-bench wrote {version}, this one reads {SCHEMA_VERSION}")
    try:
        run = Run.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"{file}: {_location(first['loc'])}: {first['msg']}") from None
    _check_results(file, run)
    return run


def _check_results(file: Path, run: Run) -> None:
    """InputError for what no run writes and no comparison could tell apart."""
    places: dict[tuple[str, str, str, float], int] = {}
    for index, result in enumerate(run.results):
        if result.workload not in run.workloads:
            raise InputError(f"{file}: results[{index}].workload: {result.workload!r} is not among workloads")
        first = places.setdefault((result.workload, result.scope, result.variant, result.lead_ms), index)
        if first != index:
            what = f"{result.variant} on {result.workload} at {result.lead_ms:g} ms lead"
            raise InputError(f"{file}: results[{index}]: {what} is there twice, as results[{first}] too")


def _parse_json(file: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(f"{file}: not a run of mtp-bench: nested too deep") from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise InputError(f"{file}:1: not JSON: the file is empty") from None
        begun = text.lstrip()[:1] == "{"
        ended = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        if begun and ended:
            raise InputError(f"{file}:{error.lineno}: cut off: the file ends in the middle; run it again") from None
        raise InputError(f"{file}:{error.lineno}: not JSON: {error.msg}") from None
    except ValueError:  # Python's limit of digits
        raise InputError(f"{file}: not JSON of mtp-bench: it holds an integer with thousands of digits") from None


def _location(loc: tuple[int | str, ...]) -> str:
    """``results[0].status`` for ("results", 0, "status")."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.lstrip(".") or "the whole file"
