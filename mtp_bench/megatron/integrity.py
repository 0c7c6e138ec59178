"""Functions and classes of megatron-core that somebody replaced: found, named, and put back where that is right."""

from __future__ import annotations

import sys
from typing import Any

Place = tuple[Any, str]
"""Owner (a module or a class) and the name in it."""


def snapshot() -> dict[Place, Any]:
    """Every function, method and class of the modules of megatron-core that are loaded now."""
    found: dict[Place, Any] = {}
    for name, module in list(sys.modules.items()):
        if name != "megatron.core" and not name.startswith("megatron.core."):
            continue
        for attribute, value in list(vars(module).items()):
            if callable(value):
                found[module, attribute] = value
            if isinstance(value, type) and value.__module__ == name:
                methods = {(value, key): item for key, item in vars(value).items() if _is_function(item)}
                found.update(methods)
    return found


def replaced_since(before: dict[Place, Any]) -> dict[Place, Any]:
    """The places of ``before`` that hold something else now, and what they held."""
    return {(owner, name): value for (owner, name), value in before.items() if vars(owner).get(name) is not value}


def put_back(places: dict[Place, Any]) -> None:
    """Undo the replacements."""
    for (owner, name), value in places.items():
        setattr(owner, name, value)


def names(places: dict[Place, Any]) -> str:
    """The places in words."""
    return ", ".join(sorted({f"{owner.__name__}.{name}" for owner, name in places}))


def _is_function(value: Any) -> bool:
    return callable(value) or isinstance(value, (staticmethod, classmethod, property))
