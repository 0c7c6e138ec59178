"""Scope ``loss``: the MTP loss and the main loss of one microbatch, forward and backward, on Megatron's own layers."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from mtp_bench import ranges
from mtp_bench.inputs import Given, Inputs, make_inputs
from mtp_bench.megatron import LossHead, depth_ranges, make_packed_seq_params
from mtp_bench.numerics import Reference, check_loss, reference_of
from mtp_bench.scopes.shares import share_of

if TYPE_CHECKING:
    from mtp_bench.devices import Device
    from mtp_bench.variants import Variant
    from mtp_bench.workloads import Workload


class LossBench:
    """The inputs and the output layer of a workload, shared by the steps of all variants.

    Under context parallelism ``inputs`` are this rank's, ``right`` is of all ranks.
    """

    def __init__(self, workload: Workload, device: Device) -> None:
        self.workload = workload
        self.device = device
        self.inputs: Inputs = share_of(make_inputs(workload, device.torch_device), workload)
        self.head = LossHead(workload, self.inputs.head_weight)
        layout = self.inputs.layout
        self.packed_seq_params = (
            make_packed_seq_params(
                layout.cu_seqlens,
                layout.cu_seqlens_actual,
                convention=workload.cu_seqlens,
                device=device.torch_device,
            )
            if workload.packed
            else None
        )

        self.given = Given(
            self.head.config,
            self.packed_seq_params,
            labels=self.inputs.labels,
            loss_mask=self.inputs.loss_mask,
            input_ids=self.inputs.input_ids,
            hidden_states=self.inputs.hidden_states,
            output_weight=self.head.output_layer.weight,
        )

    def step(self, variant: Variant) -> LossStep:
        """Return the step that runs ``variant`` on these inputs."""
        return LossStep(self, variant)

    def restore(self) -> None:
        """Undo what a variant wrote into the inputs that all variants share."""
        self.given.restore()

    @cached_property
    def right(self) -> Reference:
        """The right values, one for all variants."""
        return reference_of(self)

    def check(self, variant: Variant) -> dict[str, Any]:
        """Run ``variant`` once and judge its values: ``numerics`` of run.json."""
        return check_loss(self.step(variant))


class LossStep:
    """One call runs the scope once. Gradients are those of this call alone."""

    def __init__(self, bench: LossBench, variant: Variant) -> None:
        self.bench = bench
        self.variant = variant

    def __call__(self) -> None:
        """Run the step."""
        bench, head = self.bench, self.bench.head
        bench.inputs.hidden_states.grad = None
        head.output_layer.weight.grad = None
        with ranges.open_range("step"):
            with ranges.open_range("forward"):
                with ranges.open_range("mtp_loss"), depth_ranges(bench.workload.mtp_num_layers):
                    hidden_states = self.variant(**self._arguments())
                loss = self._main_loss(hidden_states)
            with ranges.open_range("backward"):
                loss.backward()  # type: ignore[no-untyped-call]

    def _arguments(self) -> dict[str, Any]:
        bench, head, inputs = self.bench, self.bench.head, self.bench.inputs
        return {
            "hidden_states": inputs.hidden_states,
            "labels": inputs.labels,
            "loss_mask": inputs.loss_mask,
            "input_ids": inputs.input_ids,
            "packed_seq_params": bench.packed_seq_params,
            **head.arguments(),
        }

    def _main_loss(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Megatron's main loss: a mean over the trained tokens, or their sum with ``calculate_per_token_loss``.

        The mean is over the tokens of all context-parallel ranks, times their number, since gradients are averaged.
        """
        head, inputs = self.bench.head, self.bench.inputs
        logits, _ = head.output_layer(hidden_states)
        losses = head.compute_language_model_loss(inputs.labels, logits)
        total = torch.sum(losses * inputs.loss_mask)
        if self.bench.workload.calculate_per_token_loss:
            return total
        num_tokens = inputs.loss_mask.sum()
        cp_size = self.bench.workload.cp_size
        if cp_size > 1:
            dist.all_reduce(num_tokens, group=head.cp_group)
            total = total * cp_size
        return total / torch.clamp(num_tokens, min=1)
