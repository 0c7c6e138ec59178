"""What a variant may leave behind in the process, put back: one variant must not change the results of another."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def preserved_process_state() -> Iterator[None]:
    """Restore PyTorch's process-wide modes, the warning filters and the standard streams on leaving."""
    grad, anomaly = torch.is_grad_enabled(), torch.is_anomaly_enabled()
    check_nan = torch.is_anomaly_check_nan_enabled()
    dtype, device, threads = torch.get_default_dtype(), _default_device(), torch.get_num_threads()
    filters, showwarning = warnings.filters[:], warnings.showwarning
    streams = sys.stdout, sys.stderr
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.autograd.set_detect_anomaly(anomaly, check_nan)
        torch.set_default_dtype(dtype)
        if _default_device() != device:
            torch.set_default_device(device)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if warnings.filters != filters:
            warnings.filters[:] = filters  # type: ignore[index]
            warnings._filters_mutated()  # type: ignore[attr-defined]
        warnings.showwarning = showwarning
        sys.stdout, sys.stderr = (_open(stream, number) for number, stream in enumerate(streams, 1))


def _default_device() -> Any:
    from torch.utils import _device

    return _device.CURRENT_DEVICE


def _open(stream: Any, number: int) -> Any:
    """``stream``, or a new one on the same descriptor where it was closed."""
    return open(number, "w", errors="replace", closefd=False) if stream is not None and stream.closed else stream
