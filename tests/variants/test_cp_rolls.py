"""Under context parallelism, packed rolls equal Megatron's loop bit for bit, with one exchange with each neighbour."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from tests.torchrun import torchrun

SCRIPT = Path(__file__).with_name("cp_rolls.py")
RANKS = 4  # one group of 4, and two of 2


@functools.cache
def ranks(version):
    found = json.loads(torchrun(RANKS, SCRIPT, version=version).splitlines()[-1])
    assert [rank["version"] for rank in found] == [version] * RANKS
    return found


@pytest.mark.parametrize("version", ["0.16.1", "0.19.2"])
@pytest.mark.parametrize("cp_size", [2, 4])
def test_equals_the_loop_of_the_release_without_a_sync(version, cp_size):
    """The ranks compare by themselves, and fail where one of them differs."""
    assert [rank[f"cp {cp_size}"]["examples"] >= 50 for rank in ranks(version)] == [True] * RANKS


def test_the_number_of_operations_and_messages_does_not_depend_on_the_number_of_sequences():
    found = ranks("0.16.1")
    assert all(rank["cp 2"]["same operations"] and rank["cp 4"]["same operations"] for rank in found)
    assert [rank["cp 2"]["sent"] for rank in found] == [1, 1, 1, 1]
    assert [rank["cp 4"]["sent"] for rank in found] == [1, 2, 2, 1]
    assert [rank["cp 4"]["sent by the loop"] for rank in found] == [21, 42, 42, 21]


def test_a_sequence_of_a_token_a_rank_stays_apart_from_the_next():
    """Megatron's loop raises an error there; its tokens lie in the order of the ranks."""
    found = ranks("0.16.1")
    assert [rank["cp 4"]["single tokens"] for rank in found] == [[11, 21], [12, 22], [13, 23], [0, 0]]
