"""What a loss leaves behind in a process beside its result, put back as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Left:
    """What a loss has left until now: in the ``tracker``, which was empty, and where it should not have written."""

    def __init__(self, tracker: dict[str, Any], config: Any) -> None:
        self.tracker = tracker
        self._config, self.settings, self.scale = config, dict(vars(config)), _loss_scaler().main_loss_backward_scale

    def changed(self) -> list[str]:
        """Names of settings that all that comes after would see."""
        scale_is_another = _loss_scaler().main_loss_backward_scale is not self.scale
        return ["config"] * (vars(self._config) != self.settings) + ["loss scale"] * scale_is_another

    def put_back(self) -> None:
        """Set them as they were."""
        vars(self._config).clear()
        vars(self._config).update(self.settings)
        _loss_scaler().main_loss_backward_scale = self.scale


@contextmanager
def untouched(arguments: dict[str, Any]) -> Iterator[Left]:
    """Put back random states, MTP tracker, loss scale and the config.

    ``arguments`` are those of ``process_mtp_loss``.
    """
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

    tracker = MTPLossLoggingHelper.tracker  # the same dict throughout, since others may hold it
    logged = dict(tracker)
    left = Left(tracker, arguments["config"])
    states = _RandomStates()
    tracker.clear()
    try:
        yield left
    finally:
        states.put_back()
        left.put_back()
        MTPLossLoggingHelper.tracker = tracker
        tracker.clear()
        tracker.update(logged)


def _loss_scaler() -> Any:
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

    return MTPLossAutoScaler


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
