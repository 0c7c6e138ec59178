"""Ranges ``depth:1``, ``depth:2``, ... around the depths of an MTP loss, whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mtp_bench import ranges


@contextmanager
def depth_ranges(num_layers: int) -> Iterator[None]:
    """Open the range ``depth:1``; each use of ``MTPLossAutoScaler`` closes a depth and opens the next.

    Every implementation hands a depth's loss to that class as its last act, so this works for ours, Megatron's, verl's
    and the user's alike. It adds no tensor operation.
    """
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

    depth = 1
    opened: tuple[str, Any] | None = None

    def enter() -> None:
        nonlocal opened
        if depth <= num_layers:
            text = f"depth:{depth}"
            opened = text, ranges.push(text)

    def leave() -> None:
        nonlocal opened
        if opened is not None:
            ranges.pop(*opened)
            opened = None

    apply = MTPLossAutoScaler.apply

    def apply_and_step(*args: Any) -> Any:
        nonlocal depth
        result = apply(*args)
        leave()
        depth += 1
        enter()
        return result

    MTPLossAutoScaler.apply = apply_and_step
    enter()
    try:
        yield
    finally:
        leave()
        del MTPLossAutoScaler.apply  # uncovers torch.autograd.Function.apply
