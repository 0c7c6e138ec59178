"""One of two simulated GPUs: exchanges tensors with the other over Gloo and checks what arrives."""

import sys
import warnings

import torch
import torch.distributed as dist

from mtp_bench.devices.sim import SimDevice, is_shape_only

RANK = int(sys.argv[1])
OTHER = 1 - RANK


def mine(size):
    return torch.full((size,), float(RANK + 1), device="cuda")


def point_to_point():
    sent, received = mine(2), torch.zeros(2, device="cuda")
    first, second = (dist.isend, dist.irecv) if RANK == 0 else (dist.irecv, dist.isend)
    for call in (first, second):
        call(sent if call is dist.isend else received, OTHER).wait()
    assert received.tolist() == [OTHER + 1.0] * 2

    received = torch.zeros(2, device="cuda")
    both = [dist.P2POp(dist.isend, mine(2), OTHER), dist.P2POp(dist.irecv, received, OTHER)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    assert received.tolist() == [OTHER + 1.0] * 2


def collectives():
    total = mine(3)
    dist.all_reduce(total)
    assert total.tolist() == [3.0] * 3
    work = dist.all_reduce(total, async_op=True)
    work.wait()
    assert total.tolist() == [6.0] * 3

    parts = [torch.zeros(3, device="cuda") for _ in range(2)]
    dist.all_gather(parts, mine(3))
    assert [part.tolist() for part in parts] == [[1.0] * 3, [2.0] * 3]
    flat = torch.zeros(6, device="cuda")
    dist.all_gather_into_tensor(flat, mine(3))
    assert flat.tolist() == [1.0] * 3 + [2.0] * 3
    share = torch.zeros(2, device="cuda")
    dist.reduce_scatter_tensor(share, mine(4))
    assert share.tolist() == [3.0] * 2
    word = mine(2)
    dist.broadcast(word, 0)
    assert word.tolist() == [1.0] * 2
    swapped = torch.zeros(2, device="cuda")
    dist.all_to_all_single(swapped, mine(2))
    assert swapped.tolist() == [1.0, 2.0]


def shape_only():
    large = torch.ones(2**20 + 1, device="cuda")
    dist.all_reduce(large)
    assert is_shape_only(large)
    assert "made by c10d::allreduce_" in repr(large)


def main():
    device = SimDevice.from_spec("h100")
    with device.session():
        dist.init_process_group("nccl", init_method=f"file://{sys.argv[2]}", rank=RANK, world_size=2)
        with device.record_syncs() as syncs:
            point_to_point()
            collectives()
            shape_only()
            dist.barrier()
        waits = [sync.op for sync in syncs if sync.op not in {"aten::_to_copy"}]  # tolist() reads what arrived
        assert waits == ["torch.distributed.barrier"]
        dist.destroy_process_group()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    main()
