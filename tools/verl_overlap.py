"""The MTP loss that verl keeps in its 1F1B overlap file, as a variant: ``tools.verl_overlap:mtp_loss``.

``MTP_BENCH_VERL`` names the folder that holds the package ``verl``. No caller of that copy is known in verl itself.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from mtp_bench.errors import InputError
from mtp_bench.variants import verl
from mtp_bench.variants.borrowed import run_postprocess

FILE = Path("models", "mcore", "model_forward_1f1b_overlap.py")


class _MainLossReached(Exception):
    """The copy has finished its MTP losses and packs up the main model's output."""

    def __init__(self, hidden_states: Tensor) -> None:
        self.hidden_states = hidden_states


def mtp_loss(
    hidden_states: Tensor,
    labels: Tensor,
    loss_mask: Tensor | None,
    output_layer: torch.nn.Module,
    output_weight: Tensor | None,
    runtime_gather_output: bool | None,
    is_training: bool,
    compute_language_model_loss: Callable[..., Tensor],
    config: Any,
    cp_group: Any = None,
    packed_seq_params: Any = None,
) -> Tensor:
    """verl's unfixed copy of the MTP loss, in its 1F1B overlap file."""
    arguments = dict(locals())
    package = verl.package()
    if package is None:
        raise InputError(f"{verl.ENVIRONMENT} is not set: expected the folder that holds the package verl")
    copy = _copy(package / FILE)

    def postprocess(self: Any, **passed: Any) -> None:
        try:
            copy(self, **passed)
        except _MainLossReached as reached:
            self.output_layer(reached.hidden_states)  # what run_postprocess takes for the start of the main loss

    return run_postprocess(postprocess, arguments)


@functools.cache
def _copy(file: Path) -> Callable[..., Any]:
    """``_postprocess`` as the function in ``file`` defines it and puts it on the model."""
    model = SimpleNamespace(
        pre_process=True,
        post_process=True,
        build_schedule_plan=lambda **_: SimpleNamespace(post_process=SimpleNamespace()),
    )
    unused = SimpleNamespace(shape=(1, 1), contiguous=lambda: None)
    _load(file).gptmodel_forward_1f1b_overlap(
        model, input_ids=unused, position_ids=None, attention_mask=unused, labels_mask=unused
    )
    copy: Callable[..., Any] = model._postprocess.__func__
    return copy


def _load(file: Path) -> Any:
    """The module in ``file``; of verl it gets stand-ins for what it imports, none of which computes an MTP loss."""
    spec = importlib.util.spec_from_file_location("verl.models.mcore.model_forward_1f1b_overlap", file)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    with _stand_ins():
        spec.loader.exec_module(module)
    return module


@contextmanager
def _stand_ins() -> Iterator[None]:
    def stop_at_main_loss(*, hidden_states: Tensor, **_: Any) -> None:
        raise _MainLossReached(hidden_states)

    def unpacked(tensor: Any, *_: Any, **__: Any) -> tuple[Any, None]:
        return tensor, None

    def not_reached(*_: Any, **__: Any) -> None:
        raise AssertionError("the main loss has begun")

    contents: dict[str, dict[str, Any]] = {
        "verl": {},
        "verl.models": {},
        "verl.models.mcore": {},
        "verl.models.mcore.util": {
            "preprocess_packed_seqs": unpacked,
            "postprocess_packed_seqs": not_reached,
            "postprocess_packed_seqs_for_dict_output": not_reached,
        },
        "verl.utils": {},
        "verl.utils.kernel": {},
        "verl.utils.kernel.linear_cross_entropy": {"linear_cross_entropy": not_reached},
        "verl.utils.megatron_utils": {"unwrap_model": lambda model: model},
        "verl.utils.model": {"CausalLMOutputForPPO": stop_at_main_loss},
    }
    before = {name: sys.modules.get(name) for name in contents}
    for name, attributes in contents.items():
        module = ModuleType(name)
        module.__path__ = []
        module.__dict__.update(attributes)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name, real in before.items():
            if real is None:
                del sys.modules[name]
            else:
                sys.modules[name] = real
