"""The MTP losses that Megatron logs: the one function that writes them, and how to read them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def save_mtp_loss(loss: torch.Tensor, layer_number: int, num_layers: int) -> None:
    """Log the loss (0-d) of one depth as Megatron's training loop expects it, averaged over data-parallel ranks.

    Up to 0.18 the tracker takes the loss alone. From 0.19 it also wants the counts of the acceptance rate; ours does
    not compute them, and 0 of 0 is logged as a rate of 0.
    """
    from megatron.core import parallel_state
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Helper

    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    if hasattr(Helper, "save_loss_to_tracker"):
        Helper.save_loss_to_tracker(loss, layer_number, num_layers, avg_group=group)
    else:
        import torch

        none = torch.zeros_like(loss)
        Helper.save_metrics_to_tracker(loss, none, none, layer_number, num_layers, avg_group=group)


def logged_losses() -> list[torch.Tensor]:
    """The losses logged since the last :func:`clear_logged_losses`, one 0-d tensor a depth, summed over calls."""
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Helper

    values = Helper.tracker.get("values", Helper.tracker.get("loss_values"))
    return [] if values is None else list(values.unbind())


def clear_logged_losses() -> None:
    """Forget what was logged, and how many depths there were."""
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper as Helper

    Helper.tracker.clear()
