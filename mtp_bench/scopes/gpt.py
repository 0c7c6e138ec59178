"""Scope ``step``: a Megatron GPT model with its MTP block over its microbatches, the variant in its loss's place."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from mtp_bench.megatron import clear_logged_losses, gpt_reference, logged_losses
from mtp_bench.megatron.gpt import GPT, GPTStep
from mtp_bench.megatron.gpt_reference import GPTValues
from mtp_bench.numerics import head_gradient, judge, watch_head

if TYPE_CHECKING:
    from mtp_bench.devices import Device
    from mtp_bench.variants import Variant
    from mtp_bench.workloads import Workload


class GPTBench:
    """The model and the data of a workload, shared by the steps of all variants."""

    def __init__(self, workload: Workload, device: Device) -> None:
        self.workload = workload
        self.gpt = GPT(workload, device)

    def step(self, variant: Variant) -> GPTStep:
        """Return the step that runs ``variant`` in place of the model's MTP loss."""
        return self.gpt.step(variant)

    def restore(self) -> None:
        """Undo what a variant wrote into the inputs that all variants share."""
        self.gpt.given.restore()

    def check(self, variant: Variant) -> dict[str, Any]:
        """Run ``variant`` once and judge its values: ``numerics`` of run.json.

        Judged are the gradients of the decoder's and the MTP block's parameters. That of the output layer is told
        apart, since verl trains it by the main loss alone.
        """
        right = self._right
        self.restore()
        clear_logged_losses()
        with watch_head(self.gpt.model.output_layer) as trained:
            self.step(variant)()
        names = [name for name in right.gradients if name.startswith(("decoder.", "mtp."))]
        grads = gpt_reference.gradients(self.gpt)
        return {
            "at": {"hidden_size": self.workload.hidden_size, "vocab_size": self.workload.vocab_size},
            "head_gradient": head_gradient(trained),
            **judge(
                {name: grads[name] for name in names},
                {name: right.gradients[name] for name in names},
                scale_over=dict.fromkeys(gpt_reference.mtp_parameters(right.gradients), slice(None)),
                logged=[float(loss) / self.gpt.num_microbatches for loss in logged_losses()],
                right_losses=list(right.losses),
                dtype=self.workload.params_dtype,
                changed=self.gpt.given.changed(),
            ),
        }

    @cached_property
    def _right(self) -> GPTValues:
        """One for all variants: none of them changes a weight."""
        return gpt_reference.reference(self.gpt)
