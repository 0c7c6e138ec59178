"""What the dispatcher needs to know of an operator, worked out once from its schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from mtp_bench.devices.sim.rules import Rule, rules_for

# One kernel on CUDA too, or metadata only: running them whole is exact, and faster than taking them apart.
_WHOLE = frozenset(
    """
    aten::clone aten::sum aten::mean aten::zeros_like aten::ones_like aten::full_like aten::empty_like aten::new_empty
    aten::new_zeros aten::new_ones aten::new_full aten::embedding aten::constant_pad_nd aten::stack aten::detach aten::detach_
    aten::alias aten::lift aten::lift_fresh aten::_unsafe_view aten::repeat aten::masked_fill.Scalar aten::logical_not
    aten::logical_and aten::logical_or aten::logical_xor aten::abs aten::abs_ aten::mv aten::copy_ aten::_to_copy
    aten::convolution aten::_convolution aten::convolution_backward aten::scalar_tensor aten::slice_backward
    aten::select_backward aten::_pin_memory aten::is_pinned aten::is_same_size aten::sort aten::isinf aten::rand_like
    aten::randn_like aten::randint_like aten::binary_cross_entropy_with_logits aten::t_ aten::transpose_ aten::squeeze_
    aten::squeeze_.dim aten::squeeze_.dims aten::unsqueeze_ aten::nan_to_num aten::nan_to_num_ aten::logsumexp
    aten::resize_as_ aten::cummax aten::cummin aten::logcumsumexp aten::view.dtype aten::_lazy_clone aten::norm.Scalar
    aten::as_strided_ aten::bernoulli.p aten::diag_embed aten::new_empty_strided aten::slice_scatter aten::select_scatter
    aten::diagonal_scatter aten::as_strided_scatter aten::lift_fresh_copy aten::pixel_shuffle aten::pixel_unshuffle
    aten::norm.ScalarOpt_dtype aten::_fw_primal aten::_has_same_storage_numel aten::mode.values aten::kthvalue
    """.split()
)
_COMPOSITE_KEYS = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional")
# These write every element of their first argument, whatever it held.
_OVERWRITES = frozenset({"aten::zero_", "aten::fill_", "aten::copy_", "aten::normal_", "aten::uniform_", "aten::random_"})
# The result takes its shape from the first argument, and none of its values.
_SHAPE_READERS = frozenset(
    """
    aten::zeros_like aten::ones_like aten::full_like aten::empty_like aten::new_empty aten::new_zeros aten::new_ones
    aten::new_full aten::new_empty_strided aten::rand_like aten::randn_like aten::randint_like
    """.split()
)
# In-place, and size or strides change with it.
_RESHAPES_IN_PLACE = frozenset(
    """
    aten::t_ aten::transpose_ aten::squeeze_ aten::unsqueeze_ aten::as_strided_ aten::resize_ aten::resize_as_ aten::set_
    aten::swapaxes_ aten::swapdims_ aten::detach_
    """.split()
)
_VIEWS_WITHOUT_ALIAS_IN_SCHEMA = {"aten::_unsafe_view": 0, "aten::lift": 0, "aten::_reshape_alias": 0}
# Results may be larger than any input.
_GROWS_ALONE = frozenset(
    """
    aten::repeat aten::constant_pad_nd aten::new_zeros aten::new_empty aten::new_full aten::new_ones
    aten::new_empty_strided aten::stack aten::cat aten::empty aten::empty_strided aten::slice_backward
    aten::select_backward aten::embedding_dense_backward aten::index_select_backward aten::diagonal_backward
    aten::gather_backward aten::unfold_backward aten::full aten::eye aten::_foreach_add
    """.split()
)


@dataclass(frozen=True, slots=True)
class Plan:
    """One operator overload, as the dispatcher treats it."""

    op: Any  # torch._ops.OpOverload
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

    @property
    def writes(self) -> bool:
        """Whether it writes to an argument."""
        return bool(self.mutates)


def make_plan(op: Any) -> Plan:
    """Work out the plan of the operator overload ``op``."""
    schema = op._schema
    base = schema.name
    name = f"{base}.{schema.overload_name}" if schema.overload_name else base
    keys: list[int | str] = [argument.name if argument.kwarg_only else at for at, argument in enumerate(schema.arguments)]
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
    if name.split(".")[-1].startswith("Scalar") and base not in {"aten::linspace", "aten::logspace"}:
        return False
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if has(op.name(), "CPU"):
        return False
    return any(has(op.name(), key) for key in _COMPOSITE_KEYS)
