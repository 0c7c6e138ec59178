"""Where the MTP loss of a GPT model sits, and how another takes its place: for scope ``step`` and for ``ab`` alike.

From megatron-core 0.17 on it is ``process_mtp_loss``, looked up in the module of ``GPTModel``, or in verl's where
verl's ``_postprocess`` is on the model. Up to 0.16 it is the middle of ``GPTModel._postprocess``, which then runs with
a view of the model that has no MTP depths, so that all but the loss stays Megatron's own code.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from mtp_bench.errors import InputError
from mtp_bench.megatron import versions
from mtp_bench.patching import Patches

if TYPE_CHECKING:
    from torch import Tensor

MTPLoss = Callable[..., "Tensor"]
"""Takes the keyword arguments of ``process_mtp_loss``; returns the main model's hidden states [S, B, H]."""


class Watch(NamedTuple):
    """Called where the own loss begins and where it has ended."""

    enter: Callable[[], None]
    leave: Callable[[], None]


_VERL_LOSS = "_process_mtp_loss"  # verl's name for megatron-core's function in its own module


class Placement:
    """The place of one model's MTP loss, where what replaces it can change at any time. InputError where none can.

    ``loss`` runs there while it is set, in calls that train: with labels, with gradients and in training mode. All
    other calls, and all calls of other models, run what was there: ``own`` is that, with the same arguments. While
    ``watch`` is set and ``loss`` is not, it is told where the own loss begins and ends in calls that train.
    """

    def __init__(self, model: Any) -> None:
        self.loss: MTPLoss | None = None
        self.watch: Watch | None = None
        self._model = model
        self._modules: dict[str, Any] = vars(model)["_modules"]  # asking the model takes half a microsecond each
        self._patches = Patches()
        self._rolls: Patches | None = None
        self._roll: Callable[..., Any] | None = None
        self._rolling = False  # the loss or a roll of the variant runs: what it calls is Megatron's
        reason = obstacle(model)
        if reason:
            raise InputError(reason)
        if versions.has_process_mtp_loss():
            owner, name = _verl_module(model), _VERL_LOSS
            if owner is None:
                from megatron.core.models.gpt import gpt_model

                owner, name = gpt_model, "process_mtp_loss"
            self.own: MTPLoss = getattr(owner, name)
            self.own_name = f"{owner.__name__}.{name} of megatron-core {versions.version()}"
            self._place, self._function = (owner, name), self._dispatch
        else:
            from mtp_bench.variants.borrowed import run_postprocess

            self._no_depths = _NoDepths(model.config)
            self._postprocess = type(model)._postprocess
            self.own = partial(_run_own, run_postprocess, self._postprocess)
            self.own_name = f"GPTModel._postprocess of megatron-core {versions.version()}"
            self._place, self._function = (model, "_postprocess"), self._postprocess_with_loss

    def install(self) -> None:
        """Put the dispatcher there; until ``loss`` is set it changes nothing."""
        self._patches.set(*self._place, self._function)

    def remove(self) -> None:
        """Leave the model and Megatron as they were."""
        self.loss = self.watch = None
        self.set_roll(None)
        self._patches.withdraw()

    def set_roll(self, roll: Callable[..., Any] | None) -> None:
        """Let ``roll`` stand in for the MTP block's ``roll_tensor`` where sequences are packed; None undoes that."""
        if self._rolls is not None:
            self._rolls.withdraw()
            self._rolls = None
        self._roll = roll
        if roll is not None:
            self._rolls = Patches()
            for module in _rolling_modules(self._model):
                self._rolls.wrap(module, "roll_tensor", self._packed_rolls)

    def _dispatch(self, *args: Any, **arguments: Any) -> Tensor:
        """Stand in for ``process_mtp_loss``."""
        loss, watch = self.loss, self.watch
        if (
            (loss is None and watch is None)
            or arguments.get("output_layer") is not self._modules["output_layer"]
            or arguments.get("labels") is None
            or not arguments.get("is_training")
            or not torch.is_grad_enabled()
        ):
            return self.own(*args, **arguments)
        if loss is not None:
            return self._run(loss, **arguments)
        assert watch is not None
        watch.enter()
        result = self.own(*args, **arguments)
        watch.leave()
        return result

    def _postprocess_with_loss(self, *args: Any, **arguments: Any) -> Tensor:
        """Stand in for ``_postprocess`` of the model, 0.14 to 0.16."""
        model, loss, watch = self._model, self.loss, self.watch
        if args:
            bound = inspect.signature(self._postprocess).bind(model, *args, **arguments).arguments
            arguments = {name: value for name, value in bound.items() if value is not model}
        seen = model
        if (
            (loss is not None or watch is not None)
            and arguments.get("labels") is not None
            and model.training
            and torch.is_grad_enabled()
        ):
            seen = self._watched(watch, arguments) if loss is None else self._with_loss(loss, arguments)
        result: Tensor = self._postprocess(seen, **arguments)
        return result

    def _with_loss(self, loss: MTPLoss, arguments: dict[str, Any]) -> _View:
        """The model without depths: its block runs, then ``loss``."""
        block: Any = self._modules.get("mtp")
        mtp_loss = partial(self._run, loss, **self._loss_arguments(arguments))
        if not arguments.get("mtp_in_postprocess"):  # the block has run already: on another stage, or in 1F1B overlap
            arguments["hidden_states"] = mtp_loss(hidden_states=arguments["hidden_states"])

        def mtp(**of_block: Any) -> Tensor:
            return mtp_loss(hidden_states=block(**of_block))

        # What says that there are no depths: up to 0.15 ``mtp_process``, in 0.16 the config.
        return _View(self._model, {"mtp": mtp, "mtp_process": False, "config": self._no_depths})

    def _watched(self, watch: Watch | None, arguments: dict[str, Any]) -> _View:
        """The model as it is, watched where its own loss begins and where the main loss does."""
        assert watch is not None
        model, enter = self._model, watch.enter
        block: Any = self._modules.get("mtp")
        if not arguments.get("mtp_in_postprocess"):
            enter()

        def mtp(**of_block: Any) -> Tensor:
            hidden_states: Tensor = block(**of_block)
            enter()
            return hidden_states

        output_layer = _CountedLayer(self._modules["output_layer"], model.config.mtp_num_layers, watch.leave)
        return _View(model, {"mtp": mtp, "output_layer": output_layer})

    def _loss_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """What ``_postprocess`` gives the loss that is in it, but for the hidden states."""
        model = self._model
        shared = model.share_embeddings_and_output_weights
        return {
            "labels": arguments["labels"],
            "loss_mask": arguments.get("loss_mask"),
            "output_layer": self._modules["output_layer"],
            "output_weight": model.shared_embedding_or_output_weight() if shared else None,
            "runtime_gather_output": arguments.get("runtime_gather_output"),
            "is_training": model.training,
            "compute_language_model_loss": model.compute_language_model_loss,
            "config": model.config,
            "cp_group": model.cp_group,
            "packed_seq_params": arguments.get("packed_seq_params"),
            "scale_logits_fn": None,
            "input_ids": arguments.get("input_ids"),
        }

    def _run(self, loss: MTPLoss, **arguments: Any) -> Tensor:
        self._rolling = True
        try:
            return loss(**arguments)
        finally:
            self._rolling = False

    def _packed_rolls(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def roll_tensor(tensor: Any, *args: Any, packed_seq_params: Any = None, **options: Any) -> Any:
            if packed_seq_params is None:
                return original(tensor, *args, **options)
            roll = self._roll
            # A fill value is an option that verl passes to newer rolls; those of the variants have 0.
            if roll is None or self._rolling or args or "fill_value" in options:
                return original(tensor, *args, packed_seq_params=packed_seq_params, **options)
            self._rolling = True
            try:
                return roll(tensor, packed_seq_params=packed_seq_params, **options)
            finally:
                self._rolling = False

        return roll_tensor


@contextmanager
def mtp_loss_in_place(model: Any, mtp_loss: MTPLoss, roll: Callable[..., Any] | None = None) -> Iterator[None]:
    """Run ``mtp_loss`` where ``model`` runs its own, in calls that train, and ``roll`` where packed sequences roll."""
    placement = Placement(model)
    placement.loss = mtp_loss
    placement.set_roll(roll)
    placement.install()
    try:
        yield
    finally:
        placement.remove()


class _View:
    """A model as its ``_postprocess`` sees it, with ``changes``.

    What the model holds is copied: each `__getattr__` would cost half a microsecond. Methods are the model's.
    """

    def __init__(self, model: Any, changes: dict[str, Any]) -> None:
        held = vars(model)
        self.__dict__ = {**held, **held["_modules"], "_model": model, **changes}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class _CountedLayer:
    """An output layer that calls ``leave`` when it is called once more than there are depths: for the main loss."""

    def __init__(self, layer: Any, depths: int, leave: Callable[[], None]) -> None:
        self._layer, self._depths_left, self._leave = layer, depths, leave

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._depths_left == 0:
            self._leave()
        self._depths_left -= 1
        return self._layer(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


class _NoDepths:
    """A config with ``mtp_num_layers`` None, which is what 0.16 asks."""

    mtp_num_layers = None

    def __init__(self, config: Any) -> None:
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


def _run_own(run: Callable[..., Tensor], postprocess: Callable[..., Any], **arguments: Any) -> Tensor:
    return run(postprocess, arguments)


def _rolling_modules(model: Any) -> list[Any]:
    """Modules whose global ``roll_tensor`` the MTP block calls: Megatron's, and that of a patch on its layers."""
    from megatron.core.transformer import multi_token_prediction

    modules = [multi_token_prediction]
    for layer in getattr(getattr(model, "mtp", None), "layers", ()):
        module = _module_of(vars(layer).get("_get_embeddings"))
        if hasattr(module, "roll_tensor") and module not in modules:
            modules.append(module)
    return modules


def obstacle(model: Any) -> str | None:
    """Why the MTP loss of ``model`` (a GPTModel) cannot be replaced, and what to do; None where it can."""
    from megatron.core.models.gpt import gpt_model
    from megatron.core.models.gpt.gpt_model import GPTModel

    if type(model)._postprocess is not GPTModel._postprocess:
        return (
            f"{type(model).__module__}.{type(model).__qualname__} overrides GPTModel._postprocess, where the MTP loss "
            "is: use it with a plain GPTModel"
        )
    if not _is_of(GPTModel._postprocess, gpt_model):
        return f"GPTModel._postprocess is replaced by {_name(GPTModel._postprocess)}: leave that patch out"
    patch = vars(model).get("_postprocess")
    if patch is not None and getattr(patch, "__func__", patch) is not GPTModel._postprocess:
        return _obstacle_of_patch(model, patch)
    if versions.has_process_mtp_loss():
        return _obstacle_of_loss(gpt_model, "process_mtp_loss")
    return None


def _obstacle_of_patch(model: Any, patch: Any) -> str | None:
    """Another ``_postprocess`` on the model itself: verl's is known where it calls ``process_mtp_loss``."""
    module = _module_of(patch)
    if hasattr(module, "_HAS_PROCESS_MTP_LOSS"):
        if module._HAS_PROCESS_MTP_LOSS:
            return _obstacle_of_loss(module, _VERL_LOSS)
        return (
            f"verl's {_name(patch)} runs a loss of its own in GPTModel._postprocess (megatron-core "
            f"{versions.version()} has no process_mtp_loss), which cannot be swapped: use megatron-core 0.17 or later, "
            "where verl calls process_mtp_loss"
        )
    return f"the model's _postprocess is replaced by {_name(patch)}: leave that patch out"


def _obstacle_of_loss(owner: Any, name: str) -> str | None:
    from megatron.core.transformer import multi_token_prediction

    if _is_of(getattr(owner, name), multi_token_prediction):
        return None
    return f"{owner.__name__}.{name} is replaced by {_name(getattr(owner, name))}: leave that patch out"


def _verl_module(model: Any) -> Any:
    """verl's module whose ``_postprocess`` is on the model; None where none is."""
    module = _module_of(vars(model).get("_postprocess"))
    return module if hasattr(module, "_HAS_PROCESS_MTP_LOSS") else None


def _module_of(function: Any) -> Any:
    """The module in whose globals a function or method looks names up; None where that is none that is loaded."""
    function = getattr(function, "__func__", function)
    module = sys.modules.get(getattr(function, "__module__", ""))
    return module if module is not None and getattr(function, "__globals__", None) is vars(module) else None


def _is_of(function: Any, module: Any) -> bool:
    """Whether the code of ``function`` is in ``module``'s file: a wrapper may carry the names of what it wraps."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == module.__file__


def _name(function: Any) -> str:
    function = getattr(function, "__func__", function)
    name = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    code = getattr(function, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"
