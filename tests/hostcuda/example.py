"""Child process: examples/megatron_ab.py, where every read from the device gives 1 once the model is built.

Nothing is computed here: only then are tensors equal to each other that are compared on the device.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tools" / "hostcuda")]

import hostcuda  # noqa: E402
import megatron_ab  # noqa: E402

make_optimizer = megatron_ab.make_optimizer


def main() -> None:
    def make(*args):
        optimizer = make_optimizer(*args)
        hostcuda.reads(1)
        return optimizer

    megatron_ab.make_optimizer = make
    megatron_ab.main()


if __name__ == "__main__":
    main()
