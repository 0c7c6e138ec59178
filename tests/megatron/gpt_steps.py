"""Child process: run scope ``step`` on sim for every case asked for, and print its syncs, ranges and values."""

from __future__ import annotations

import json
import sys
import zlib

from megatron.core.models.gpt import gpt_model
from megatron.core.pipeline_parallel import schedules
from megatron.core.transformer import multi_token_prediction

from mtp_bench import megatron, variants, workloads
from mtp_bench.devices import resolve
from mtp_bench.errors import InputError
from mtp_bench.megatron import gpt_reference
from mtp_bench.megatron.gpt import GPT
from mtp_bench.numerics import judge
from mtp_bench.variants import Variant
from tests.variants.recording import bits, workload


def main() -> None:
    asked = json.loads(sys.argv[1])
    device = resolve("sim")
    print(json.dumps({"version": megatron.version(), "cases": [_case(device, **case) for case in asked]}))


def _case(device, keys=None, profile=None, names=(), values=False):
    chosen = workloads.load(profile, ["num_microbatches=2"]) if profile else workload(**keys)
    with device.session(), megatron.isolated_state(device):
        try:
            gpt = GPT(chosen, device)
        except InputError as error:
            return {"refused": str(error)}
        right = gpt_reference.reference(gpt) if values else None
        found = {name: _run(device, gpt, variants.load(name), right) for name in names}
        found["restored"] = _restores(gpt)
        if values:
            found["weights"] = {name: zlib.crc32(bits(value)) for name, value in gpt.model.named_parameters()}
    assert multi_token_prediction.MTPLossLoggingHelper.tracker == {}, "a simulated tensor stayed in Megatron's tracker"
    return found


def _run(device, gpt, variant, right):
    step = gpt.step(variant)
    step()
    megatron.clear_logged_losses()
    with device.record_syncs() as syncs:
        step()
    found = {"syncs": [["/".join(sync.range), sync.kind, sync.file, sync.code, sync.phase] for sync in syncs]}
    if right is not None:
        grads = gpt_reference.gradients(gpt)
        found["judged"] = judge(
            {name: grads[name] for name in right.gradients if name != gpt_reference.HEAD},
            {name: grad for name, grad in right.gradients.items() if name != gpt_reference.HEAD},
            dict.fromkeys(gpt_reference.mtp_parameters(right.gradients), slice(None)),
            [float(loss) / gpt.num_microbatches for loss in megatron.logged_losses()],
            list(right.losses),
            gpt.workload.params_dtype,
        )
    return found


def _restores(gpt):
    """Whether all that a step replaces is back after a variant has raised in the middle of it."""

    def everything():
        return (
            schedules.forward_step,
            schedules.backward_step,
            multi_token_prediction.roll_tensor,
            getattr(gpt_model, "process_mtp_loss", None),
            "_postprocess" in vars(gpt.model),
        )

    def fails(**_):
        raise RuntimeError("inside")

    before = everything()
    try:
        gpt.step(Variant("fails", fails, roll=lambda *_, **__: fails()))()
    except RuntimeError:
        return everything() == before
    return False


if __name__ == "__main__":
    main()
