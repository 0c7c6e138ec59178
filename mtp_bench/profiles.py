"""Where the shipped profiles are, and how a profile's TOML is read: the same for workloads and devices."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from mtp_bench.errors import InputError, did_you_mean

_PACKAGE = Path(__file__).resolve().parent


def profile_dir(kind: str) -> Path:
    """Return the folder of the shipped ``workloads`` or ``devices`` profiles: in the wheel, or in a source checkout."""
    installed = _PACKAGE / "_profiles" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / "profiles" / kind


def profile_names(kind: str) -> tuple[str, ...]:
    """Names of the shipped profiles of ``kind``, sorted."""
    return tuple(sorted(path.stem for path in profile_dir(kind).glob("*.toml")))


def find_profile(kind: str, name_or_path: str) -> Path:
    """Return the file of a shipped profile, or of a path the user gave; InputError where there is neither."""
    if name_or_path in profile_names(kind):
        return profile_dir(kind) / f"{name_or_path}.toml"
    path = Path(name_or_path)
    if path.is_file():
        return path
    if path.suffix == ".toml" or len(path.parts) > 1:
        raise InputError(f"profile {name_or_path}: no such file")
    raise InputError(f"no profile {name_or_path!r}{did_you_mean(name_or_path, profile_names(kind))}")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; InputError with file and line where it is not TOML or cannot be read."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not TOML: not UTF-8 text at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        # Python 3.11 to 3.13 give the place in the message only.
        place = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        line = f":{place[1]}" if place else ""
        raise InputError(f"{path}{line}: not TOML: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
