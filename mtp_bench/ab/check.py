"""Do the variants give the gradients of the job's own loss? Asked once, on the arguments of the job's first call.

The job must not notice: inputs are copies, the output layer runs with a detached weight (with gradient-accumulation
fusion its backward pass would write ``weight.main_grad``), gradients are returned and accumulated nowhere, and random
states, the MTP tracker, the loss scale and the config are put back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mtp_bench import ranges
from mtp_bench.ab.untouched import untouched
from mtp_bench.errors import InputError
from mtp_bench.megatron import depth_ranges
from mtp_bench.numerics import CLOSE, head_gradient
from mtp_bench.results import Gradients, Syncs
from mtp_bench.variants.common import surroundings

if TYPE_CHECKING:
    from torch import Tensor

    from mtp_bench.ab.place import JobDevice
    from mtp_bench.megatron.placement import Placement
    from mtp_bench.variants import Variant

# Largest error of a gradient over its largest entry that rounding explains. fp16 has 3 bits more than bf16.
BOUNDS = {torch.float32: CLOSE["fp32"][0], torch.bfloat16: CLOSE["bf16"][0], torch.float16: CLOSE["bf16"][0] / 8}
_DEFERRED = "defer_embedding_wgrad_compute"  # a setting of Megatron's: the output layer's weight gradient comes later
_HEADS = {"trained": "trains", "detached": "does not train", None: "does not call"}


@dataclass(frozen=True)
class Finding:
    """What the check found of one variant. ``error`` is why it cannot run in this job, "" where it can."""

    gradients: Gradients | None = None
    syncs: Syncs | None = None
    error: str = ""


@dataclass(frozen=True)
class Findings:
    """Those of all variants in order, and what the job's own loss does beside the loss."""

    variants: Sequence[Finding]
    head_trained: bool = False
    acceptance: bool = False


@dataclass(frozen=True)
class _Call:
    """One call of a loss: the gradient of its hidden states, what it trained, and the inputs that it changed."""

    gradient: Tensor
    head: str | None
    changed: tuple[str, ...]
    syncs: Syncs
    acceptance: bool


def check(placement: Placement, variants: Sequence[Variant], arguments: dict[str, Any], device: JobDevice) -> Findings:
    """Run the job's own loss and then every variant, forward and backward, on copies of ``arguments``."""
    if _is_without_values(arguments["hidden_states"]):
        raise InputError(
            "gradients cannot be compared: tensors of more than 2**20 elements hold no values on the simulated device; "
            "use a smaller model or batch"
        )
    inputs = _Inputs(arguments, device)
    own = inputs.run(placement.own, arguments)
    head_trained = own.head == "trained"
    with surroundings(head_trained=head_trained, acceptance=own.acceptance):
        found = [_check_variant(variant, own, inputs, placement.own_name) for variant in variants]
    return Findings(found, head_trained, own.acceptance)


def _check_variant(variant: Variant, own: _Call, inputs: _Inputs, own_name: str) -> Finding:
    try:
        call = inputs.run(variant, complete(inputs.arguments))
        roll_differs = inputs.roll_differs(variant.roll)
    except InputError as error:
        return Finding(error=str(error))
    except Exception as error:  # a variant may be anybody's code; the job goes on without it
        return Finding(error=f"{variant.name} raised {_first_line(error)}")
    problems = []
    if call.changed:
        problems.append(f"it changes its caller's {', '.join(call.changed)}")
    if call.head != own.head:
        problems.append(f"it {_HEADS[call.head]} the output layer, the job's own loss {_HEADS[own.head]} it")
    if roll_differs:
        problems.append("its roll of packed sequences differs from megatron-core's")
    gradients = judge(own.gradient, call.gradient, inputs.chunks, problems)
    return Finding(
        gradients=gradients.model_copy(update={"compared_with": own_name, "head_gradient": call.head}),
        syncs=call.syncs,
    )


def judge(own: Tensor, gradient: Tensor, chunks: int, problems: Sequence[str] = ()) -> Gradients:
    """Compare the gradients of hidden states [(1+D)*S, B, H], chunk by chunk: one small one must not hide in a large.

    ``problems`` are reasons to refuse the variant that are no matter of its numbers.
    """
    bound = BOUNDS.get(own.dtype, BOUNDS[torch.float32])
    same = torch.equal(own, gradient)
    finite_own, finite = bool(torch.isfinite(own).all()), bool(torch.isfinite(gradient).all())
    error: float | None = None
    if finite_own and finite:
        pairs = zip(own.chunk(chunks), gradient.chunk(chunks), strict=True)
        error = 0.0 if same else max(_relative_error(right, found) for right, found in pairs)
    problems = list(problems)
    status = "equal" if same else "close"
    if not finite_own:
        problems.append("the gradient of the job's own loss is not finite on this batch")
    elif not finite:
        problems.append("its gradient is not finite")
        status = "nan"
    elif error is not None and not error <= bound:
        problems.append(f"its gradient is off by up to {error:.2g} of the largest entry")
    if problems and status != "nan":
        status = "differs"
    return Gradients.model_validate(
        {
            "status": status,
            "compared_with": "",
            "max_rel_err": error,
            "bound": bound,
            "detail": "; ".join(problems),
        }
    )


