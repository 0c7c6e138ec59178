"""Which variant a window runs: drawn from the seed and the window's number alone, so that every rank draws the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from mtp_bench.ab.recorder import MAX_WINDOWS
from mtp_bench.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """Rounds of one window a variant, in an order drawn anew for each round; a round is complete or not begun."""

    variants: int
    window: int  # iterations
    rounds: int
    seed: int

    @classmethod
    def of(cls, *, variants: int, steps: int, window: int, seed: int) -> Schedule:
        """The rounds that fit into ``steps`` iterations. InputError where none does, or more than can be kept."""
        for name, value, least in (("steps", steps, 1), ("window", window, 2)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"{name}={value!r}: expected a whole number of iterations, {least} or more")
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise InputError(f"seed={seed!r}: expected a whole number")
        rounds = steps // window // variants
        if rounds == 0:
            raise InputError(
                f"steps={steps}: a window of {window} iterations for each variant takes {variants * window} "
                "iterations; use more steps or a smaller window"
            )
        if rounds * variants > MAX_WINDOWS:
            raise InputError(
                f"window={window}: {steps} steps are {steps // window} windows, and {MAX_WINDOWS} can be kept; use "
                f"window={-(-steps // MAX_WINDOWS)}"
            )
        return cls(variants, window, rounds, seed)

    @property
    def windows(self) -> int:
        """All windows."""
        return self.rounds * self.variants

    def round(self, window: int) -> int:
        """The round that a window belongs to."""
        return window // self.variants

    def variant(self, window: int) -> int:
        """The variant that a window runs."""
        order = sorted(range(self.variants), key=lambda variant: self._draw(self.round(window), variant))
        return order[window % self.variants]

    def _draw(self, round_number: int, variant: int) -> bytes:
        return hashlib.sha256(f"{self.seed}/{round_number}/{variant}".encode()).digest()
