"""Which tokens of a row each context-parallel rank holds, in Megatron's layout."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def zigzag_columns(bounds: Sequence[int], cp_size: int) -> list[list[int]]:
    """The columns of every rank, of a row whose sequences lie between ``bounds``.

    Of 2 * cp_size chunks of each sequence rank r has the chunks r and 2 * cp_size - 1 - r, as in Megatron's
    ``get_batch_on_this_cp_rank`` and Transformer Engine's ``thd_get_partitioned_indices``.
    """
    if cp_size == 1:
        return [list(range(bounds[0], bounds[-1]))]
    columns: list[list[int]] = [[] for _ in range(cp_size)]
    for start, end in pairwise(bounds):
        length, rest = divmod(end - start, 2 * cp_size)
        assert rest == 0, f"{end - start} tokens are not {2 * cp_size} chunks"
        for rank in range(cp_size):
            for chunk in (rank, 2 * cp_size - 1 - rank):
                columns[rank] += range(start + chunk * length, start + (chunk + 1) * length)
    return columns
