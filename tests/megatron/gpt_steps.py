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
from mtp_bench.scopes.gpt import GPTBench
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
            bench = GPTBench(chosen, device)
        except InputError as error:
            return {"refused": str(error)}
        found = {name: _run(device, bench, variants.load(name), values) for name in names}
        found["restored"] = _restores(bench.gpt)
        if values:
            found["weights"] = {name: zlib.crc32(bits(value)) for name, value in bench.gpt.model.named_parameters()}
    assert multi_token_prediction.MTPLossLoggingHelper.tracker == {}, "a simulated tensor stayed in Megatron's tracker"
    return found


def _run(device, bench, variant, values):
    step = bench.step(variant)
    step()
    megatron.clear_logged_losses()
    with device.record_syncs() as syncs:
        step()
    found = {"syncs": [["/".join(sync.range), sync.kind, sync.file, sync.code, sync.phase] for sync in syncs]}
    if values:
        found["judged"] = bench.check(variant)
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
