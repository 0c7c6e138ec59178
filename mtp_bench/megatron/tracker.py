"""The MTP losses that Megatron logs: the one function that writes them, and how to read them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Counts = tuple["torch.Tensor", "torch.Tensor"]
"""How many tokens a depth predicted right, and of how many; 0-d each."""


def acceptance_counts(
    logits: torch.Tensor,
    labels: torch.Tensor,
    loss_mask: torch.Tensor,
    output_layer: Any,
    runtime_gather_output: bool | None,
    tp_group: Any,
) -> Counts | None:
    """The counts by Megatron's own function; None where the installed megatron-core counts nothing (up to 0.18)."""
    from megatron.core.transformer import multi_token_prediction

    count = getattr(multi_token_prediction, "_compute_mtp_acceptance_counts", None)
    if count is None:
        return None
    counts: Counts = count(logits, labels, loss_mask, output_layer, runtime_gather_output, tp_group)
    return counts


def save_mtp_loss(loss: torch.Tensor, layer_number: int, num_layers: int, accepted: Counts | None = None) -> None:
    """Log the loss (0-d) of one depth as Megatron's training loop expects it, averaged over data-parallel ranks.

    Up to 0.18 the tracker takes the loss alone. From 0.19 it also wants the counts of the acceptance rate; without
    ``accepted`` 0 of 0 is logged, a rate of 0.
    """
    from megatron.core import parallel_state
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Helper

    group = None
    if parallel_state.model_parallel_is_initialized():
        group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    if hasattr(Helper, "save_loss_to_tracker"):
        Helper.save_loss_to_tracker(loss, layer_number, num_layers, avg_group=group)
    else:
        import torch

        correct, total = accepted or (torch.zeros_like(loss),) * 2
        Helper.save_metrics_to_tracker(loss, correct, total, layer_number, num_layers, avg_group=group)


def logged_losses() -> list[torch.Tensor]:
    """The losses logged since the last :func:`clear_logged_losses`, one 0-d tensor a depth, summed over calls."""
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Helper

    values = Helper.tracker.get("values", Helper.tracker.get("loss_values"))
    return [] if values is None else list(values.unbind())


def reduce_logged_losses() -> None:
    """Average what was logged over the ranks, as Megatron's training loop does before it shows it."""
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Helper

    up_to_0_18 = getattr(Helper, "reduce_loss_in_tracker", None)
    if up_to_0_18 is not None:
        up_to_0_18()
    else:
        Helper.reduce_metrics_in_tracker()


def clear_logged_losses() -> None:
    """Forget what was logged, and how many depths there were."""
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Helper

    Helper.tracker.clear()
