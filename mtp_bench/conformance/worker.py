"""The process that runs cases: ``python -m mtp_bench.conformance.worker IN OUT``, spoken to as ``mtp_bench.worker``.

A variant that aborts, kills the process or never returns fails; the parent starts another process for the rest.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from mtp_bench import variants
from mtp_bench.conformance import all_cases
from mtp_bench.conformance.judging import judge
from mtp_bench.conformance.model import Case, Outcome
from mtp_bench.conformance.probe import observe_case
from mtp_bench.devices import Device, resolve
from mtp_bench.job import receive, send
from mtp_bench.megatron import integrity, isolated_state
from mtp_bench.preserved import preserved_process_state
from mtp_bench.worker import introduce, main

if TYPE_CHECKING:
    from mtp_bench.variants import Variant


def _serve(messages: IO[str], out: IO[str]) -> None:
    request = receive(messages)
    assert request is not None
    device = resolve(request["device"])
    introduce(device, out)
    job = receive(messages)
    if job is None:
        return
    cases = {case.id: case for case in all_cases()}
    with device.session(), isolated_state(device):
        for name, ids in sorted(job["left"].items(), key=lambda item: variants.is_users(item[0])):
            send(out, {"event": "stage", "variant": name, "case": None})
            before = integrity.snapshot()
            with _time_limit(job["case_seconds"]), preserved_process_state():
                variant = variants.load(name)
            send(out, {"event": "loaded", "variant": name, "version": variant.version})
            for id_ in ids:
                send(out, {"event": "stage", "variant": name, "case": id_})
                with _time_limit(job["case_seconds"]):
                    outcome = run_case(variant, cases[id_], device)
                send(out, {"event": "outcome", "variant": name, "case": id_, **vars(outcome)})
            integrity.put_back(integrity.replaced_since(before))
    send(out, {"event": "done"})


def run_case(variant: Variant, case: Case, device: Device) -> Outcome:
    """Run and judge ``case``; what the variant does to the process and to Megatron is undone."""
    reason = case.applies(variant, case.inputs)
    if reason:
        return Outcome("not_applicable", detail=reason)
    before = integrity.snapshot() if variants.is_users(variant.name) else {}
    try:
        with preserved_process_state(), isolated_state(device):
            observation = observe_case(variant, case, device)
    finally:
        integrity.put_back(integrity.replaced_since(before))
    return judge(case, observation)


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    """End this process where what runs inside takes longer: nobody catches the signal."""
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


if __name__ == "__main__":
    try:
        sys.exit(main(_serve))
    except Exception:
        traceback.print_exc()
        sys.exit(1)
