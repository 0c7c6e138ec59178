"""A small training job on hostcuda for the benchmarks of ``mtp_bench.ab``: Megatron's GPT model with MTP, its DDP.

Kernels take 20 us on the imagined device, and the host waits once an iteration, as for Megatron's gradient norm.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tools" / "hostcuda"))

import hostcuda

from mtp_bench import megatron, variants
from mtp_bench.devices import resolve
from mtp_bench.megatron.placement import Placement
from mtp_bench.variants.common import surroundings
from tests.ab import training

KERNEL_NS = 20_000


class Job(training.Job):
    """The tests' job, but for their reading of every loss."""

    def __init__(self, device: Any, **keys: Any) -> None:
        super().__init__(device, **{"packed": False, "num_microbatches": 1, **keys})
        self.optimizer.step = self._update  # type: ignore[method-assign]
        self._step = type(self.optimizer).step
        self._norm = torch.ones(1, device=device.torch_device)

    def _update(self) -> Any:
        self._norm.item()
        return self._step(self.optimizer)

    def _loss(self, losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        losses, loss_mask = losses.view(-1).float(), self.batch.loss_mask.view(-1)
        loss = torch.sum(losses * loss_mask)
        return loss, loss_mask.sum().to(torch.int), {"lm loss": loss.detach()}

    @contextmanager
    def with_loss(self, name: str) -> Iterator[None]:
        """Inside, a variant is the job's loss, as ``ab`` calls it, and nothing is measured."""
        placement, variant = Placement(self.model), variants.load(name)
        placement.loss = lambda **arguments: variant(**{"input_ids": None, "tp_group": None, **arguments})
        placement.install()
        try:
            with surroundings(head_trained=True):
                yield
        finally:
            placement.remove()


@contextmanager
def running(kernel_ns: int = KERNEL_NS, **keys: Any) -> Iterator[Job]:
    """A job that has run a few iterations."""
    if not hostcuda.present():
        raise SystemExit("this runs on hostcuda: python tools/hostcuda/run.py -m benchmarks....")
    hostcuda.reads(1)
    device = resolve("cuda")
    with device.session(), megatron.isolated_state(device), hostcuda.durations(kernel_ns=kernel_ns, gemm_ns=kernel_ns):
        job = Job(device, **keys)
        job.iterations(5)
        torch.cuda.synchronize()
        yield job
        torch.cuda.synchronize()


def seconds(job: Job, iterations: int, after: Callable[[], object] = lambda: None) -> float:
    """Wall time of an iteration, between two waits for the device."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(iterations):
        job.iterations(1)
        after()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / iterations


def shared_machine() -> str:
    """What else runs here disturbs times; a reader should know."""
    return f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
