"""Where a step runs: one small interface with two implementations, ``cuda`` (measured) and ``sim`` (simulated)."""

from mtp_bench.devices.interface import Device, GraphCapture, Observation, Window, resolve

__all__ = ["Device", "GraphCapture", "Observation", "Window", "resolve"]
