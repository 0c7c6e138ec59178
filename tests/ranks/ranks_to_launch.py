"""What the ranks of the tests do."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def product(job):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    values = torch.tensor([job["factor"] ** rank])
    dist.all_reduce(values, dist.ReduceOp.PRODUCT)
    dist.destroy_process_group()
    return {"rank": rank, "of": int(os.environ["WORLD_SIZE"]), "product": values.item()}


def one_fails(job):
    """Rank 1 fails in the way that ``job`` names; the other waits for it."""
    if os.environ["RANK"] == "0":
        time.sleep(600)
    print("rank 1 is about to fail", file=sys.stderr, flush=True)
    match job["how"]:
        case "raises":
            raise ValueError("no loss here")
        case "exits":
            os._exit(7)
        case "is killed":
            os.kill(os.getpid(), signal.SIGKILL)


def one_leaves(job):
    """Rank 1 ends in the middle of a collective, in which the other then fails."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        print("rank 1 is about to leave", file=sys.stderr, flush=True)
        os._exit(job["code"])
    dist.all_reduce(torch.ones(1))


def sleep(job):
    """Start a child and hang, both by their ids in the folder that ``job`` names."""
    Path(job["folder"], f"rank.{os.environ['RANK']}").write_text(str(os.getpid()))
    child = subprocess.Popen(["sleep", "600"])
    Path(job["folder"], f"child.{os.environ['RANK']}").write_text(str(child.pid))
    print("going to sleep", file=sys.stderr, flush=True)
    time.sleep(600)


def unreadable(job):
    return object()


def leave(job):
    os._exit(0)
