"""Under context parallelism sequences are padded to what ranks can share, and each rank holds two chunks of each."""

from __future__ import annotations

import pytest

from mtp_bench.ranks.zigzag import zigzag_columns
from mtp_bench.workloads import Workload


def layout(**keys):
    return Workload.from_dict("test", keys).layout()


@pytest.mark.parametrize(
    ("keys", "cu_seqlens"),
    [
        ({"sequences": [5, 3, 8]}, (0, 5, 8, 16)),
        ({"sequences": [5, 3, 8], "cp_size": 2}, (0, 8, 12, 20)),
        ({"sequences": [5, 3, 8], "cp_size": 2, "pad_to_multiple": 3}, (0, 12, 24, 36)),
        ({"sequences": [5, 0, 8], "cp_size": 4}, (0, 8, 8, 16)),
    ],
)
def test_packed_sequences_are_multiples_of_two_chunks_a_rank(keys, cu_seqlens):
    assert layout(packed=True, **keys).cu_seqlens == cu_seqlens


def test_padded_rows_are_too_and_padding_carries_no_loss():
    found = layout(sequences=[5, 3], cp_size=2)
    assert found.row_length == 8
    assert found.loss_mask.tolist() == [[1, 1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("bounds", "cp_size", "columns"),
    [
        ((0, 4), 1, [[0, 1, 2, 3]]),
        ((0, 4), 2, [[0, 3], [1, 2]]),
        ((0, 8), 2, [[0, 1, 6, 7], [2, 3, 4, 5]]),
        ((0, 4, 4, 12), 2, [[0, 3, 4, 5, 10, 11], [1, 2, 6, 7, 8, 9]]),
        ((0, 8), 4, [[0, 7], [1, 6], [2, 5], [3, 4]]),
    ],
)
def test_a_rank_holds_a_chunk_from_the_front_and_its_mirror_from_the_back(bounds, cp_size, columns):
    assert zigzag_columns(bounds, cp_size) == columns
