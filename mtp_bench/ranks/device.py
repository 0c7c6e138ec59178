"""Which device a rank runs on: on a GPU machine one GPU each."""

from __future__ import annotations

import os

from mtp_bench.devices import Device, resolve
from mtp_bench.errors import InputError


def device_of_rank(spec: str) -> Device:
    """The device of this rank, of those that ``spec`` (``auto``, ``cuda``, ``sim`` or ``sim:PROFILE``) stands for.

    Raises InputError where there are fewer GPUs than ranks on this machine.
    """
    device = resolve(spec)
    if device.modelled:
        return device
    import torch

    ranks, gpus = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
    if ranks > gpus:
        raise InputError(f"{ranks} ranks need {ranks} GPUs, this machine has {gpus}; use --device sim")
    own = resolve(f"cuda:{os.environ['LOCAL_RANK']}")
    torch.cuda.set_device(own.torch_device)
    return own
