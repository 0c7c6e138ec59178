"""Device profiles: the constants of a GPU, from ``profiles/devices/NAME.toml`` or a file of the user's."""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import torch

from mtp_bench import profiles
from mtp_bench.devices.sim.kernels import Work
from mtp_bench.errors import InputError, did_you_mean


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One GPU's constants; the TOML file has the same keys and says where each comes from."""

    name: str
    bandwidth_gbps: float  # device memory, GB/s
    host_link_gbps: float  # one direction between host and device, GB/s
    bf16_tflops: float  # dense, fp16 too
    fp32_tflops: float
    fp64_tflops: float
    memory_gib: float
    sm_count: int
    compute_capability: list[int]
    kernel_floor_ns: float  # the shortest kernel
    copy_floor_ns: float  # the shortest copy between host and device
    launch_latency_ns: float  # from the host's launch to the kernel's start on an idle device
    host_op_ns: float  # host time of a dispatched operation
    host_launch_ns: float  # host time of each further kernel of one operation
    sync_ns: float  # from the device's last end until the waiting host goes on

    def kernel_ns(self, work: Work) -> tuple[float, ...]:
        """Roofline time of each kernel of ``work``: bytes over bandwidth, FLOPs over peak, or the floor."""
        share = 1.0 / work.kernels
        longest = max(
            work.bytes_moved * share / self.bandwidth_gbps, work.flops * share / self._flops_per_ns(work.dtype)
        )
        return (max(longest, self.kernel_floor_ns),) * work.kernels

    def copy_ns(self, bytes_copied: int) -> float:
        """Time of a copy between host and device."""
        return max(bytes_copied / self.host_link_gbps, self.copy_floor_ns)

    def digest(self) -> str:
        """Eight hexadecimal digits of the constants: runs whose profiles differ in them do not compare."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:8]

    def _flops_per_ns(self, dtype: torch.dtype) -> float:
        if dtype in {torch.bfloat16, torch.float16}:
            return self.bf16_tflops * 1e3
        return (self.fp64_tflops if dtype is torch.float64 else self.fp32_tflops) * 1e3


def load_profile(name_or_path: str) -> DeviceProfile:
    """Read a device profile by name, or from a path that ends in ``.toml``. Raises InputError."""
    path = Path(name_or_path)
    if path.suffix != ".toml":
        known = profiles.profile_names("devices")
        if name_or_path not in known:
            raise InputError(f"--device sim:{name_or_path}: no such device profile{did_you_mean(name_or_path, known)}")
        path = profiles.profile_dir("devices") / f"{name_or_path}.toml"
    return _checked(path, profiles.read_toml(path))


_POSITIVE = "a number above 0"


def _checked(path: Path, data: dict[str, object]) -> DeviceProfile:
    known = {field.name: str(field.type) for field in fields(DeviceProfile)}
    for key in data:
        if key not in known:
            raise InputError(f"{path}: unknown key {key!r}{did_you_mean(key, known)}")
    for key, kind in known.items():
        if key not in data:
            raise InputError(f"{path}: key {key!r} is missing")
        wanted, right = _right_type(kind, data[key])
        if not right:
            raise InputError(f"{path}: {key} is {data[key]!r}, should be {wanted}")
    return DeviceProfile(**data)  # type: ignore[arg-type]


def _right_type(kind: str, value: object) -> tuple[str, bool]:
    if kind == "str":
        return "text", isinstance(value, str) and bool(value)
    if kind == "list[int]":
        return "two whole numbers", isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)
    if kind == "int":
        return "a whole number above 0", type(value) is int and value > 0
    return _POSITIVE, type(value) in (int, float) and 0 < float(value) < float("inf")  # type: ignore[arg-type]
