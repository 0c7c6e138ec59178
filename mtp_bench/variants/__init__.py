"""The variants of the MTP loss by name: built in, from what is installed, or the user's own.

Names can be listed without torch; a variant's code is imported when it is loaded.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from mtp_bench.errors import InputError, did_you_mean
from mtp_bench.megatron import versions

if TYPE_CHECKING:
    from torch import Tensor

    from mtp_bench.workloads import Workload

__all__ = ["ARGUMENTS", "Variant", "VariantError", "available_names", "builtin_names", "load", "title"]

ENTRY_POINT_GROUP = "mtp_bench.variants"

ARGUMENTS = (
    "hidden_states",
    "labels",
    "loss_mask",
    "output_layer",
    "output_weight",
    "runtime_gather_output",
    "is_training",
    "compute_language_model_loss",
    "config",
    "cp_group",
    "tp_group",
    "packed_seq_params",
    "scale_logits_fn",
    "input_ids",
)
"""Keyword arguments of ``process_mtp_loss`` in megatron-core 0.19; a variant takes those of them that it names."""

_TITLES = {
    "original": "verl up to 0.8.0: divides by num_tokens, no rescaling",
    "patched": "verl from 0.9.0: clamp, rescaling, and the num_tokens > 0 guard on the host",
    "sync_free": "as patched, the logged loss by clamp alone",
    "host_lens": "as sync_free, packed rolls with bounds from a host list",
    "boundary_roll": "as sync_free, packed rolls in a constant number of operations",
    "exact": "right under every known case, across ranks too",
    "megatron": "the installed megatron-core's own code",
    "verl": "the installed verl's own code",
}


class VariantError(Exception):
    """A variant broke the contract of ``process_mtp_loss``; the message says how."""


@dataclass(frozen=True)
class Variant:
    """One implementation of the MTP loss.

    ``roll`` stands in for megatron-core's ``roll_tensor`` where the variant has a roll of its own. ``version`` and
    ``path`` say which code runs where that is somebody else's, ``note`` what a reader should know of it.
    """

    name: str
    fn: Callable[..., Any]
    title: str = ""
    roll: Callable[..., Any] | None = None
    version: str = ""
    path: str = ""
    note: str = ""
    needs_packed_roll: bool = False  # packed sequences go through megatron-core's roll, or are promised only with it
    refusal: str = ""  # why it runs nothing here
    accepts: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "accepts", _accepted(self.name, self.fn))

    def unsupported(self, workload: Workload) -> str | None:
        """Why ``workload`` cannot run with this variant here; None where it can."""
        if self.refusal:
            return self.refusal
        return versions.packed_unsupported() if workload.packed and self.needs_packed_roll else None

    def __call__(self, **arguments: Any) -> Tensor:
        """Run it with those of ``process_mtp_loss``'s arguments that it names; returns hidden states [S, B, H].

        Raises VariantError where it returns anything but the first chunk of ``hidden_states``.
        """
        result: Tensor = self.fn(**{name: value for name, value in arguments.items() if name in self.accepts})
        self._check(result, arguments["hidden_states"], 1 + arguments["config"].mtp_num_layers)
        return result

    def _check(self, result: object, hidden_states: Tensor, chunks: int) -> None:
        length, *rest = hidden_states.shape
        expected = [length // chunks, *rest]
        shape = list(getattr(result, "shape", ()))
        if shape != expected:
            returned = f"a tensor of shape {shape}" if shape else type(result).__name__
            raise VariantError(
                f"{self.name} returned {returned}; expected shape {expected}, "
                f"the first of {chunks} chunks of hidden_states"
            )
        for what in ("dtype", "device"):
            found, right = getattr(result, what, None), getattr(hidden_states, what)
            if found != right:
                raise VariantError(f"{self.name} returned a tensor of {what} {found}; expected {right}")
        if hidden_states.requires_grad and not getattr(result, "requires_grad", True):
            raise VariantError(
                f"{self.name} returned a tensor that no gradient flows through; return hidden states as they are"
            )


def builtin_names() -> tuple[str, ...]:
    """Names of the variants that are always there."""
    return tuple(name for name in _TITLES if name != "verl")


def available_names() -> tuple[str, ...]:
    """Names that :func:`load` knows here; a user's own variant goes by its dotted path too."""
    from mtp_bench.variants import verl

    installed = ("verl",) if verl.package() is not None else ()
    return (*builtin_names(), *installed, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP)))


