"""A small training job on the simulated device: Megatron's GPT model with MTP, DDP, its schedule, an optimizer."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt import gpt_model
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.transformer import multi_token_prediction

from mtp_bench import megatron
from mtp_bench.devices import resolve
from mtp_bench.megatron.gpt import Batch, build_model
from mtp_bench.megatron.head import transformer_config
from mtp_bench.megatron.state import quiet
from tests.variants.recording import bits, workload

SIZES = {"sequences": [6, 4, 3], "num_layers": 1, "num_microbatches": 2, "mtp_num_layers": 1}


@contextmanager
def simulated() -> Iterator[Any]:
    """A session of the simulated device with Megatron's groups in it."""
    device = resolve("sim")
    with device.session(), megatron.isolated_state(device):
        yield device


class Optimizer:
    """Plain gradient descent on Megatron's gradient buffers."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._parameters = list(model.parameters())
        self.steps = 0

    def step(self) -> tuple[bool, float, int]:
        """Return what Megatron's optimizers return."""
        with torch.no_grad():
            for parameter in self._parameters:
                parameter.add_(parameter.main_grad.to(parameter.dtype), alpha=-0.1)
        self.steps += 1
        return True, 0.0, 0


class Job:
    """``iterations()`` trains; ``losses`` holds the bits of every microbatch's loss."""

    def __init__(self, device: Any, wrap: Callable[[Any, Any], Any] = lambda config, model: model, **keys: Any) -> None:
        self.workload = workload(**{**SIZES, **keys})
        self.config = transformer_config(self.workload)
        self.config.finalize_model_grads_func = finalize_model_grads
        self.batch = Batch(self.workload, device.torch_device)
        with quiet():
            self.model = build_model(self.workload, self.config, device.torch_device)
        buckets = DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=False)
        self.ddp = DistributedDataParallel(config=self.config, ddp_config=buckets, module=wrap(self.config, self.model))
        self.optimizer = Optimizer(self.model)
        self.losses: list[int] = []

    def iterations(self, count: int, after: Callable[[int], None] = lambda number: None) -> None:
        """Train; ``after`` is told each iteration's number when it is over."""
        for number in range(count):
            self.ddp.zero_grad_buffer()
            self.forward_backward()
            self.optimizer.step()
            after(number)

    def forward_backward(self, forward_only: bool = False) -> None:
        """One iteration's microbatches."""
        get_forward_backward_func()(
            forward_step_func=self._forward_step,
            data_iterator=iter(()),
            model=self.ddp,
            num_microbatches=self.workload.num_microbatches,
            seq_length=self.batch.labels.shape[1],
            micro_batch_size=self.batch.labels.shape[0],
            forward_only=forward_only,
        )

    def outcome(self) -> dict[str, Any]:
        """All that training has come to, as bits."""
        weights = {name: zlib.crc32(bits(value)) for name, value in self.model.named_parameters()}
        logged = [zlib.crc32(bits(loss)) for loss in megatron.logged_losses()]
        return {"losses": self.losses, "weights": weights, "logged": logged}

    def _forward_step(self, _: Any, model: Any) -> tuple[torch.Tensor, Callable[..., Any]]:
        return self.batch.run(model), self._loss

    def _loss(self, losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        losses, loss_mask = losses.view(-1).float(), self.batch.loss_mask.view(-1)
        loss = torch.sum(losses * loss_mask)
        self.losses.append(zlib.crc32(bits(loss.detach())))
        return loss, loss_mask.sum().to(torch.int), {"lm loss": loss.detach().clone()}


def attributes(*owners: Any) -> list[dict[str, Any]]:
    """What each of these has, by identity."""
    return [{name: id(value) for name, value in vars(owner).items()} for owner in owners]


def of_megatron() -> dict[str, int]:
    """What ``ab`` may replace in Megatron's modules, by identity."""
    return {
        "process_mtp_loss": id(getattr(gpt_model, "process_mtp_loss", None)),
        "roll_tensor": id(multi_token_prediction.roll_tensor),
        "apply": id(vars(multi_token_prediction.MTPLossAutoScaler).get("apply")),
        "tracker": id(multi_token_prediction.MTPLossLoggingHelper.tracker),
    }
