"""Count on the CUDA build how often each expression of a table waits: one JSON line `[expression, [count, ...]]` each.

A process of its own: what reads meaningless values can take it down, and then the caller goes on behind that
expression.
"""

import json
import sys
import warnings

import hostcuda
import torch

from tests.sim import expressions


def count(expression, value):
    """The debug mode's warnings while reads yield `value`; None where the expression fails on such values."""
    hostcuda.reads(1)  # the inputs' own checks, an optimizer's learning rate say, see something valid
    given = expressions.inputs("cuda", expression)
    torch.cuda.synchronize()
    hostcuda.reads(value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            expressions.run(expression, given)
        except Exception:
            return None
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA" in str(warning.message) for warning in caught)


if __name__ == "__main__":
    for line in sys.stdin.read().splitlines():
        print(json.dumps([line, None]), flush=True)  # stands if the process dies here
        counts = {count(line, value) for value in (0, 1)} - {None}
        print(json.dumps([line, sorted(counts)]), flush=True)
