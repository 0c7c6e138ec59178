"""Attributes replaced for a while, and put back in reverse order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_ABSENT = object()


class Patches:
    """A list of replaced attributes. What was inherited or absent before is removed again, not copied down."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace ``owner.name`` by ``value``."""
        self._undo.append((owner, name, vars(owner).get(name, _ABSENT), value))
        setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        """Replace ``owner.name`` by ``wrapper(owner.name)``."""
        self.set(owner, name, wrapper(getattr(owner, name)))

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            owner, name, before, _ = self._undo.pop()
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def withdraw(self) -> None:
        """Put back what nobody has replaced since; a replacement that somebody has wrapped stays inside the wrapper."""
        self._undo = [entry for entry in self._undo if vars(entry[0]).get(entry[1]) is entry[3]]
        self.undo()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace one attribute for a while."""
    patches = Patches()
    patches.set(owner, name, value)
    try:
        yield
    finally:
        patches.undo()
