"""One optimizer step of a Megatron GPT model with two MTP depths, watched on a device: syncs, operations, launches.

Child process: `python -m tests.hostcuda.training sim` prints what each of ``CASES`` does on the simulated device.
"""

import json
import sys

import torch

from mtp_bench import ranges, variants
from mtp_bench.devices import resolve
from mtp_bench.megatron import isolated_state
from mtp_bench.megatron.gpt import GPT
from tests.variants.recording import workload

# Tiny, so that whatever a device reads as the norm, Megatron's branch on it goes the same way.
MAX_NORM = 1e-30
CASES = {
    "torch fp32": {"keys": {"packed": False}, "optimizer": "torch"},
    "torch bf16 rope": {
        "keys": {"packed": False, "params_dtype": "bf16", "position_embedding_type": "rope"},
        "optimizer": "torch",
    },
    "torch packed": {"keys": {"packed": True}, "optimizer": "torch"},
    "megatron fp32": {"keys": {"packed": False}, "optimizer": "megatron"},
    "megatron bf16": {"keys": {"packed": False, "params_dtype": "bf16"}, "optimizer": "megatron"},
}


def training_step(keys, optimizer, device):
    """Forward, backward and finalisation over two microbatches, clipping, AdamW."""
    shape = {"mtp_num_layers": 2, "num_layers": 2, "num_microbatches": 2, "calculate_per_token_loss": True}
    gpt = GPT(workload(**{**shape, **keys}), device)
    gradients = gpt.step(variants.load("megatron"))
    update = {"torch": _torch_update, "megatron": _megatron_update}[optimizer](gpt)

    def step():
        gradients()
        with ranges.open_range("optimizer"):
            update()

    return step


def _torch_update(gpt):
    parameters = list(gpt.model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    def update():
        for parameter in parameters:
            parameter.grad = parameter.main_grad.to(parameter.dtype)
        torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM)
        optimizer.step()

    return update


def _megatron_update(gpt):
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    bf16 = gpt.workload.params_dtype == "bf16"
    config = OptimizerConfig(
        optimizer="adam", lr=1e-3, clip_grad=MAX_NORM, bf16=bf16, params_dtype=gpt.config.params_dtype
    )
    optimizer = get_megatron_optimizer(config, [gpt.ddp], use_gloo_process_groups=False)
    return optimizer.step


def watch(device, keys, optimizer):
    """What one step after a warm-up does."""
    with isolated_state(device):
        step = training_step(keys, optimizer, device)
        device.warm_up(step)
        seen = device.observe(step)
        sites = [[sync.op, sync.kind, sync.file, sync.line, sync.phase] for sync in seen.syncs]
        return {"syncs": sites, "ops": seen.ops, "launches": launches(device, step)}


def launches(device, step):
    """How many kernels, copies and fills one step gives the device."""
    if device.modelled:
        with device._recording(0.0) as recorder:
            step()
        return sum(len(event.kernels_ns) for event in recorder.timeline.events)
    import hostcuda

    hostcuda.reset()
    step()
    work = ("LaunchKernel", "gemm", "Gemm", "nccl", "Memcpy", "Memset")
    return sum(count for name, count in hostcuda.calls().items() if any(part in name for part in work))


if __name__ == "__main__":
    device = resolve(sys.argv[1])
    with device.session():
        print(json.dumps({name: watch(device, **case) for name, case in CASES.items()}))
