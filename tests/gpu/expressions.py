"""Expressions that wait and that do not, run on one device: `python -m tests.gpu.expressions cuda` prints JSON.

``x``, ``y`` [4, 4], ``row`` [4], ``mask`` [4] and the scalar ``zero`` are on the device, ``host`` [4] is not.
"""

import json
import sys
import warnings

import torch

EXPRESSIONS = (
    "x.sum().item()",
    "bool(x.sum() > 0)",
    "x[zero:zero]",
    "x.tolist()",
    "x.cpu()",
    "row.to('cpu', non_blocking=True)",
    "host.copy_(row)",
    "host.copy_(row, non_blocking=True)",
    "host.to(device)",
    "host.to(device, non_blocking=True)",
    "row.copy_(host)",
    "torch.tensor(1.0, device=device)",
    "x.new_tensor(0.0)",
    "x[[0, 1]]",
    "x[torch.tensor([0, 1])]",
    "x[mask]",
    "x.masked_fill(mask, 0.0)",
    "x.masked_fill(mask, zero)",
    "x.nonzero()",
    "torch.masked_select(x, mask)",
    "torch.where(mask, row, row)",
    "torch.equal(x, x)",
    "torch.equal(x, y)",
    "torch.allclose(x, y)",
    "torch.repeat_interleave(x, 2, dim=0)",
    "torch.roll(x, -1, dims=-1)",
    "x / x.sum().clamp(min=1)",
    "x @ y",
    "x.sort()",
    "torch.zeros_like(x)",
    "torch.arange(4, device=device)",
    "(x.requires_grad_() * 2).sum().backward()",
    "x.requires_grad_()[mask].sum().backward()",
    "torch.nn.functional.cross_entropy(x, torch.zeros(4, dtype=torch.long, device=device))",
    "torch.cuda.synchronize()",
    "torch.cuda.current_stream().synchronize()",
    "torch.cuda.current_stream().record_event().synchronize()",
)


def waits(device_spec):
    """Return {expression: kinds of its waits} on a device."""
    from mtp_bench.devices import resolve

    device = resolve(device_spec)
    found = {}
    with warnings.catch_warnings(), device.session(), device.real_values():
        warnings.simplefilter("ignore")
        for expression in EXPRESSIONS:
            names = _tensors(device.torch_device)
            with device.record_syncs() as syncs:
                eval(expression, names)
            found[expression] = [sync.kind for sync in syncs]
    return found


def _tensors(device):
    return {
        "torch": torch,
        "device": device,
        "x": torch.ones(4, 4, device=device),
        "y": torch.full((4, 4), 2.0, device=device),
        "row": torch.ones(4, device=device),
        "mask": torch.ones(4, dtype=torch.bool, device=device),
        "zero": torch.zeros((), dtype=torch.long, device=device),
        "host": torch.ones(4),
    }


if __name__ == "__main__":
    print(json.dumps(waits(sys.argv[1])))
