"""Losses of a user's own: right, and broken in each way that a check must survive."""

from __future__ import annotations

import os
import time
from typing import Any

from mtp_bench.variants.boundary_roll import packed_roll
from mtp_bench.variants.exact import exact


def right(**arguments: Any) -> Any:
    """A copy of a loss that passes."""
    return exact(**arguments)


def aborts(**arguments: Any) -> Any:
    """Kills the process."""
    os.abort()


def hangs(**arguments: Any) -> Any:
    """Never returns."""
    time.sleep(1_000)


def replaces_roll(**arguments: Any) -> Any:
    """Puts a roll of its own into Megatron, for everybody."""
    from megatron.core.transformer import multi_token_prediction

    multi_token_prediction.roll_tensor = packed_roll
    return exact(**arguments)


def mean_loss(logits: Any, targets: Any, weights: Any) -> Any:
    """Has another signature altogether."""
    return (logits * weights).mean()
