"""Nsight Systems: run it, attach it, read its captures."""

from mtp_bench.nsight.capture import read_capture
from mtp_bench.nsight.model import Capture

__all__ = ["Capture", "read_capture"]
