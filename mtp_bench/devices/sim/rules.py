"""Which operations make the host wait for the device, and why: the one table that decides it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mtp_bench.devices.sim.tensor import SimTensor

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Count = Callable[[Args, Kwargs], int]


@dataclass(frozen=True, slots=True)
class Rule:
    """``op`` ("aten::nonzero", or with an overload "aten::index.Tensor") waits ``syncs(args, kwargs)`` times."""

    op: str
    kind: str
    count: int | Count
    reason: str
    source: str

    def syncs(self, args: Args, kwargs: Kwargs) -> int:
        """How many times the host waits in this call."""
        return self.count if self.count.__class__ is int else self.count(args, kwargs)  # type: ignore[operator,return-value]


def _on_device(value: Any) -> bool:
    return isinstance(value, SimTensor)


def _on_host(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, SimTensor)


def _blocking(args: Args, kwargs: Kwargs) -> bool:
    return not (kwargs.get("non_blocking") or (len(args) > 2 and args[2] is True))


def _copy_dtoh(args: Args, kwargs: Kwargs) -> int:
    return int(_on_host(args[0]) and _on_device(args[1]) and _blocking(args, kwargs) and args[1].numel() > 0)


def _copy_htod(args: Args, kwargs: Kwargs) -> int:
    return int(_on_device(args[0]) and _on_host(args[1]) and _blocking(args, kwargs) and args[1].numel() > 0)


def _to_host(args: Args, kwargs: Kwargs) -> int:
    device = kwargs.get("device")
    return int(_on_device(args[0]) and device is not None and device.type == "cpu" and _blocking(args, kwargs) and args[0].numel() > 0)


def _to_device(args: Args, kwargs: Kwargs) -> int:
    device = kwargs.get("device")
    return int(_on_host(args[0]) and device is not None and device.type == "sim" and _blocking(args, kwargs) and args[0].numel() > 0)


RULES: tuple[Rule, ...] = (
    Rule("aten::_local_scalar_dense", "item", 1, "reads one value into a Python number", ""),
    Rule("aten::copy_", "dtoh", _copy_dtoh, "blocking copy", ""),
    Rule("aten::copy_", "htod", _copy_htod, "blocking copy", ""),
    Rule("aten::_to_copy", "dtoh", _to_host, "blocking copy", ""),
    Rule("aten::_to_copy", "htod", _to_device, "blocking copy", ""),
    Rule("aten::nonzero", "dynamic_shape", 1, "size", ""),
)


def rules_for(base: str, overload: str) -> tuple[Rule, ...]:
    """The rows that apply to an operator overload."""
    return tuple(rule for rule in RULES if rule.op in (base, f"{base}.{overload or 'default'}"))