class _Inputs:
    """The arguments of the job's call, copied anew for every loss."""

    def __init__(self, arguments: dict[str, Any], device: JobDevice) -> None:
        self.arguments = arguments
        self._device = device
        self.chunks = 1 + arguments["config"].mtp_num_layers
        hidden_states = arguments["hidden_states"].detach()
        # The upstream gradient of the main chunk: any fixed values do that differ from token to token.
        self._upstream = hidden_states[: len(hidden_states) // self.chunks].clone()

    def run(self, loss: Callable[..., Tensor], arguments: dict[str, Any]) -> _Call:
        """Run ``loss`` and its backward pass, with copies of what it could write into in ``arguments``."""
        names = ("hidden_states", "labels", "loss_mask")
        given: dict[str, Tensor] = {name: self.arguments[name] for name in names if self.arguments[name] is not None}
        copies = {name: tensor.detach().clone() for name, tensor in given.items()}
        packed = self.arguments.get("packed_seq_params")
        cu_seqlens: Tensor | None = getattr(packed, "cu_seqlens_q", None)
        bounds = None if cu_seqlens is None else cu_seqlens.clone()
        hidden_states = copies["hidden_states"].requires_grad_()
        with _watched(self.arguments["output_layer"]) as trained, untouched(self.arguments) as left:
            with torch.enable_grad(), self._device.record_syncs() as syncs:
                with ranges.open_range("forward"), ranges.open_range("mtp_loss"), depth_ranges(self.chunks - 1):
                    result = loss(**{**arguments, **copies})
                with ranges.open_range("backward"):
                    (gradient,) = torch.autograd.grad(result, hidden_states, self._upstream)
            acceptance = "correct_values" in left.tracker
            changed = left.changed()
        changed += [name for name, copy in copies.items() if not torch.equal(copy, given[name])]
        if cu_seqlens is not None and bounds is not None and not torch.equal(bounds, cu_seqlens):
            cu_seqlens.copy_(bounds)
            changed.append("cu_seqlens_q")
        return _Call(
            gradient,
            head_gradient(trained) if trained else None,
            tuple(changed),
            Syncs.of(syncs, {self._device.detectors[0]: len(syncs)}),
            acceptance,
        )

    def roll_differs(self, roll: Callable[..., Any] | None) -> bool:
        """Whether ``roll``, which will roll the MTP block's tokens, gives other tokens than megatron-core's."""
        from megatron.core.transformer.multi_token_prediction import roll_tensor

        packed = self.arguments.get("packed_seq_params")
        if roll is None or packed is None:
            return False
        labels = self.arguments["labels"]
        options = {
            "shifts": -1,
            "dims": -1,
            "cp_group": self.arguments.get("cp_group"),
            "packed_seq_params": packed,
        }
        return not torch.equal(roll(labels.clone(), **options)[0], roll_tensor(labels.clone(), **options)[0])


def complete(arguments: dict[str, Any]) -> dict[str, Any]:
    """All that 0.19 passes: 0.17 and 0.18 pass less, and variants may name any of it."""
    return {"input_ids": None, "tp_group": None, **arguments}


@contextmanager
def _watched(output_layer: torch.nn.Module) -> Iterator[list[bool]]:
    """Run the output layer with its weight detached; note for each call whether that weight would have been trained."""
    trained: list[bool] = []
    asked: list[bool] = []  # of calls that have not returned: the last may be cut off before it runs

    def before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        weight = args[1] if len(args) > 1 else kwargs.get("weight")
        weight = module.weight if weight is None else weight
        asked.append(bool(weight.requires_grad))
        if len(args) > 1:
            return (args[0], weight.detach(), *args[2:]), kwargs
        return args, {**kwargs, "weight": weight.detach()}

    def after(*_: Any) -> None:
        trained.append(asked.pop())

    hooks = output_layer.register_forward_pre_hook(before, with_kwargs=True), output_layer.register_forward_hook(after)
    config: Any = output_layer.config
    deferred = getattr(config, _DEFERRED, False)
    if deferred:  # a detached weight has no gradient that could be computed later, and Megatron refuses one
        setattr(config, _DEFERRED, False)
    try:
        yield trained
    finally:
        if deferred:
            setattr(config, _DEFERRED, True)
        for hook in hooks:
            hook.remove()


def _is_without_values(tensor: Tensor) -> bool:
    if tensor.device.type != "sim":
        return False
    from mtp_bench.devices.sim import is_shape_only

    return is_shape_only(tensor)


def _relative_error(own: Tensor, gradient: Tensor) -> float:
    largest = float(own.abs().max())
    error = float((own.float() - gradient.float()).abs().max())
    if largest == 0.0:
        return 0.0 if error == 0.0 else math.inf
    return error / largest


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
