"""One call of a variant on literal inputs, and everything that can be seen of it.

To be used inside ``device.session()`` and ``isolated_state(device)``, whose process groups the variant is given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mtp_bench.conformance.model import Case, Inputs, Observation, Rows
from mtp_bench.inputs import Given
from mtp_bench.megatron import clear_logged_losses, integrity, logged_losses, make_packed_seq_params, transformer_config
from mtp_bench.megatron.state import quiet
from mtp_bench.syncs import Sync, by_site
from mtp_bench.variants import VariantError
from mtp_bench.worker import describe_error
from mtp_bench.workloads import Workload

if TYPE_CHECKING:
    from mtp_bench.devices import Device
    from mtp_bench.variants import Variant

# Uniform logits have the softmax 1/4 in each of 4 columns. With these weights the gradient of the cross entropy through
# a hidden state is then 4/4 - 0 = 1 for the labels 1 to 3, and for one outside of the vocabulary.
_CROSS_ENTROPY_WEIGHT = ((4.0,), (0.0,), (0.0,), (0.0,))
# Of two logits, hidden state times 0 and times 1, the second is the greater: label 1 is what the model predicts.
_OVERWRITING_WEIGHT = ((0.0,), (1.0,))


class OutputLayer(torch.nn.Module):
    """An output layer with Megatron's call signature: hidden states [S, B, 1] to logits [S, B, V].

    ``missing`` are the hidden states that a sequence-parallel layer would gather from the other rank.
    """

    def __init__(self, weight: Tensor | None, missing: Tensor | None = None) -> None:
        super().__init__()
        self.weight = None if weight is None else torch.nn.Parameter(weight)
        self.missing = missing
        self.gather_output = False

    def forward(
        self, input_: Tensor, weight: Tensor | None = None, runtime_gather_output: bool | None = None
    ) -> tuple[Tensor, None]:
        """Return logits, and no bias."""
        if weight is None:
            if self.weight is None:
                raise RuntimeError("the output layer has no weight of its own and was given none")
            weight = self.weight
        if self.missing is not None:
            input_ = torch.cat([input_, self.missing])
        return torch.nn.functional.linear(input_, weight), None


def observe_case(variant: Variant, case: Case, device: Device) -> Observation:
    """Run ``variant`` on the inputs of ``case``, and look at everything that the case asks for."""
    asked = {*case.expected, *(name for definition in case.definitions for name in definition.expected)}
    return observe(
        variant,
        case.inputs,
        device,
        count_syncs="syncs" in asked,
        watch_process="process_changed" in asked,
    )


def observe(
    variant: Variant, inputs: Inputs, device: Device, *, count_syncs: bool = False, watch_process: bool = False
) -> Observation:
    """Run ``variant`` once on ``inputs``; what it raises is the observation's ``error``.

    With ``count_syncs`` it is run once more, under the device's detectors. ``watch_process`` takes 30 ms.
    """
    try:
        watch = ProcessWatch() if watch_process else None
        probe = Probe(variant, inputs, device)
        observation = probe.observe()
        if watch is not None:
            observation = replace(observation, process_changed=watch.changed())
        if count_syncs:
            observation = replace(observation, syncs=_by_site(device.observe(probe.step).syncs))
        return observation
    except VariantError as error:  # about what was returned, which no line of the variant's raised
        return Observation(error=f"VariantError: {error}")
    except BaseException as error:  # SystemExit too: Ctrl-C does not reach this process
        return Observation(error=describe_error(error))
    finally:
        clear_logged_losses()


class ProcessWatch:
    """Megatron's functions and PyTorch's modes, as they were when this was made."""

    def __init__(self) -> None:
        self._functions = integrity.snapshot()
        self._modes = _modes()

    def changed(self) -> list[str]:
        """What is not as it was, by name."""
        replaced = integrity.replaced_since(self._functions)
        now = _modes()
        return [*([integrity.names(replaced)] if replaced else []), *(k for k, v in self._modes.items() if now[k] != v)]


class Probe:
    """The objects that a variant is called with, made from literals, and what it did to them."""

    def __init__(self, variant: Variant, inputs: Inputs, device: Device) -> None:
        self.variant = variant
        self.inputs = inputs
        self.device = device.torch_device
        self.config = _config(inputs)
        self.labels_seen: list[Tensor] = []
        rows, length = inputs.shape
        self.labels = self._tensor(inputs.labels, inputs.labels_dtype)
        self.loss_mask = self._tensor(inputs.loss_mask, inputs.mask_dtype)
        self.input_ids = self._tensor(inputs.input_ids, inputs.labels_dtype)
        self.upstream = torch.arange(1.0, length + 1).expand(rows, length).T.unsqueeze(-1).to(self.device)
        self.hidden_states = self._hidden_states()
        self.output_layer, self.output_weight = self._head()
        self.packed_seq_params = self._packed_seq_params()

    def observe(self) -> Observation:
        """Call the variant, run its backward pass, and read everything off the device."""
        given = Given(self.config, self.packed_seq_params, **self._tensors())
        clear_logged_losses()
        totals: dict[str, Tensor] = {}
        with self._scaled(), torch.set_grad_enabled(self.inputs.grad):
            for _ in range(self.inputs.steps or 1):
                result = self.step()
                logged, acceptance = [float(loss) for loss in logged_losses()], _acceptance()
                if self.inputs.steps:
                    self._end_step(totals)
        chunk = len(self.hidden_states) // (1 + self.inputs.depths)
        gradient = self.hidden_states.grad
        chunks = [] if gradient is None else [_rows(part) for part in torch.split(gradient, chunk)]
        return Observation(
            coefficients=chunks[1:],
            labels=[labels.tolist() for labels in self.labels_seen],
            logged=logged,
            main_gradient=chunks[0] if chunks else (),
            result=_rows(result),
            inputs_changed=given.changed(),
            head_trained=self._head_trained(),
            acceptance=acceptance,
            interval_average=[float(total) / (self.inputs.steps or 1) for total in totals.values()],
        )

    def step(self) -> Tensor:
        """One call of the variant, with its backward pass where gradients are asked for."""
        if self.inputs.microbatches is not None:
            return self._by_schedule(self.inputs.microbatches)
        result = self.variant(**self._arguments())
        if self.inputs.grad:
            torch.autograd.backward(result, self.upstream[: len(result)])
        return result.detach()

    def _by_schedule(self, microbatches: int) -> Tensor:
        """All microbatches of a training step, by Megatron's own schedule; each time with the same hidden states."""
        from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining

        model = _Model(self)
        forward_backward_no_pipelining(
            forward_step_func=lambda _, model: (model(), model.loss),
            data_iterator=iter(()),
            model=model,
            num_microbatches=microbatches,
            seq_length=self.inputs.shape[1],
            micro_batch_size=self.inputs.shape[0],
            forward_only=False,
        )
        assert model.result is not None
        return model.result

    def _end_step(self, totals: dict[str, Tensor]) -> None:
        """What Megatron's training loop does with the tracker after every step; it adds up ``totals``."""
        from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

        MTPLossLoggingHelper.track_mtp_metrics(
            loss_scale=1 / (self.inputs.microbatches or 1), iteration=1, writer=None, total_loss_dict=totals
        )

    def _arguments(self) -> dict[str, Any]:
        from megatron.core import parallel_state

        return {
            "hidden_states": self.hidden_states,
            "labels": self.labels,
            "loss_mask": self.loss_mask,
            "output_layer": self.output_layer,
            "output_weight": self.output_weight,
            "runtime_gather_output": None,
            "is_training": self.inputs.training,
            "compute_language_model_loss": self._loss(),
            "config": self.config,
            "cp_group": parallel_state.get_context_parallel_group(),
            "tp_group": parallel_state.get_tensor_model_parallel_group(),
            "packed_seq_params": self.packed_seq_params,
            "scale_logits_fn": self._scale_logits(),
            "input_ids": self.input_ids,
        }

    def _tensors(self) -> dict[str, Tensor]:
        named = {
            "labels": self.labels,
            "loss_mask": self.loss_mask,
            "input_ids": self.input_ids,
            "hidden_states": self.hidden_states,
            "output_weight": self.output_layer.weight if self.output_weight is None else self.output_weight,
        }
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def _tensor(self, rows: Rows | None, dtype: str) -> Tensor | None:
        if rows is None:
            return None
        values = torch.tensor(rows, dtype=getattr(torch, dtype))
        match self.inputs.layout:
            case "transposed":
                return values.T.contiguous().to(self.device).T
            case "expanded":
                return values[:1].to(self.device).expand_as(values)
        return values.to(self.device)

    def _hidden_states(self) -> Tensor:
        """[(1 + D) * S, B, 1]: 1, 2, 3, ... for the main model, the losses for every depth."""
        rows, length = self.inputs.shape
        losses = torch.ones(rows, length) if self.inputs.losses is None else torch.tensor(self.inputs.losses)
        if self.inputs.loss == "cross_entropy":
            losses = torch.zeros(rows, length)
        if self.inputs.head == "sequence_parallel":  # this rank has the first half
            losses = losses[:, : length // 2]
        main = torch.arange(1.0, losses.shape[1] + 1).expand_as(losses)
        whole = torch.cat([main, *[losses] * self.inputs.depths], dim=1)
        return whole.T.unsqueeze(-1).contiguous().to(self.device).requires_grad_(self.inputs.grad)

    def _head(self) -> tuple[OutputLayer, Tensor | None]:
        weights = {"linear": ((1.0,),), "cross_entropy": _CROSS_ENTROPY_WEIGHT, "overwriting": _OVERWRITING_WEIGHT}
        weight = torch.tensor(weights[self.inputs.loss]).to(self.device)
        match self.inputs.head:
            case "tied":  # the embedding's weight, and a layer that has none
                return OutputLayer(None), weight.requires_grad_()
            case "sequence_parallel":
                rows, length = self.inputs.shape
                return OutputLayer(weight, torch.ones(length - length // 2, rows, 1).to(self.device)), None
        return OutputLayer(weight), None

    def _head_trained(self) -> bool:
        weight = self.output_layer.weight if self.output_weight is None else self.output_weight
        assert weight is not None
        return weight.grad is not None and bool((weight.grad != 0).any())

    def _loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        """``compute_language_model_loss`` [B, S], with its labels noted."""
        compute = _cross_entropy(self.config) if self.inputs.loss == "cross_entropy" else _linear_loss

        def loss(labels: Tensor, logits: Tensor) -> Tensor:
            self.labels_seen.append(labels.detach().clone())
            losses = compute(labels, logits)
            if self.inputs.loss == "overwriting":
                with torch.no_grad():
                    logits.zero_()
            return losses

        return loss

    def _scale_logits(self) -> Callable[[Tensor], Tensor] | None:
        factor = self.inputs.logits_factor
        return None if factor is None else lambda logits: logits * factor

    def _packed_seq_params(self) -> Any:
        bounds, padded = self.inputs.cu_seqlens, self.inputs.cu_seqlens_padded
        if bounds is None:
            return None
        params = make_packed_seq_params(padded or bounds, bounds, convention="actual", device=self.device)
        if self.inputs.partition is not None:
            params.cp_partition_mode = self.inputs.partition
        return params

    @contextlib.contextmanager
    def _scaled(self) -> Iterator[None]:
        """``MTPLossAutoScaler`` with the loss scale that the inputs ask for."""
        from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

        before = MTPLossAutoScaler.main_loss_backward_scale
        if self.inputs.loss_scale is not None:
            MTPLossAutoScaler.set_loss_scale(torch.tensor(self.inputs.loss_scale).to(self.device))
        try:
            yield
        finally:
            MTPLossAutoScaler.main_loss_backward_scale = before


class _Model(torch.nn.Module):
    """What Megatron's schedule takes for a model: the MTP loss, and a main loss that is linear too."""

    model_type = "encoder_or_decoder"

    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.probe = probe
        self.config = probe.config
        self.result: Tensor | None = None

    def set_input_tensor(self, _: Any) -> None:
        """There is no stage before this one."""

    def forward(self) -> Tensor:
        """The main model's losses [B, S]."""
        result = self.probe.variant(**self.probe._arguments())
        self.result = result.detach()
        return _linear_loss(result, result)

    def loss(self, losses: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Their sum, the number of tokens, and nothing to report."""
        loss_mask = self.probe.loss_mask
        assert loss_mask is not None
        return (losses * loss_mask).sum(), loss_mask.sum().int(), {}


def _linear_loss(_: Tensor, logits: Tensor) -> Tensor:
    """The last logit of each position: [S, B, V] to [B, S]."""
    return logits[..., -1].clone().T.contiguous()


def _cross_entropy(config: Any) -> Callable[[Tensor, Tensor], Tensor]:
    from megatron.core.models.common.language_module.language_module import LanguageModule

    with quiet():
        loss: Callable[[Tensor, Tensor], Tensor] = LanguageModule(config).compute_language_model_loss
    return loss


def _config(inputs: Inputs) -> Any:
    workload = Workload(
        "check",
        mtp_num_layers=inputs.depths,
        mtp_loss_scaling_factor=inputs.scaling_factor,
        calculate_per_token_loss=inputs.per_token,
        hidden_size=1,
        num_layers=1,
        num_attention_heads=1,
        ffn_hidden_size=1,
        params_dtype="fp32",
    )
    config = transformer_config(workload)
    for name, value in inputs.config.items():
        setattr(config, name, value)
    return config


def _acceptance() -> list[tuple[float, float]]:
    """(correct, total) a depth, where Megatron's tracker has them and anything was counted."""
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

    tracker = MTPLossLoggingHelper.tracker
    if "total_values" not in tracker or not tracker["total_values"].any():
        return []
    return list(zip(tracker["correct_values"].tolist(), tracker["total_values"].tolist(), strict=True))


def _modes() -> dict[str, Any]:
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

    return {
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.is_anomaly_enabled()": torch.is_anomaly_enabled(),
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "MTPLossAutoScaler.main_loss_backward_scale": id(MTPLossAutoScaler.main_loss_backward_scale),
    }


def _by_site(syncs: Iterable[Sync]) -> list[str]:
    """``8 x FILE:LINE in FUNCTION (KIND): CODE``, a line of code each."""
    return [
        f"{site.count} x {site.first.file}:{site.first.line} in {site.first.function} ({site.first.kind}): "
        f"{site.first.code}"
        for site in by_site(syncs)
    ]


def _rows(chunk: Tensor) -> list[list[float]]:
    """[S, B, 1] as [B][S]."""
    rows: list[list[float]] = chunk.detach().squeeze(-1).T.tolist()
    return rows
