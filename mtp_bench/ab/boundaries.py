"""Where a job's iterations begin and end: its gradient buffers are zeroed, its optimizer's step has returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mtp_bench.patching import Patches

_BUFFER_METHODS = ("zero_grad_buffer", "finish_grad_sync")


class Boundaries:
    """Calls ``begin(again)`` where an iteration begins, and ``end()`` where an optimizer's step ends it.

    It begins when the gradient buffers of a chunk are zeroed. Without an optimizer it ends at the next begin. Between
    two begins the gradients must have been reduced, else the iteration begins ``again``: verl zeroes the buffers when
    it leaves a step as well. Where a model has no such chunk, :meth:`step` marks the begins.
    """

    def __init__(self, begin: Callable[[bool], None], end: Callable[[], None]) -> None:
        self._begin, self._end = begin, end
        self._begun = False
        self._reduced = False
        self._by_hand = False
        self._attached = False
        self._patches = Patches()

    def attach(self, chunk: Any, optimizer: Any) -> None:
        """Watch a DDP chunk (None where the model has none) and an optimizer (None where none was given)."""
        self._attached = True
        if chunk is not None:
            self._patches.wrap(chunk, "zero_grad_buffer", self._before(self._zeroed))
            self._patches.wrap(chunk, "finish_grad_sync", self._before(self._finished))
        if optimizer is not None:
            self._patches.wrap(optimizer, "step", self._after_step)

    def detach(self) -> None:
        """Leave the chunk and the optimizer as they were."""
        self._attached = False
        self._patches.withdraw()

    def step(self) -> None:
        """The user says that an iteration begins; from then on nothing else does."""
        self._by_hand = True
        self._start()
        self._reduced = True

    @property
    def complete(self) -> bool:
        """Whether the iteration that has begun may end here: its gradients have been reduced."""
        return self._begun and self._reduced

    def _zeroed(self) -> None:
        if self._attached and not self._by_hand:
            self._start()

    def _start(self) -> None:
        again = self._begun and not self._reduced
        self._begun, self._reduced = True, False
        self._begin(again)

    def _finished(self) -> None:
        self._reduced = True

    def _before(self, note: Callable[[], None]) -> Callable[[Any], Any]:
        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                note()
                return original(*args, **kwargs)

            return call

        return wrap

    def _after_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if self._attached and self.complete:
                self._begun = False
                self._end()
            return result

        return step


def chunk_with_buffers(chunks: list[Any]) -> Any:
    """The first of the model's chunks whose gradient buffers are zeroed by a call; None where there is none."""
    for chunk in chunks:
        if all(callable(getattr(chunk, method, None)) for method in _BUFFER_METHODS):
            return chunk
    return None
