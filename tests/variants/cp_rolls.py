"""One of four ranks on sim: packed rolls under context parallelism of 2 and of 4 ranks against Megatron's own loop."""

from __future__ import annotations

import json
from itertools import pairwise
from types import SimpleNamespace

import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from megatron.core.transformer.multi_token_prediction import roll_tensor

from mtp_bench import megatron
from mtp_bench.devices.sim import SimDevice
from mtp_bench.variants.boundary_roll import find_boundaries, packed_roll
from mtp_bench.variants.host_lens import host_lens_roll
from tests.variants.recording import Operations, bits

DTYPES = (torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.bool)
EXAMPLES = 60
MEGATRON_SKIPS_EMPTY = megatron.version() >= "0.17"


@st.composite
def rows(draw, cp_size):
    """A rank's row and the bounds of all ranks' tokens: whatever of a rank's share Megatron's loop can halve."""
    lengths = draw(st.lists(st.sampled_from([0, 2, 3, 4, 5, 8]), min_size=1, max_size=6))
    if not MEGATRON_SKIPS_EMPTY:
        lengths = [length or 2 for length in lengths]
    before, after = draw(st.integers(0, 2)), draw(st.integers(-2, 3))
    local = [before]
    for length in lengths:
        local.append(local[-1] + length)
    if after < 0 and lengths[-1] + after < 2:
        after = 0  # a last sequence cut down to one token is none that can be halved
    bounds = [local[0] * cp_size]
    for start, end in pairwise(local):  # up to cp_size - 1 tokens more than the ranks can share
        rest = draw(st.integers(0, cp_size - 1))
        bounds.append(bounds[-1] if start == end else end * cp_size + rest)
    leading = draw(st.sampled_from([(), (1,), (2,), (2, 3)]))
    dtype = draw(st.sampled_from(DTYPES))
    cu_dtype = draw(st.sampled_from([torch.int32, torch.int64]))
    return bounds, (*leading, max(1, local[-1] + after)), dtype, cu_dtype, draw(st.integers(0, 2**16))


def check_rolls(device, cp_group):
    """Compare until hypothesis is content; every rank draws the same and learns of the others' failures."""
    seen = []

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(rows(cp_group.size()))
    def equals_the_loop(row):
        bounds, shape, dtype, cu_dtype, seed = row
        generator = torch.Generator().manual_seed(seed + 7919 * dist.get_rank(cp_group))
        values = torch.randint(-9, 10, shape, generator=generator).to(dtype).to("cuda")
        before = bits(values)
        params = SimpleNamespace(cu_seqlens_q=torch.tensor(bounds, dtype=cu_dtype, device="cuda"))
        params.cu_seqlens_q_host = bounds
        expected = [bits(tensor) for tensor in roll_tensor(values, cp_group=cp_group, packed_seq_params=params)]
        for roll in (packed_roll, host_lens_roll):
            with device.record_syncs() as syncs:
                rolled = roll(values, cp_group=cp_group, packed_seq_params=params)
            right = [bits(tensor) for tensor in rolled] == expected and bits(values) == before and not syncs
            wrong = torch.tensor([not right], dtype=torch.int32)
            dist.all_reduce(wrong)
            assert wrong.item() == 0, (roll.__name__, bounds, shape, dtype, seed, syncs)
        seen.append(row)

    equals_the_loop()
    return len(seen)


def messages(cp_group, lengths, roll):
    """Names of the operations of a roll, messages among them."""
    bounds = [0]
    for length in lengths:
        bounds.append(bounds[-1] + length * cp_group.size())
    cu_seqlens = torch.tensor(bounds, dtype=torch.int32, device="cuda")
    params = SimpleNamespace(cu_seqlens_q=cu_seqlens, cu_seqlens_q_host=bounds)
    values = torch.arange(sum(lengths), device="cuda").unsqueeze(0)
    operations = Operations()
    with operations:
        roll(values, cp_group=cp_group, packed_seq_params=params)
    return [name for name, *_ in operations.seen]


def sequences_of_a_token_a_rank(cp_group):
    """Rows of two sequences of cp_size tokens (rank r holds token r), which Megatron's loop refuses."""
    rank, size = dist.get_rank(cp_group), cp_group.size()
    tokens = torch.tensor([10 + rank, 20 + rank], device="cuda")
    boundaries = find_boundaries(torch.tensor([0, size, 2 * size], device="cuda"), 2, cp_group)
    return boundaries.roll(tokens)[0].tolist()


def main():
    device = SimDevice.from_spec("h100")
    found = {"version": megatron.version()}
    with device.session():
        dist.init_process_group("nccl")
        world, rank = dist.get_world_size(), dist.get_rank()
        pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
        for cp_group in (pairs[rank // 2], dist.group.WORLD):
            few, many = (messages(cp_group, lengths, packed_roll) for lengths in ([4], [2, 4, 6] * 7))
            loop = messages(cp_group, [2, 4, 6] * 7, roll_tensor)
            found[f"cp {cp_group.size()}"] = {
                "examples": check_rolls(device, cp_group),
                "same operations": few == many,
                "sent": sum(name.startswith("c10d.send") for name in many),
                "sent by the loop": sum(name.startswith("c10d.send") for name in loop),
                "single tokens": sequences_of_a_token_a_rank(cp_group),
            }
        everyone = [None] * world
        dist.all_gather_object(everyone, found)
        if rank == 0:
            print(json.dumps(everyone))
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
