"""The tensor that says ``device='sim:0'`` and keeps its values in a CPU tensor, or only their shape."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

Spec = tuple[tuple[int, ...], tuple[int, ...], int, torch.dtype]
"""Size, strides, storage offset, dtype: all that a shape-only tensor has."""

DEVICE_INDEX = 0  # PyTorch's Python hooks report one device; a backward on sim:1 would assert


class Storage:
    """What is known of one simulated allocation; every view of it shares the object.

    ``origin`` is None while the values are real. Else it names the operation that last wrote a value nobody knows, and
    every tensor on the allocation is shape-only: a view that still read its old bytes would look true and be wrong.
    """

    __slots__ = ("origin",)

    def __init__(self, origin: str | None = None) -> None:
        self.origin = origin


class SimTensor(torch.Tensor):
    """A wrapper: size, strides and dtype are its own, ``_held`` is a CPU tensor or, where shape-only, None."""

    _held: torch.Tensor | None
    _storage: Storage

    # Class-level dispatch target, set by dispatch.py: the two modules would import each other otherwise.
    _dispatch: Callable[..., Any]

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return SimTensor._dispatch(func, args, kwargs or {})

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its history. Setting it makes this tensor show the other's values (Megatron does)."""
        return self.detach()

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        _set_data(self, other)
        if isinstance(other, SimTensor):
            self._held, self._storage = other._held, other._storage

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        """True: inside a session, ``cuda`` means the simulated device."""
        return True

    def __setitem__(self, index: Any, value: Any) -> None:
        # For CUDA, PyTorch makes the number a tensor of the host and then copies or fills; elsewhere one of the device.
        if isinstance(value, (int, float, complex)):
            value = torch.tensor(value, dtype=self.dtype)
        super().__setitem__(index, value)

    def type(self, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """The legacy name, as CUDA's."""
        name = super().type(dtype, non_blocking, **kwargs)
        return name.replace("torch.sim.", "torch.cuda.") if isinstance(name, str) else name

    def record_stream(self, stream: Any) -> None:
        """Nothing to do: no memory is reused behind a stream's back."""

    def tolist(self) -> Any:
        """One blocking copy, as on CUDA, then a list."""
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Like CUDA's: an error unless ``force`` asks for the copy."""
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(
            "can't convert sim:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def __format__(self, spec: str) -> str:
        if self.dim() == 0 and not is_shape_only(self):
            return format(self.item(), spec)
        return format(repr(self), spec)

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        if is_shape_only(self):
            return (
                f"tensor(<shape-only, made by {self._storage.origin}>, size={tuple(self.shape)}, dtype={self.dtype}, "
                f"device='sim:0')"
            )
        return str(torch._tensor_str._str(self))  # type: ignore[no-untyped-call]

    def __deepcopy__(self, memo: dict[int, Any]) -> SimTensor:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol")
        with torch.no_grad():
            twin = self.detach().clone()
        twin.requires_grad_(self.requires_grad)
        memo[id(self)] = twin
        own = {"_held", "_storage"}
        twin.__dict__.update(
            {key: copy.deepcopy(value, memo) for key, value in self.__dict__.items() if key not in own}
        )
        if self.grad is not None:
            twin.grad = copy.deepcopy(self.grad, memo)
        return twin  # type: ignore[return-value]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (self.detach().cpu(), self.requires_grad, getattr(self, "_is_param", False))


_set_data = torch.Tensor.data.__set__  # type: ignore[attr-defined]


def _rebuild(values: torch.Tensor, requires_grad: bool, is_param: bool) -> torch.Tensor:
    tensor = values.to("sim")
    return torch.nn.Parameter(tensor, requires_grad) if is_param else tensor.requires_grad_(requires_grad)


def is_shape_only(tensor: object) -> bool:
    """Whether ``tensor`` is simulated and its values are not known."""
    return isinstance(tensor, SimTensor) and tensor._storage.origin is not None


_make = torch.Tensor._make_wrapper_subclass
_DEVICE: list[torch.device] = []  # filled on registration: before it, "sim" is no device


def sim_device() -> torch.device:
    """``torch.device("sim:0")``."""
    return _DEVICE[0]


def wrap(values: torch.Tensor, storage: Storage) -> SimTensor:
    """A simulated tensor over the CPU tensor ``values``, on ``storage``."""
    if values.layout is not torch.strided:
        raise NotImplementedError(f"the simulated device does not support {values.layout} tensors")
    tensor = _make(
        SimTensor, values.shape, values.stride(), values.storage_offset(), dtype=values.dtype, device=_DEVICE[0]
    )
    tensor._held = values
    tensor._storage = storage
    return tensor


def wrap_shape(spec: Spec, storage: Storage) -> SimTensor:
    """A shape-only tensor."""
    size, stride, offset, dtype = spec
    tensor = _make(SimTensor, size, stride, offset, dtype=dtype, device=_DEVICE[0])
    tensor._held = None
    tensor._storage = storage
    return tensor


def spec_of(tensor: torch.Tensor) -> Spec:
    """What is known of ``tensor`` without its values."""
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.dtype


def adopt(tensor: SimTensor, other: SimTensor) -> None:
    """Make ``tensor`` what ``other`` is: for in-place operations that change size or strides."""
    _set_data(tensor, other)
    tensor._held, tensor._storage = other._held, other._storage