def title(name: str) -> str:
    """What a variant is, known without loading it; "" for a user's own."""
    return _TITLES.get(name, "")


def is_users(name: str) -> bool:
    """Whether ``name`` stands for somebody's own code, which may do anything."""
    return name not in _TITLES


def load(name: str) -> Variant:
    """Load the variant ``name``, or the callable at ``package.module:callable``."""
    if ":" in name:
        return _from_path(name)
    if name == "verl":
        return _verl()
    if name in _TITLES:
        return _builtin(name)
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        return _from_path(name, target=point.value)
    raise InputError(f"--variant {name}: no such variant{did_you_mean(name, available_names())}")


def _builtin(name: str) -> Variant:
    versions.require()
    module = importlib.import_module(f"mtp_bench.variants.{name}")
    title = _TITLES[name]
    if name == "megatron":
        loss, path = module.load_loss()
        return Variant(name, loss, title, version=versions.version(), path=path, needs_packed_roll=True)
    roll = {"host_lens": "host_lens_roll", "boundary_roll": "packed_roll", "exact": "exact_roll"}.get(name)
    return Variant(
        name, getattr(module, name), title, roll=getattr(module, roll) if roll else None, needs_packed_roll=True
    )


def _verl() -> Variant:
    from mtp_bench.variants import verl

    package = verl.package()
    if package is None:
        raise InputError("--variant verl: verl is not installed, or has no MTP loss of its own (0.8 and later have)")
    core = versions.require()
    without_packed_roll = f"verl passes packed_seq_params to roll_tensor, which megatron-core {core} does not take"
    return Variant(
        "verl",
        verl.load_loss(package),
        _TITLES["verl"],
        version=verl.version(package),
        path="_megatron_gptmodel_postprocess, legacy path",
        note="inactive here: verl dispatches to megatron-core" if versions.has_process_mtp_loss() else "",
        refusal="" if versions.has_packed_roll() else without_packed_roll,
    )


def _from_path(name: str, target: str = "") -> Variant:
    """The user's callable, named ``name``, at ``target`` (``package.module:callable``), by default its name."""
    target = target or name
    module_name, _, attributes = target.partition(":")
    if not module_name or not attributes:
        raise InputError(f"--variant {name}: expected package.module:callable")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as with `python -m`: what lies in the current folder can be named
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InputError(f"--variant {name}: cannot import {module_name}: {type(error).__name__}: {error}") from error
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            owner = getattr(found, "__name__", type(found).__name__)
            raise InputError(
                f"--variant {name}: {owner} has no {attribute!r}{_callables_near(attribute, found)}"
            ) from None
        except Exception as error:
            raise InputError(f"--variant {name}: reading {attribute} raised {type(error).__name__}: {error}") from error
    if not callable(found):
        raise InputError(f"--variant {name}: {target} is a {type(found).__name__}; expected a callable")
    title = next(iter((inspect.getdoc(found) or "").splitlines()), "")
    return Variant(name, found, title, roll=getattr(found, "roll", None), path=target)


def _callables_near(attribute: str, owner: Any) -> str:
    named = getattr(owner, "__dict__", {}).items()
    names = [name for name, value in named if callable(value) and not name.startswith("_")]
    return did_you_mean(attribute, names) if names else ""


def _accepted(name: str, fn: Callable[..., Any]) -> frozenset[str]:
    """Which of ``ARGUMENTS`` the callable takes; InputError where it needs one that is not among them."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        raise InputError(f"--variant {name}: its signature cannot be read; expected a function") from None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return frozenset(ARGUMENTS)
    for parameter in parameters:
        required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
        if required and (parameter.name not in ARGUMENTS or parameter.kind is parameter.POSITIONAL_ONLY):
            raise InputError(
                f"--variant {name}: its argument {parameter.name!r} is none of process_mtp_loss's keyword arguments: "
                + ", ".join(ARGUMENTS)
                + "; wrap it in a function that takes those it needs and returns hidden_states, as in docs/check.md"
            )
    return frozenset(parameter.name for parameter in parameters) & frozenset(ARGUMENTS)
