"""The known faults of MTP losses as cases that can be run against any variant."""

from __future__ import annotations

from mtp_bench.conformance.model import Case

__all__ = ["all_cases"]


def all_cases() -> tuple[Case, ...]:
    """Every case, by subject; importing them needs neither torch nor Megatron."""
    from mtp_bench.conformance.cases import normalisation, packed

    return (*normalisation.CASES, *packed.CASES)
