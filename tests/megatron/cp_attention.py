"""One of several ranks: packed attention on this rank's share of the row against attention to the whole row."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import torch
import torch.distributed as dist

from mtp_bench.devices.sim import SimDevice
from mtp_bench.megatron.attention import PackedAttention

HEADS, CHANNELS = 2, 8


def share(bounds, rank, ranks):
    """Positions of the row that a rank holds: of each sequence the chunks ``rank`` and its mirror image."""
    held = []
    for start, end in pairwise(bounds):
        chunk = (end - start) // (2 * ranks)
        for number in (rank, 2 * ranks - 1 - rank):
            held.extend(range(start + number * chunk, start + (number + 1) * chunk))
    return held


def run(attention, tensors, upstream, params):
    """Output and the gradients of query, key and value."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    output = attention(*leaves, None, packed_seq_params=params)
    output.backward(upstream)
    return [output.detach(), *(leaf.grad for leaf in leaves)]


def largest_error(bounds, dtype, device):
    """Over outputs and gradients of this rank, relative to the largest value of the whole."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(0)
    whole = [torch.randn(bounds[-1], HEADS, CHANNELS, dtype=torch.float64, generator=generator) for _ in range(4)]
    whole = [tensor.to("cuda" if device else "cpu", dtype) for tensor in whole]
    cu_seqlens = torch.tensor(bounds, dtype=torch.int32).to(whole[0].device)
    params = SimpleNamespace(cu_seqlens_q=cu_seqlens, cu_seqlens_q_padded=None)
    config = SimpleNamespace(kv_channels=CHANNELS)
    expected = run(PackedAttention(config), whole[:3], whole[3], params)
    held = torch.tensor(share(bounds, rank, ranks), device=whole[0].device)
    mine = [tensor.index_select(0, held) for tensor in whole]
    shared = PackedAttention(config, pg_collection=SimpleNamespace(cp=dist.group.WORLD))
    with device.record_syncs() if device else nullcontext([]) as syncs:
        found = run(shared, mine[:3], mine[3], params)
    assert not syncs, syncs
    errors = []
    for got, right in zip(found, expected, strict=True):
        assert got.dtype is dtype
        errors.append((got.double() - right.index_select(0, held).double()).abs().max() / right.double().abs().max())
    return max(error.item() for error in errors)


def main():
    on_sim, cases = json.loads(sys.argv[1])
    device = SimDevice.from_spec("h100") if on_sim else None
    with device.session() if device else nullcontext():
        dist.init_process_group("nccl" if on_sim else "gloo")
        mine = [largest_error(bounds, getattr(torch, dtype), device) for bounds, dtype in cases]
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
        if dist.get_rank() == 0:
            print(json.dumps(everyone))
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
