"""Child process: print the syncs of the loss's forward and backward on sim, for every case and variant asked for."""

from __future__ import annotations

import json
import sys

from megatron.core.transformer import multi_token_prediction

from mtp_bench import megatron, variants
from mtp_bench.devices import resolve
from mtp_bench.scopes.loss import LossBench
from tests.variants.recording import workload


def main() -> None:
    asked = json.loads(sys.argv[1])
    device = resolve("sim")
    print(json.dumps({"version": megatron.version(), "cases": [_case(device, **case) for case in asked]}))


def _case(device, keys, names):
    tiny = workload(**keys)
    found = {}
    with device.session(), megatron.isolated_state(device):
        bench = LossBench(tiny, device)
        for name in names:
            variant = variants.load(name)
            reason = variant.unsupported(tiny)
            if reason:
                found[name] = {"skipped": reason}
                continue
            step = bench.step(variant)
            step()
            with device.record_syncs() as syncs:
                step()
            found[name] = {
                "path": variant.path,
                "note": variant.note,
                "syncs": [[sync.kind, sync.file, sync.code, sync.phase, sync.range[-1]] for sync in syncs],
            }
    assert multi_token_prediction.MTPLossLoggingHelper.tracker == {}, "a simulated tensor stayed in Megatron's tracker"
    return found


if __name__ == "__main__":
    main()
