"""The ``torch`` detector: syncs as PyTorch itself reports them on CUDA, with operator, direction and full stack.

Three sources, none of which has durations:

- PyTorch's sync debug mode warns before each wait inside an operator, a copy or ``Stream.synchronize``. The warning
  comes as text, so a ``warnings.showwarning`` hook takes the stack.
- A dispatch mode remembers which operator runs, for the warning does not say. It also sees copies that wait, or may
  wait, inside the driver, of which PyTorch does not warn: ``non_blocking=True`` with pageable memory.
- Waits for the whole device and for events are not warned of. They are seen where Python asks for them or, with
  ``callbacks=True``, by PyTorch's own trace callbacks, which also see those that C++ code makes.

What it cannot see: waits inside libraries that call CUDA directly, allocator stalls, and syncs inside a
``warnings.catch_warnings`` that ignores them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtp_bench import ranges
from mtp_bench.patching import replaced
from mtp_bench.syncs.callsite import capture_stack
from mtp_bench.syncs.model import Sync

_WARNING = "called a synchronizing CUDA operation"
_COPIES = frozenset({"aten::_to_copy", "aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize"})
_INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
# These read an argument, or their result, by an `item` of their own, below the dispatch mode.
_READ_A_SCALAR = frozenset(
    {
        "aten::_local_scalar_dense",
        "aten::allclose",
        "aten::index_fill",
        "aten::index_fill_",
        "aten::linspace",
        "aten::logspace",
        "aten::masked_fill",
        "aten::masked_fill_",
    }
)


@contextmanager
def record_torch_syncs(*, callbacks: bool = False) -> Iterator[list[Sync]]:
    """Collect the syncs of what runs inside, each one, in order.

    ``callbacks`` switches PyTorch's trace callbacks on. PyTorch has no way to switch them off again: from then on each
    allocation and event of the process costs some microseconds more (docs/cuda.md), so no time measured after it holds.
    """
    with TorchRecorder(callbacks=callbacks).recording() as recorder:
        yield recorder.syncs


class TorchRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What is seen: ``syncs``, and ``ops``, the number of dispatched operations."""

    supports_higher_order_operators = True  # they are passed on like any operator

    def __init__(self, *, callbacks: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.syncs: list[Sync] = []
        self.ops = 0
        self._callbacks = callbacks
        self._running: list[tuple[str, str]] = []  # operator and the kind its sync would have, innermost last

    @contextmanager
    def recording(self) -> Iterator[TorchRecorder]:
        """Record inside; leave everything as it was."""
        with ExitStack() as stack:
            # Backward on the calling thread: the mode sees its operators, and stacks hold the caller's frames.
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(self._warnings())
            stack.enter_context(self._device_and_event_waits())
            stack.enter_context(self)
            yield self

    def add(self, kind: str, op: str, frame: FrameType | None = None) -> None:
        """File one sync under the line that now runs in ``frame``, by default the caller's."""
        self.syncs.append(
            Sync(
                kind=kind,
                op=op,
                stack=capture_stack(frame or sys._getframe(1)),
                phase=ranges.phase(),
                range=ranges.path(),
                seen_by="torch",
            )
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.ops += 1
        op, kind = _op_and_kind(func, args, kwargs)
        unwarned = _unwarned_wait(op, kind, args, kwargs)
        if unwarned is not None:
            self.add(unwarned, op)
        self._running.append((op, kind))
        try:
            result, error = _with_own_warnings(func, types, args, kwargs)
        finally:
            self._running.pop()
        if error is not None:
            raise error
        return result

    @contextmanager
    def _warnings(self) -> Iterator[None]:
        show = warnings.showwarning

        @wraps(show)
        def hook(message: Any, *args: Any, **kwargs: Any) -> None:
            if not str(message).startswith(_WARNING):
                show(message, *args, **kwargs)
                return
            # Outside every operator there are the copies of torch.tensor(), new_tensor() and of lists as indices, which
            # PyTorch makes below the dispatch mode.
            op, kind = self._running[-1] if self._running else ("aten::_to_copy", "htod")
            self.add(kind, op, _warned_frame())
            if getattr(show, "is_sync_hook", False):  # a recorder around this one
                show(message, *args, **kwargs)

        hook.is_sync_hook = True  # type: ignore[attr-defined]
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype feature")
            torch.cuda.set_sync_debug_mode("warn")
            warnings.filterwarnings("always", message=_WARNING)
            warnings.showwarning = hook
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode(before)

    @contextmanager
    def _device_and_event_waits(self) -> Iterator[None]:
        with ExitStack() as stack:
            # PyTorch warns of stream waits by itself; the wrapper only says which call it was.
            stack.enter_context(_wrapped(torch.cuda.Stream, "synchronize", self._naming("stream_sync")))
            if self._callbacks:
                stack.enter_context(self._trace_callbacks())
            else:
                stack.enter_context(_wrapped(torch.cuda.Event, "synchronize", self._before(self._event_wait)))
                for name in (
                    "_cuda_synchronize",
                    "_accelerator_synchronizeDevice",
                ):  # torch.cuda's, torch.accelerator's
                    stack.enter_context(_wrapped(torch._C, name, self._before(self._device_wait)))
            yield

    def _device_wait(self, *_: object) -> None:
        self.add("device_sync", "torch.cuda.synchronize")

    def _event_wait(self, event: Any) -> None:
        if getattr(event, "cuda_event", event):  # an event that was never recorded is not waited for
            self.add("event_sync", "torch.cuda.Event.synchronize")

    def _before(self, see: Callable[..., None]) -> Callable[[Any], Any]:
        def wrap(original: Any) -> Any:
            @wraps(original)
            def call(*args: Any, **kwargs: Any) -> Any:
                see(*args)
                return original(*args, **kwargs)

            return call

        return wrap

    def _naming(self, kind: str) -> Callable[[Any], Any]:
        def wrap(original: Any) -> Any:
            @wraps(original)
            def call(*args: Any, **kwargs: Any) -> Any:
                self._running.append(("torch.cuda.Stream.synchronize", kind))
                try:
                    return original(*args, **kwargs)
                finally:
                    self._running.pop()

            return call

        return wrap

    @contextmanager
    def _trace_callbacks(self) -> Iterator[None]:
        from torch.cuda import _gpu_trace  # before the trace is active: it looks this module up at each call

        registries: list[tuple[Any, Callable[..., None]]] = [
            (_gpu_trace.DeviceSynchronizationCallbacks, self._device_wait),
            (_gpu_trace.EventSynchronizationCallbacks, self._event_wait),
        ]
        torch._C._activate_gpu_trace()
        for registry, callback in registries:
            registry.add_callback(callback)
        try:
            yield
        finally:
            for registry, callback in registries:
                registry.callback_list.remove(callback)


def _with_own_warnings(func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Call ``func`` such that its warnings come before this returns; return its result and its error, one of them None.

    PyTorch delivers warnings when the outermost call from Python returns, in backward when all of it has returned. The
    C function used here collects and delivers its own. It cannot do so while an exception is on its way.
    """

    def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        try:
            return func(*args, **kwargs), None
        except Exception as error:
            return None, error

    result: tuple[Any, Any] = torch._C._disabled_torch_function_impl(call, types, args, kwargs)
    return result


def _op_and_kind(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    """The operator's name, and of what kind its sync is, should it make one."""
    schema = getattr(func, "_schema", None)
    op = str(func) if schema is None else str(schema.name)  # a higher-order operator has no schema
    kind = "data_dependent"
    if op in _READ_A_SCALAR:
        kind = "item"
    elif op in _COPIES:
        kind = "dtoh" if _on_device(_copy_ends(op, args, kwargs)[0]) else "htod"
    elif op in _INDEXING:
        # A mask on the device has to be counted; indices on the host have to be copied.
        kind = "dynamic_shape" if all(_on_device(index) for index in args[1] if index is not None) else "htod"
    elif op.startswith("c10d::"):
        kind = "stream_sync"
    elif schema is not None and torch.Tag.dynamic_output_shape in func.tags:
        kind = "dynamic_shape"
    return op, kind


def _copy_ends(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Source and destination of a copy; a device stands for a tensor that is yet to be made."""
    if op == "aten::copy_":
        return args[1], args[0]
    if op == "aten::_to_copy":
        return args[0], kwargs.get("device") or args[0]
    return args[0], args[1]


def _unwarned_wait(op: str, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Kind of the wait of a ``non_blocking`` copy that PyTorch does not warn of; None where there is none."""
    if op not in _COPIES:
        return None
    asynchronous = kwargs.get("non_blocking") or (op == "aten::copy_" and len(args) > 2 and args[2])
    source, target = _copy_ends(op, args, kwargs)
    if not asynchronous or _on_device(source) == _on_device(target) or not source.numel():
        return None
    if kind == "htod":
        return None if source.is_pinned() else "htod_pageable_async"
    # PyTorch pins the host side that it makes itself; one that the caller made may be pageable.
    return "dtoh" if isinstance(target, torch.Tensor) and not target.is_pinned() else None


def _on_device(where: Any) -> bool:
    device = where.device if isinstance(where, torch.Tensor) else torch.device(where)
    return device.type == "cuda"


def _warned_frame() -> FrameType | None:
    """The frame that a ``showwarning`` hook was called for: the first outside ``warnings`` and this file."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename in (__file__, warnings.__file__):
        frame = frame.f_back
    return frame


def _wrapped(owner: Any, name: str, wrap: Callable[[Any], Any]) -> AbstractContextManager[None]:
    return replaced(owner, name, wrap(getattr(owner, name)))
