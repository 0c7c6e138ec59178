"""The known faults of MTP losses as cases that can be run against any variant."""

from __future__ import annotations

from mtp_bench.conformance.model import Case

__all__ = ["all_cases"]


def all_cases() -> tuple[Case, ...]:
    """Every case, by subject. Importing them needs neither torch nor Megatron."""
    from mtp_bench.conformance.cases import (
        head,
        log,
        masks,
        normalisation,
        packed,
        ranks,
        reported,
        side_effects,
        syncs,
        targets,
    )

    modules = (normalisation, masks, targets, packed, log, head, side_effects, syncs, reported, ranks)
    return tuple(case for module in modules for case in module.CASES)
