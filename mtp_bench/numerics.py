"""Are a variant's values right? Its logged losses and gradients against a float64 reference in plain mathematics.

With l_k(i) the cross entropy of position i against the token k places after its label, m_k(i) the loss mask there (0
past the end of the sequence), n_k the sum of m_k, D depths and the scaling factor lambda (DeepSeek-V3,
arXiv:2412.19437, equations 24 and 25), depth k logs  sum_i m_k l_k / max(n_k, 1)  and adds to the objective

    lambda / D * sum_i m_k l_k / max(n_k, 1)            (mean)
    lambda / D * n_0 * sum_i m_k l_k / max(n_k, 1)      (calculate_per_token_loss)

The second is later divided by n_0, as the undivided main loss is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from mtp_bench import ranges
from mtp_bench.inputs import make_inputs
from mtp_bench.megatron import clear_logged_losses, logged_losses, reduce_logged_losses

if TYPE_CHECKING:
    from mtp_bench.scopes.loss import LossBench, LossStep
    from mtp_bench.workloads import Workload

Array = npt.NDArray[np.float64]

# Largest relative gradient error and deviation of the gradient's scale that still count as close. In bf16 the weight of
# the MTP loss, lambda / D, is rounded where it is most of a gradient's entry, the same way for all tokens: up to 2^-9 a
# rounding (seen: 0.0019 in scope loss, 0.0045 in the few tokens of a tiny step).
CLOSE = {"fp32": (1e-5, 1e-4), "bf16": (2e-2, 5e-3)}
_CHUNK = 256  # rows of logits held at once: 256 x 129,280 float64 are 265 MB


@dataclass(frozen=True, slots=True)
class Reference:
    """The right values: logged loss a depth, and the gradient of ``hidden_states`` [(1+D)*S, B, H]."""

    losses: tuple[float, ...]
    grad: Array


def reference(
    workload: Workload, hidden_states: Array, head_weight: Array, labels: npt.NDArray[np.int64], loss_mask: Array
) -> Reference:
    """Compute the reference of scope ``loss`` from ``hidden_states`` [(1+D)*S, B, H] and ``head_weight`` [V, H].

    ``labels`` and ``loss_mask`` are [B, S]. Gradients are analytic: (softmax - onehot) W times the position's weight.
    """
    depths, per_token = workload.mtp_num_layers, workload.calculate_per_token_loss
    chunks = hidden_states.reshape(1 + depths, *labels.T.shape, -1)
    grads = np.zeros_like(chunks)
    num_tokens = loss_mask.sum()
    main = 1.0 if per_token else 1.0 / max(num_tokens, 1.0)
    _, grads[0] = _cross_entropy(chunks[0], head_weight, labels, loss_mask * main)
    losses = []
    for depth in range(1, 1 + depths):
        target = shift_within_sequences(labels, depth, workload)
        mask = shift_within_sequences(loss_mask, depth, workload)
        mean = mask / max(mask.sum(), 1.0)
        scale = workload.mtp_loss_scaling_factor / depths * (num_tokens if per_token else 1.0)
        loss, grad = _cross_entropy(chunks[depth], head_weight, target, mean)
        losses.append(float(loss))
        grads[depth] = scale * grad
    return Reference(tuple(losses), grads.reshape(hidden_states.shape))


def shift_within_sequences(values: npt.NDArray[Any], by: int, workload: Workload) -> npt.NDArray[Any]:
    """Shift [B, S] left by ``by`` inside each sequence; 0 where the sequence has ended."""
    shifted = np.zeros_like(values)
    bounds = workload.layout().cu_seqlens if workload.packed else (0, values.shape[1])
    for start, end in itertools.pairwise(bounds):
        if end - start > by:
            shifted[:, start : end - by] = values[:, start + by : end]
    return shifted


def _cross_entropy(
    hidden: Array, head_weight: Array, labels: npt.NDArray[np.int64], weight: Array
) -> tuple[float, Array]:
    """Return the weighted sum of cross entropies of ``hidden`` [S, B, H], and its gradient."""
    rows = hidden.reshape(-1, hidden.shape[-1])
    target, row_weight = labels.T.reshape(-1), weight.T.reshape(-1)
    grad, total = np.zeros_like(rows), 0.0
    used = np.flatnonzero(row_weight)
    for chunk in (used[start : start + _CHUNK] for start in range(0, len(used), _CHUNK)):
        logits = rows[chunk] @ head_weight.T
        logits -= logits.max(axis=1, keepdims=True)
        softmax = np.exp(logits)
        norm = softmax.sum(axis=1, keepdims=True)
        losses = np.log(norm[:, 0]) - np.take_along_axis(logits, target[chunk, None], axis=1)[:, 0]
        total += float(losses @ row_weight[chunk])
        softmax /= norm
        softmax[np.arange(len(chunk)), target[chunk]] -= 1.0
        grad[chunk] = (softmax @ head_weight) * row_weight[chunk, None]
    return total, grad.reshape(hidden.shape)


def check_loss(step: LossStep) -> dict[str, Any]:
    """Run ``step`` once and judge it: ``numerics`` of run.json. On several ranks, what all of them did together."""
    from mtp_bench.scopes.shares import whole_gradient

    bench, right = step.bench, step.bench.right
    bench.restore()
    clear_logged_losses()
    with watch_head(bench.head.output_layer) as trained:
        step()
    grad = bench.inputs.hidden_states.grad
    assert grad is not None
    if bench.workload.cp_size > 1:
        grad = whole_gradient(grad, bench.workload)
        reduce_logged_losses()
    main_rows = len(right.grad) // (1 + bench.workload.mtp_num_layers)
    return {
        "at": {"hidden_size": bench.workload.hidden_size, "vocab_size": bench.workload.vocab_size},
        "head_gradient": head_gradient(trained),
        **judge(
            {"hidden_states": _float64(grad)},
            {"hidden_states": right.grad},
            scale_over={"hidden_states": slice(main_rows, None)},
            logged=[float(loss) for loss in logged_losses()],
            right_losses=list(right.losses),
            dtype=bench.workload.params_dtype,
            changed=bench.given.changed(),
        ),
    }


def reference_of(bench: LossBench) -> Reference:
    """The reference for the inputs of ``bench``, those of all ranks."""
    inputs = bench.inputs if bench.workload.cp_size == 1 else make_inputs(bench.workload, torch.device("cpu"))
    return reference(
        bench.workload,
        _float64(inputs.hidden_states),
        _float64(inputs.head_weight),
        inputs.labels.detach().cpu().numpy(),
        _float64(inputs.loss_mask),
    )


def head_gradient(trained: Sequence[bool]) -> str | None:
    """What the calls that :func:`watch_head` saw amount to; None where a variant never called the output layer."""
    return ("trained" if any(trained) else "detached") if trained else None


def judge(
    grads: dict[str, Array],
    right_grads: dict[str, Array],
    scale_over: dict[str, slice],
    logged: list[float],
    right_losses: list[float],
    dtype: str,
    changed: Sequence[str] = (),
) -> dict[str, Any]:
    """Compare gradients and logged losses with the right ones. A variant that logs nothing is judged by its gradients.

    ``changed`` names the inputs that the variant wrote into, which makes it wrong whatever it computed.
    ``scale_over`` names the gradients, and the rows of them, over which <g,r>/<r,r> is the scale of the MTP gradient.
    """
    finite_grad = all(np.isfinite(grad).all() for grad in grads.values())
    log_not_finite = [depth for depth, loss in enumerate(logged, 1) if not math.isfinite(loss)]
    finite_log = not log_not_finite
    error = _largest_relative_error(grads, right_grads) if finite_grad else math.nan
    scale = _scale(grads, right_grads, scale_over) if finite_grad else math.nan
    max_error, max_scale = CLOSE[dtype]
    log_off = [
        depth for depth, (a, b) in enumerate(zip(logged, right_losses, strict=False), 1) if not _near(a, b, max_error)
    ]
    problems = []
    if not finite_grad:
        problems.append("the gradient is not finite")
    if not finite_log:
        problems.append(f"the logged loss is not finite at depth {_depths(log_not_finite)}")
    if finite_log and log_off:
        problems.append(f"the logged loss is off at depth {_depths(log_off)}")
    if logged and len(logged) != len(right_losses):
        problems.append(f"{len(logged)} losses were logged for {len(right_losses)} depths")
    if finite_grad and scale is not None and abs(scale - 1) > max_scale:
        problems.append(f"the MTP gradient is {scale:.4g} times what it should be")
    elif finite_grad and error > max_error:
        problems.append(f"the gradient is off by up to {error:.2g} of its largest entry")
    if changed:
        problems.append(f"it changes its caller's {', '.join(changed)}")
    same = not problems and all(
        np.array_equal(_rounded(grads[name], dtype), _rounded(right_grads[name], dtype)) for name in grads
    )
    finite = finite_grad and finite_log
    return {
        "finite": finite,
        "status": ("equal" if same else "close") if not problems else "differs" if finite else "nan",
        "logged_loss": logged,
        "reference_loss": right_losses,
        "max_rel_err_grad": error,
        "grad_scale": scale,
        "detail": "; ".join(problems if logged else [*problems, "no loss was logged"]),
    }


def _largest_relative_error(grads: dict[str, Array], right: dict[str, Array]) -> float:
    largest = max((float(np.abs(grad).max(initial=0.0)) for grad in right.values()), default=0.0)
    error = max((float(np.abs(grads[name] - right[name]).max(initial=0.0)) for name in right), default=0.0)
    if largest == 0.0:
        return 0.0 if error == 0.0 else math.inf
    return error / largest


def _scale(grads: dict[str, Array], right: dict[str, Array], over: dict[str, slice]) -> float | None:
    """<g,r>/<r,r>; None where the right gradient is 0, which has no scale."""
    pairs = [(grads[name][rows].ravel(), right[name][rows].ravel()) for name, rows in over.items()]
    norm = sum(float(r @ r) for _, r in pairs)
    return sum(float(g @ r) for g, r in pairs) / norm if norm > 0 else None


def _near(value: float, right: float, tolerance: float) -> bool:
    return math.isclose(value, right, rel_tol=tolerance, abs_tol=1e-12)


def _depths(depths: Sequence[int]) -> str:
    """``1, 3, 5 to 64``."""
    runs: list[list[int]] = []
    for depth in depths:
        if runs and depth == runs[-1][-1] + 1:
            runs[-1].append(depth)
        else:
            runs.append([depth])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _rounded(values: Array, dtype: str) -> npt.NDArray[Any]:
    """``values`` as the dtype can hold them; float64 again, for NumPy has no bfloat16."""
    to = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    return torch.from_numpy(np.ascontiguousarray(values)).to(to).double().numpy()


def _float64(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().double().numpy()


@contextmanager
def watch_head(output_layer: torch.nn.Module) -> Iterator[list[bool]]:
    """Note for each call of the output layer inside ``mtp_loss`` whether its weight takes part in the gradient."""
    trained: list[bool] = []

    def before(module: torch.nn.Module, _args: object, kwargs: dict[str, Any]) -> None:
        weight = kwargs.get("weight")
        if "mtp_loss" in ranges.path():
            trained.append(bool((module.weight if weight is None else weight).requires_grad))

    hook = output_layer.register_forward_pre_hook(before, with_kwargs=True)
    try:
        yield trained
    finally:
        hook.remove()
