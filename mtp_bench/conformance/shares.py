"""How the ranks of a case share its inputs, and what their observations are together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mtp_bench.conformance.model import Case, Inputs, Observation
from mtp_bench.ranks.zigzag import zigzag_columns

Place = tuple[int, int]
"""(data-parallel rank, context-parallel rank)."""


def share(case: Case, place: Place) -> Inputs:
    """The inputs of one rank: data-parallel ranks share the rows, context-parallel ones the tokens of each."""
    inputs, rows, columns = case.inputs, _rows(case)[place[0]], _columns(case)[place[1]]

    def cut(values: Sequence[Sequence[Any]] | None) -> Any:
        return None if values is None else [[values[row][column] for column in columns] for row in rows]

    return replace(
        inputs,
        labels=cut(inputs.labels),
        loss_mask=cut(inputs.loss_mask),
        input_ids=cut(inputs.input_ids),
        losses=cut(inputs.losses),
    )


def together(case: Case, found: Mapping[Place, Observation]) -> Observation:
    """One observation of all ranks: rows and tokens where they belong, what was logged as the first rank logs it."""
    first = found[0, 0]
    return Observation(
        coefficients=_whole(case, {place: one.coefficients for place, one in found.items()}),
        labels=_whole(case, {place: one.labels for place, one in found.items()}),
        interval_average=first.interval_average,
        logged=first.logged,
        syncs=sorted({site for one in found.values() for site in one.syncs}),
        inputs_changed=sorted({name for one in found.values() for name in one.inputs_changed}),
        head_trained=first.head_trained,
    )


def _whole(case: Case, parts: Mapping[Place, Sequence[Sequence[Sequence[Any]]]]) -> list[list[list[Any]]]:
    """[depth][B][S] of the shares of all ranks, as many depths as every rank has."""
    height, width = case.inputs.shape
    depths = min(len(part) for part in parts.values())
    whole = [[[None] * width for _ in range(height)] for _ in range(depths)]
    all_rows, all_columns = _rows(case), _columns(case)
    for (dp_rank, cp_rank), part in parts.items():
        for depth in range(depths):
            for row, values in zip(all_rows[dp_rank], part[depth], strict=True):
                for column, value in zip(all_columns[cp_rank], values, strict=True):
                    whole[depth][row][column] = value
    return whole


def _rows(case: Case) -> list[range]:
    assert case.ranks is not None
    height = case.inputs.shape[0] // case.ranks.data_parallel
    return [range(rank * height, (rank + 1) * height) for rank in range(case.ranks.data_parallel)]


def _columns(case: Case) -> list[list[int]]:
    """The tokens of every context-parallel rank; contiguous: the row is cut into as many pieces as there are ranks."""
    assert case.ranks is not None
    cp_size, width = case.ranks.context_parallel, case.inputs.shape[1]
    if case.ranks.split == "contiguous":
        return [list(range(rank * width // cp_size, (rank + 1) * width // cp_size)) for rank in range(cp_size)]
    return zigzag_columns(case.inputs.cu_seqlens_padded or case.inputs.cu_seqlens or (0, width), cp_size)
