"""How much runs around a variant: ``loss`` (the losses alone) or ``step`` (a real Megatron GPT model)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mtp_bench.devices import Device
    from mtp_bench.devices.interface import Step
    from mtp_bench.variants import Variant
    from mtp_bench.workloads import Workload


class Bench(Protocol):
    """Inputs and weights of a workload, shared by the steps of all variants."""

    def step(self, variant: Variant) -> Step:
        """Return the step that runs ``variant``."""
        ...

    def restore(self) -> None:
        """Undo what a variant wrote into the inputs that all variants share."""
        ...

    def check(self, variant: Variant) -> dict[str, Any]:
        """Run ``variant`` once and judge its values: ``numerics`` of run.json."""
        ...


def open_bench(scope: str, workload: Workload, device: Device) -> Bench:
    """Make the bench of ``scope``, ``loss`` or ``step``, for ``workload``."""
    if scope == "loss":
        from mtp_bench.scopes.loss import LossBench

        return LossBench(workload, device)
    from mtp_bench.scopes.gpt import GPTBench

    return GPTBench(workload, device)
