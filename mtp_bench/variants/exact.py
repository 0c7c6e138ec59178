"""``exact``: the MTP loss with the weight that it should have, whatever the masks, the packing and the ranks.

The objective
=============

Let rank r of R ranks (data parallel times context parallel: R = dp * cp) hold in microbatch j of M the positions i with
cross entropy l_k(i) against the token k places after the label, and weight m_k(i): the loss mask at that place, 0 where
the sequence has ended before, where the place is padding, and where the label there is -100. With

    n_k(r, j) = sum_i m_k(i)            the weight of the targets of depth k, of one rank and microbatch
    n_0(r, j)                           that of the main loss's tokens (the loss mask's own sum)

DeepSeek-V3 (arXiv:2412.19437, equations 24 and 25) adds to the main loss, for D depths and the factor lambda,

    lambda / D * sum_k L_k,    L_k the mean of l_k over its targets.

A variant gives each l_k(i) a coefficient c_k(i), through ``MTPLossAutoScaler``; Megatron does the rest, in one of two
ways, and the coefficient must undo what that does to a mean.

With ``calculate_per_token_loss``
---------------------------------

The main loss of a microbatch is a sum; gradients are summed over ranks and microbatches and ``finalize_model_grads``
divides them by N_0 = sum_rj n_0(r, j). The objective becomes 1 / N_0 * sum_rji c_k(i) l_k(i). With

    c_k(i) = lambda / D * m_k(i) * n_0(j) / n_k(j),      n_k(j) = sum_r n_k(r, j)

it is lambda / D * sum_j n_0(j) / N_0 * L_k(j): the mean over all ranks' targets of each microbatch, weighted as the
microbatch is in the main loss. That it is the mean over all microbatches' targets too would take sum_j n_k(j) before
the first backward pass, when the later microbatches do not exist; it is equal where n_k(j) / n_0(j) is the same in all
of them. Counts of one rank in place of n(j) would give a target of a rank with few of them the wrong weight, and lose
it where that rank's n_0(r, j) is 0: under context parallelism a target may be on another rank than its token.

Without it
----------

The schedule divides the main loss by its microbatch's count and by M (and ``MTPLossAutoScaler`` by M too), and
gradients are averaged over all R ranks. Means of microbatches and of data-parallel ranks count equally, whatever their
number of tokens: that is what this mode means. Context-parallel ranks hold parts of the same sequences, where the mean
must not depend on the split:

    c_k(i) = lambda / D * m_k(i) * cp / n_k(d, j),       n_k(d, j) = sum of n_k(r, j) over the cp ranks of r

which the average over R ranks turns into lambda / (D dp M) * sum_dj L_k(d, j).

The log
-------

Megatron's tracker adds up microbatches, divides by their number and averages over the R ranks. What is logged is
R * sum_i m_k(i) l_k(i) / n_k(j), of which that average is the mean over all targets of the ranks, and 0 where no rank
has one.

How
===

Labels and mask are gathered once from the context-parallel ranks, so that all depths shift within whole sequences and
the counts of these ranks need no reduction; counts of data-parallel ranks are reduced while the first depth's logits
and losses are computed, and waited for on the device. Nothing is read on the host.

Counts are float32 whatever the mask's dtype, and divided by where they are above 0 (a weight of 0.5 alone is a count of
0.5). Losses without a target are replaced, not multiplied by 0: they may be infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mtp_bench.megatron import acceptance_counts, save_mtp_loss
from mtp_bench.variants.common import Config, Model, add_to_backward
from mtp_bench.variants.whole_rows import WholeRows, find_whole_rows

IGNORED = -100
"""The label that carries no loss: PyTorch's ``ignore_index``, which frameworks write into labels of prompts."""


