"""The two keys of a workload with a grammar of their own: ``sequences`` and ``mask``.

The checks raise ValueError whose text says what would have been right.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

MAX_TOKENS = 1 << 22
_SEQUENCES = f"expected a list of lengths such as [512, 37, 1] (at most {MAX_TOKENS} tokens) or 'lognormal:32x4096'"
_MAX_WEIGHT = 1e6  # far from where sums of float32 weights overflow
_MASK = "expected 'full', 'empty', 'prompt:0.5', 'tail:8' or a list of weights, one a token"
_LOGNORMAL = re.compile(r"lognormal:([1-9]\d*)x([1-9]\d*)")
_SIGMA = 1.0  # of the logarithm of a length: instruction data spreads over one to two orders of magnitude


def check_sequences(value: Any) -> tuple[int, ...] | str:
    """Return ``sequences`` as a tuple of lengths or as the text of a distribution."""
    if isinstance(value, str):
        match = _LOGNORMAL.fullmatch(value)
        if not match:
            raise ValueError(_SEQUENCES)
        count, tokens = int(match[1]), int(match[2])
        if not count <= tokens <= MAX_TOKENS:
            raise ValueError(f"expected at least one token a sequence and at most {MAX_TOKENS} in all")
        return value
    if not isinstance(value, list | tuple) or not all(type(length) is int and length >= 0 for length in value):
        raise ValueError(_SEQUENCES)
    if not 1 <= sum(value) <= MAX_TOKENS:
        raise ValueError(_SEQUENCES)
    return tuple(value)


def draw_lengths(sequences: tuple[int, ...] | str, seed: int) -> tuple[int, ...]:
    """Return the lengths; for ``lognormal:NxT``, N lengths of at least 1 with sum T, the same for a seed everywhere."""
    if not isinstance(sequences, str):
        return sequences
    match = _LOGNORMAL.fullmatch(sequences)
    assert match
    count, tokens = int(match[1]), int(match[2])
    # Only random() is promised to give the same numbers in every version of Python.
    draws = random.Random(seed)
    normal = NormalDist(0, _SIGMA)
    weights = [math.exp(normal.inv_cdf(max(draws.random(), 1e-12))) for _ in range(count)]
    shares = [weight / sum(weights) * (tokens - count) for weight in weights]
    lengths = [1 + int(share) for share in shares]
    by_remainder = sorted(range(count), key=lambda index: int(shares[index]) - shares[index])
    for index in by_remainder[: tokens - sum(lengths)]:
        lengths[index] += 1
    return tuple(lengths)


def check_mask(value: Any) -> str | tuple[float, ...]:
    """Return ``mask`` as its text or as a tuple of weights."""
    if isinstance(value, str):
        kind, colon, amount = value.partition(":")
        fine = (
            (kind in ("full", "empty") and not colon)
            or (kind == "prompt" and _is_fraction(amount))
            or (kind == "tail" and amount.isascii() and amount.isdigit())
        )
        if not fine:
            raise ValueError(_MASK)
        return value
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(_MASK)
    if not all(isinstance(weight, int | float) and 0 <= weight <= _MAX_WEIGHT for weight in value):
        raise ValueError(f"{_MASK}, each a number from 0 to {_MAX_WEIGHT:g}")
    return tuple(float(weight) for weight in value)


def mask_of_sequence(mask: str | tuple[float, ...], length: int, first_token: int) -> Sequence[float]:
    """The loss weights of a sequence of ``length`` tokens; ``first_token`` is its offset in a list of weights."""
    if not isinstance(mask, str):
        return mask[first_token : first_token + length]
    kind, _, amount = mask.partition(":")
    match kind:
        case "full":
            masked = 0
        case "empty":
            masked = length
        case "prompt":
            masked = int(float(amount) * length)
        case _:  # tail
            masked = max(length - int(amount), 0)
    return [0.0] * masked + [1.0] * (length - masked)


def _is_fraction(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False
