"""What the dispatcher needs to know of an operator, worked out once from its schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from mtp_bench.devices.sim.rules import Rule, rules_for


def aten(names: str) -> frozenset[str]:
    """Full names of operators."""
    return frozenset(f"aten::{name}" for name in names.split())


# One kernel on CUDA too, or metadata only: running them whole is exact, and faster than taking them apart.
_WHOLE = aten(
    """
    clone sum mean zeros_like ones_like full_like empty_like new_empty new_zeros new_ones new_full embedding
    constant_pad_nd stack detach detach_ alias lift lift_fresh _unsafe_view repeat masked_fill.Scalar logical_not
    logical_and logical_or logical_xor abs abs_ mv copy_ _to_copy convolution _convolution convolution_backward
    scalar_tensor slice_backward select_backward _pin_memory is_pinned is_same_size sort isinf rand_like randn_like
    randint_like binary_cross_entropy_with_logits t_ transpose_ squeeze_ squeeze_.dim squeeze_.dims unsqueeze_
    nan_to_num nan_to_num_ logsumexp resize_as_ cummax cummin logcumsumexp view.dtype _lazy_clone norm.Scalar
    as_strided_ bernoulli.p diag_embed new_empty_strided slice_scatter select_scatter diagonal_scatter
    as_strided_scatter lift_fresh_copy pixel_shuffle pixel_unshuffle norm.ScalarOpt_dtype _fw_primal
    _has_same_storage_numel mode.values kthvalue
    """
)
_COMPOSITE_KEYS = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional")
# These write every element of their first argument, whatever it held.
_OVERWRITES = aten("zero_ fill_ copy_ normal_ uniform_ random_")
# The result takes its shape from the first argument, and none of its values.
_SHAPE_READERS = aten(
    """
    zeros_like ones_like full_like empty_like new_empty new_zeros new_ones new_full new_empty_strided rand_like
    randn_like randint_like
    """
)
# In-place, and size or strides change with it.
_RESHAPES_IN_PLACE = aten(
    """
    t_ transpose_ squeeze_ unsqueeze_ as_strided_ resize_ resize_as_ set_ swapaxes_ swapdims_ detach_
    """
)
_VIEWS_WITHOUT_ALIAS_IN_SCHEMA = {"aten::_unsafe_view": 0, "aten::lift": 0, "aten::_reshape_alias": 0}
# Where CUDA takes a tensor of the host beside device tensors, whatever its size.
_TAKES_HOST_TENSORS = aten(
    """
    copy_ _to_copy index index_put_ index_put _index_put_impl_ _unsafe_index _unsafe_index_put set_ _foreach_copy_
    _pack_padded_sequence _ctc_loss _ctc_loss_backward is_same_size _has_same_storage_numel
    """
)
# Results may be larger than any input.
_GROWS_ALONE = aten(
    """
    repeat constant_pad_nd new_zeros new_empty new_full new_ones new_empty_strided stack cat empty empty_strided
    slice_backward select_backward embedding_dense_backward index_select_backward diagonal_backward gather_backward
    unfold_backward full eye _foreach_add
    """
)


@dataclass(frozen=True, slots=True)
class Plan:
    """One operator overload, as the dispatcher treats it."""

    op: Any  # torch._ops.OpOverload
    call: Any  # op without the Python layer that OpOverload adds
    name: str  # "aten::add.Tensor"
    base: str  # "aten::add"
    rules: tuple[Rule, ...]
    returns: tuple[tuple[str, int | str], ...]  # per return: ("new", -1), ("same", argument) or ("view", argument)
    mutates: tuple[int | str, ...]  # arguments written to: positions, names where keyword-only
    decompose: bool
    is_view: bool  # metadata only: no kernel
    overwrites: bool
    reads_shape: bool
    reshapes: bool
    grows: bool
    random: bool
    takes_generator: bool
    dynamic: bool  # shape or flow depends on values
    refuses_host_tensors: bool


def make_plan(op: Any) -> Plan:
    """Work out the plan of the operator overload ``op``."""
    schema = op._schema
    base = schema.name
    name = f"{base}.{schema.overload_name}" if schema.overload_name else base
    keys: list[int | str] = [
        argument.name if argument.kwarg_only else at for at, argument in enumerate(schema.arguments)
    ]
    mutates = tuple(
        key
        for key, argument in zip(keys, schema.arguments, strict=True)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    returns = tuple(_source_of(ret, schema.arguments, keys, base) for ret in schema.returns)
    tags = op.tags
    is_view = not mutates and bool(returns) and all(kind == "view" for kind, _ in returns)
    return Plan(
        op=op,
        call=op._op,
        name=name,
        base=base,
        rules=rules_for(base, schema.overload_name),
        returns=returns,
        mutates=mutates,
        decompose=not is_view and _is_composite(op, name, base),
        is_view=is_view,
        overwrites=base in _OVERWRITES,
        reads_shape=base in _SHAPE_READERS,
        reshapes=base in _RESHAPES_IN_PLACE,
        grows=base in _GROWS_ALONE or (not mutates and not is_view and _tensor_arguments(schema) > 1),
        random=torch.Tag.nondeterministic_seeded in tags,
        takes_generator=any(argument.name == "generator" for argument in schema.arguments),
        dynamic=torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags,
        refuses_host_tensors=base.startswith("aten::") and base not in _TAKES_HOST_TENSORS,
    )


def _source_of(ret: Any, arguments: Any, keys: list[int | str], base: str) -> tuple[str, int | str]:
    if base in _VIEWS_WITHOUT_ALIAS_IN_SCHEMA:
        return "view", _VIEWS_WITHOUT_ALIAS_IN_SCHEMA[base]
    if ret.alias_info is None:
        return "new", -1
    for key, argument in zip(keys, arguments, strict=True):
        # A list of views has its alias set inside the list's type, where Python does not see it: an empty set.
        shared = argument.alias_info is not None and (
            argument.alias_info.before_set & ret.alias_info.before_set or not ret.alias_info.before_set
        )
        if shared:
            return ("same" if ret.alias_info.is_write else "view"), key
    return "new", -1


def _tensor_arguments(schema: Any) -> int:
    return sum("Tensor" in str(argument.type) for argument in schema.arguments)


def _is_composite(op: Any, name: str, base: str) -> bool:
    """Whether CUDA has no kernel of its own for it, so that its parts are what CUDA dispatches."""
    if not base.startswith("aten::") or base.startswith("aten::_foreach_") or name in _WHOLE or base in _WHOLE:
        return False
    # Taken apart, these hand a number to an overload that takes tensors, which Python cannot pass on as one.
    if name.rpartition(".")[2].startswith("Scalar") and base not in {"aten::linspace", "aten::logspace"}:
        return False
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if has(op.name(), "CPU"):
        return False
    return any(has(op.name(), key) for key in _COMPOSITE_KEYS)
