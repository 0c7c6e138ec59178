"""Which megatron-core is installed and what its MTP code can do, read from its files: importing it takes seconds."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from mtp_bench.errors import InputError


@cache
def folder() -> Path | None:
    """Folder of the package ``megatron.core``; None where it is not installed."""
    try:
        spec = importlib.util.find_spec("megatron.core")
    except ModuleNotFoundError:
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def version() -> str:
    """Version of the installed megatron-core, "" where there is none."""
    core = folder()
    if core is None:
        return ""
    # A source checkout has no distribution metadata, so the package's own file is asked. Pre-releases carry a suffix.
    fields = dict(re.findall(r"^(MAJOR|MINOR|PATCH|PRE_RELEASE) *= *['\"]?([\w.]*)", _source("package_info.py"), re.M))
    return f"{fields['MAJOR']}.{fields['MINOR']}.{fields['PATCH']}{fields.get('PRE_RELEASE', '')}"


def require() -> str:
    """Return the installed version; InputError where megatron-core is missing."""
    found = version()
    if not found:
        raise InputError("megatron-core is not installed: pip install megatron-core")
    return found


def has_process_mtp_loss() -> bool:
    """Whether the MTP loss is a function of its own (0.17 and later) or inside ``GPTModel._postprocess``."""
    return "\ndef process_mtp_loss(" in _source("transformer/multi_token_prediction.py")


def has_packed_roll() -> bool:
    """Whether ``roll_tensor`` knows packed sequences (0.16 and later)."""
    return "\ndef _roll_tensor_packed_seq(" in _source("transformer/multi_token_prediction.py")


def packed_unsupported() -> str | None:
    """Why packed sequences cannot run here; None where they can."""
    if has_packed_roll():
        return None
    return f"packed sequences need megatron-core 0.16 or later: {version()} has no packed roll"


@cache
def _source(relative: str) -> str:
    core = folder()
    return "" if core is None else (core / relative).read_text()