def exact(
    *,
    hidden_states: Tensor,
    labels: Tensor | None,
    loss_mask: Tensor | None,
    output_layer: torch.nn.Module,
    output_weight: Tensor | None,
    runtime_gather_output: bool | None,
    is_training: bool,
    compute_language_model_loss: Callable[[Tensor, Tensor], Tensor],
    config: Config,
    cp_group: Any = None,
    tp_group: Any = None,
    packed_seq_params: Any = None,
    scale_logits_fn: Callable[[Tensor], Tensor] | None = None,
    input_ids: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """Return the main model's hidden states [S, B, H], with the MTP losses attached to their backward pass.

    Without ``labels`` these are the tokens after ``input_ids``, whose positions ``loss_mask`` then refers to. All ranks
    of a data-parallel and of a context-parallel group must call it equally often: they exchange counts and targets.
    """
    main, *chunks = torch.chunk(hidden_states, 1 + config.mtp_num_layers, dim=0)
    tokens = input_ids if labels is None else labels
    if tokens is None or not (is_training or torch.is_grad_enabled()):
        return main  # nothing to predict, or nobody to tell
    rows = find_whole_rows(tokens.shape[-1], packed_seq_params, cp_group, tokens.device)
    targets, counts = _find_targets(rows, tokens, loss_mask, config.mtp_num_layers, from_input_ids=labels is None)
    model = Model(
        output_layer, output_weight, runtime_gather_output, compute_language_model_loss, scale_logits_fn, tp_group
    )
    for number, (chunk, target) in enumerate(zip(chunks, targets, strict=True)):
        logits = model.logits(chunk, config)
        accepted = None
        if is_training:  # before the loss: some overwrite their logits
            accepted = acceptance_counts(
                logits, target.labels, target.weight, output_layer, runtime_gather_output, tp_group
            )
        losses = compute_language_model_loss(target.labels, logits)
        weighted = losses.masked_fill(target.weight == 0, 0) * target.weight
        if is_training:
            logged = weighted.detach().sum() * counts.logged_factor(number)
            save_mtp_loss(logged, number, config.mtp_num_layers, accepted)
        factor = config.mtp_loss_scaling_factor / config.mtp_num_layers
        main = add_to_backward(main, weighted * (factor * counts.factor(number, config)))
    return main


def exact_roll(
    tensor: Tensor | None, shifts: int = -1, dims: int = -1, cp_group: Any = None, packed_seq_params: Any = None
) -> tuple[Any, Any]:
    """Stand in for megatron-core's ``roll_tensor`` (one token to the left along the last dimension of [B, S])."""
    if tensor is None:
        return None, None
    rows = find_whole_rows(tensor.shape[-1], packed_seq_params, cp_group, tensor.device)
    rolled = rows.own(rows.shift(rows.gather(tensor)))
    return rolled, rolled.sum()


@dataclass(frozen=True)
class Target:
    """What this rank predicts at one depth: labels [B, S] int64, and the weight of each, float32."""

    labels: Tensor
    weight: Tensor


class Counts:
    """The weights of the main loss's tokens and of each depth's targets, [1 + D] float32: n_0, n_1, ... n_D.

    Those of the context-parallel ranks are known, those of the data-parallel ones on their way.
    """

    def __init__(self, of_cp: Tensor, cp_size: int) -> None:
        self._of_cp = of_cp
        self._cp_size = cp_size
        self._of_all = of_cp
        self._dp_size = 1
        self._reduction: Any = None
        group = _data_parallel_group()
        if group is not None and group.size() > 1:
            self._dp_size = group.size()
            self._of_all = of_cp.clone()
            self._reduction = dist.all_reduce(self._of_all, group=group, async_op=True)

    def factor(self, depth: int, config: Config) -> Tensor:
        """What the mean's coefficients m_k are multiplied by (0-d), but for lambda / D; ``depth`` counts from 0."""
        if not config.calculate_per_token_loss:
            return _ratio(self._cp_size, self._of_cp[1 + depth])
        counts = self._all()
        return _ratio(counts[0], counts[1 + depth])

    def logged_factor(self, depth: int) -> Tensor:
        """What the sum of this rank's losses is multiplied by (0-d) such that ranks average to the mean of all."""
        return _ratio(self._dp_size * self._cp_size, self._all()[1 + depth])

    def _all(self) -> Tensor:
        if self._reduction is not None:
            self._reduction.wait()  # on a GPU the stream waits, the host does not
            self._reduction = None
        return self._of_all


def _ratio(dividend: Tensor | int, count: Tensor) -> Tensor:
    return torch.where(count > 0, dividend / count, 0.0)


def _find_targets(
    rows: WholeRows, tokens: Tensor, loss_mask: Tensor | None, depths: int, *, from_input_ids: bool
) -> tuple[list[Target], Counts]:
    """The targets of every depth, and their counts; ``tokens`` are labels, or what labels are shifted from."""
    labels = rows.gather(tokens.long())
    carries = labels != IGNORED
    if rows.in_sequence is not None:
        carries = carries & rows.in_sequence
    if loss_mask is None:
        weight = main_weight = carries.float()
    else:
        main_weight = rows.gather(loss_mask.float())
        weight = main_weight.masked_fill(~carries, 0)
    labels = labels.masked_fill(labels == IGNORED, 0)  # no index into logits
    if from_input_ids:
        labels, weight = rows.shift(labels), rows.shift(weight)
        main_weight = weight
    targets, counts = [], [main_weight.sum()]
    for _ in range(depths):
        labels, weight = rows.shift(labels), rows.shift(weight)
        targets.append(Target(rows.own(labels), rows.own(weight)))
        counts.append(weight.sum())
    cp_size = 1 if rows.cp_group is None else rows.cp_group.size()
    return targets, Counts(torch.stack(counts), cp_size)


def _data_parallel_group() -> Any:
    """The ranks with other sequences than this one; None where there are no process groups."""
    from megatron.core import parallel_state

    if not dist.is_initialized() or not parallel_state.model_parallel_is_initialized():
        return None
    return parallel_state.get_data_parallel_group()
