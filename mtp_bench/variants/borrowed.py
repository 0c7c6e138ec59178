"""How to run an MTP loss that sits inside a method of somebody's GPT model, without that model."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class _MainLossReached(Exception):
    """The method has finished its MTP losses and asks for the main model's logits."""

    def __init__(self, hidden_states: Tensor) -> None:
        self.hidden_states = hidden_states


def run_postprocess(postprocess: Callable[..., Any], arguments: dict[str, Any]) -> Tensor:
    """Run the MTP part of ``GPTModel._postprocess`` or of a replacement; return its main hidden states [S, B, H].

    ``arguments`` are those of ``process_mtp_loss``. The method stops where it calls the output layer once more than
    there are depths; no tensor operation is added, none of the main loss runs.
    """
    output_layer: torch.nn.Module = arguments["output_layer"]
    calls_left = arguments["config"].mtp_num_layers

    def stop_at_main_loss(_: torch.nn.Module, args: tuple[Tensor, ...]) -> None:
        nonlocal calls_left
        calls_left -= 1
        if calls_left < 0:
            raise _MainLossReached(args[0])

    names = ("hidden_states", "labels", "loss_mask", "packed_seq_params", "runtime_gather_output", "input_ids")
    passed = {name: arguments.get(name) for name in names}
    unused = dict.fromkeys(("position_ids", "rotary_pos_emb", "rotary_pos_cos", "rotary_pos_sin"))
    hook = output_layer.register_forward_pre_hook(stop_at_main_loss)
    try:
        postprocess(_stand_in(arguments), mtp_in_postprocess=False, **passed, **unused)
    except _MainLossReached as reached:
        return reached.hidden_states
    finally:
        hook.remove()
    raise AssertionError("the method returned before the main loss")


def _stand_in(arguments: dict[str, Any]) -> SimpleNamespace:
    """What the method reads of ``self``."""
    weight = arguments.get("output_weight")
    return SimpleNamespace(
        config=arguments["config"],
        training=arguments["is_training"],
        post_process=True,
        mtp_process=True,
        share_embeddings_and_output_weights=weight is not None,
        shared_embedding_or_output_weight=lambda: weight,
        output_layer=arguments["output_layer"],
        compute_language_model_loss=arguments["compute_language_model_loss"],
        cp_group=arguments.get("cp_group"),
    )
