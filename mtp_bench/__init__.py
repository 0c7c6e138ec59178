"""Measure what variants of the Multi-Token Prediction loss cost: values, host-device syncs, step time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mtp_bench.ab import ab
    from mtp_bench.conformance.runner import check
    from mtp_bench.recording import record_syncs
    from mtp_bench.results import Run, load_run
    from mtp_bench.runner import run

__all__ = ["Run", "__version__", "ab", "check", "load_run", "record_syncs", "run"]

# Loaded on first use: `import mtp_bench` and `mtp-bench --help` import neither torch nor pandas.
_HOMES = {
    "Run": "mtp_bench.results",
    "ab": "mtp_bench.ab",
    "check": "mtp_bench.conformance.runner",
    "load_run": "mtp_bench.results",
    "record_syncs": "mtp_bench.recording",
    "run": "mtp_bench.runner",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mtp_bench' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
