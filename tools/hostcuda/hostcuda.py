"""Read and set hostcuda from inside a process that runs on it.

calls()["cudaStreamSynchronize"]   how often it was called since reset()
reads(0), reads(1), reads(-1)      what `if device_tensor > 0` will see: 0, 1, whatever the memory holds
durations(kernel_ns=..., ...)      how fast the imagined device is, inside a `with`
"""

import ctypes
from contextlib import contextmanager

_library = ctypes.CDLL(None)


def present():
    """Whether this process runs on hostcuda."""
    return hasattr(_library, "hostcuda_reset")


def reset():
    """Set all counters to 0."""
    _library.hostcuda_reset()


def calls():
    """Return the calls since :func:`reset`, by function; functions not called are left out."""
    found, name, count = {}, ctypes.c_char_p(), ctypes.c_long()
    while _library.hostcuda_name(len(found), ctypes.byref(name), ctypes.byref(count)):
        found[name.value.decode()] = count.value
    return {name: count for name, count in found.items() if count}


def reads(value):
    """Choose what a device-to-host read of at most 16 bytes yields; -1 is what the memory holds."""
    ctypes.c_int.in_dll(_library, "hostcuda_reads").value = value


@contextmanager
def durations(**ns):
    """Set ``kernel_ns``, ``gemm_ns``, ``launch_ns`` or ``sync_ns`` inside."""
    variables = {name: ctypes.c_long.in_dll(_library, f"hostcuda_{name}") for name in ns}
    before = {name: variable.value for name, variable in variables.items()}
    for name, variable in variables.items():
        variable.value = ns[name]
    try:
        yield
    finally:
        for name, variable in variables.items():
            variable.value = before[name]
