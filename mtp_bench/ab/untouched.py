"""What a loss leaves behind in a process beside its result, put back as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

# Where an output layer keeps what it needs for a weight gradient that is computed later.
_DEFERRED = ("embedding_activation_buffer", "grad_output_buffer")


@contextmanager
def untouched(arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Put back random states, MTP tracker, loss scale, the config and deferred work of the output layer.

    ``arguments`` are those of ``process_mtp_loss``. Yields the tracker, empty at the beginning.
    """
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, MTPLossLoggingHelper

    tracker = MTPLossLoggingHelper.tracker  # the same dict throughout, since others may hold it
    logged, scale = dict(tracker), MTPLossAutoScaler.main_loss_backward_scale
    config, settings = arguments["config"], dict(vars(arguments["config"]))
    deferred = [
        (buffer, len(buffer))
        for name in _DEFERRED
        if isinstance(buffer := getattr(arguments["output_layer"], name, None), list)
    ]
    states = _RandomStates()
    tracker.clear()
    try:
        yield tracker
    finally:
        states.put_back()
        for buffer, length in deferred:
            del buffer[length:]
        vars(config).clear()
        vars(config).update(settings)
        MTPLossAutoScaler.main_loss_backward_scale = scale
        MTPLossLoggingHelper.tracker = tracker
        tracker.clear()
        tracker.update(logged)


class _RandomStates:
    """Those of Python, NumPy, PyTorch on the host and on the current device, and Megatron's."""

    def __init__(self) -> None:
        import numpy as np
        from megatron.core.tensor_parallel import random as megatron_random

        self._python, self._numpy = random.getstate(), np.random.get_state()
        self._host, self._device = torch.get_rng_state(), torch.cuda.get_rng_state()
        self._tracker = megatron_random._CUDA_RNG_STATE_TRACKER  # its function would make one where there is none
        self._megatron = dict(getattr(self._tracker, "states_", {}))

    def put_back(self) -> None:
        """Set those that have changed."""
        import numpy as np

        random.setstate(self._python)
        np.random.set_state(self._numpy)
        torch.set_rng_state(self._host)
        if not torch.equal(torch.cuda.get_rng_state(), self._device):
            torch.cuda.set_rng_state(self._device)
        if any(self._tracker.states_[name] is not state for name, state in self._megatron.items()):
            self._tracker.set_states(self._megatron)
