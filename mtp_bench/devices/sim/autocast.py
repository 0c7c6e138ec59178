"""Autocast on the simulated device: the casts that CUDA's autocast makes, for the operators that models use.

Lists from PyTorch's "CUDA Ops that can autocast" (docs, automatic mixed precision). Unlike CUDA's, casts of weights are
not cached: one cast a use instead of one a region.
"""

from __future__ import annotations

from typing import Any

import torch


def _names(text: str) -> list[str]:
    return text.split()


_LOWER_PRECISION = _names(
    """
    addbmm addmm addmv addr baddbmm bmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input linear matmul mm mv prelu scaled_dot_product_attention
    """
)
_FLOAT32 = _names(
    """
    acos asin cosh cosine_embedding_loss cosine_similarity cdist dist erfinv exp expm1 cross_entropy_loss
    group_norm hinge_embedding_loss kl_div l1_loss layer_norm log log10 log1p log2 margin_ranking_loss mse_loss
    nll_loss norm.Scalar pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar reciprocal renorm rsqrt sinh
    smooth_l1_loss soft_margin_loss softplus tan triplet_margin_loss
    """
)
_FLOAT32_BY_DTYPE = _names("cumprod cumsum log_softmax.int prod prod.dim_int softmax.int sum sum.dim_IntList")
_WIDEST = _names("addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot cat stack")

_KEYS = torch._C.DispatchKeySet(torch._C._dispatch_key_parse("AutocastPrivateUse1"))
_FLOATING = (torch.float16, torch.bfloat16, torch.float32)


def register(library: Any) -> None:
    """Put the casts in front of the operators, in ``library`` (of ``aten``, kind IMPL)."""
    for names, cast in (
        (_LOWER_PRECISION, _to_lower_precision),
        (_FLOAT32, _to_float32),
        (_FLOAT32_BY_DTYPE, _compute_in_float32),
        (_WIDEST, _to_widest),
    ):
        for name in names:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            library.impl(name, _kernel(op, cast), "AutocastPrivateUse1")


def _kernel(op: Any, cast: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            args, kwargs = cast(args, kwargs)
            return op(*args, **kwargs)

    return run


def _cast_all(values: Any, dtype: torch.dtype) -> Any:
    if isinstance(values, torch.Tensor):
        castable = values.dtype in _FLOATING and values.dtype is not dtype and values.device.type == "sim"
        return values.to(dtype) if castable else values
    if isinstance(values, (list, tuple)):
        return type(values)([_cast_all(value, dtype) for value in values])
    if isinstance(values, dict):
        return {name: _cast_all(value, dtype) for name, value in values.items()}
    return values


def _to_lower_precision(args: Any, kwargs: Any) -> Any:
    dtype = torch.get_autocast_dtype("sim")
    return _cast_all(args, dtype), _cast_all(kwargs, dtype)


def _to_float32(args: Any, kwargs: Any) -> Any:
    return _cast_all(args, torch.float32), _cast_all(kwargs, torch.float32)


def _compute_in_float32(args: Any, kwargs: Any) -> Any:
    low = args[0].dtype in (torch.float16, torch.bfloat16)
    return args, {"dtype": torch.float32, **kwargs} if low and kwargs.get("dtype") is None else kwargs


def _to_widest(args: Any, kwargs: Any) -> Any:
    dtypes = {tensor.dtype for tensor in _tensors(args) if tensor.dtype in _FLOATING}
    if len(dtypes) < 2:
        return args, kwargs
    dtype = torch.float32 if torch.float32 in dtypes else torch.get_autocast_dtype("sim")
    return _cast_all(args, dtype), _cast_all(kwargs, dtype)


def _tensors(values: Any) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    return [tensor for value in values for tensor in _tensors(value)] if isinstance(values, (list, tuple)) else []
