"""``isolated_state`` leaves Megatron and torch as it found them, whatever happened inside."""

from __future__ import annotations

import os
import sys

import pytest
import torch
import torch.distributed as dist
from megatron.core import parallel_state, rerun_state_machine
from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.tensor_parallel import random
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, MTPLossLoggingHelper

from mtp_bench.megatron import (
    HostPlace,
    LossHead,
    clear_logged_losses,
    depth_ranges,
    isolated_state,
    logged_losses,
    save_mtp_loss,
)
from tests.variants.recording import workload


def everything():
    """All process-wide state that a run touches, by identity where it is an object."""
    return {
        "tracker": (id(MTPLossLoggingHelper.tracker), dict(MTPLossLoggingHelper.tracker)),
        "scale": id(MTPLossAutoScaler.main_loss_backward_scale),
        "apply": MTPLossAutoScaler.apply,
        "random": (id(random._CUDA_RNG_STATE_TRACKER), random._CUDA_RNG_STATE_TRACKER_INITIALIZED),
        "parallel": {name: id(value) for name, value in vars(parallel_state).items() if not name.startswith("__")},
        "rerun": rerun_state_machine._GLOBAL_RERUN_STATE_MACHINE,
        "warned": getattr(LanguageModule, "embedding_warning_printed", None),
        "current_device": torch.cuda.current_device,
        "swap": torch.__future__.get_swap_module_params_on_conversion(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith("NVTE_")},
        "process_group": dist.is_initialized(),
        "excepthook": sys.excepthook,
        "cpu_random": torch.get_rng_state().tolist(),
    }


def disturb():
    """Do what a run does, and more."""
    LossHead(workload(), torch.zeros(32, 16))
    save_mtp_loss(torch.tensor(1.0), 0, 1)
    MTPLossAutoScaler.set_loss_scale(torch.tensor(7.0))
    torch.__future__.set_swap_module_params_on_conversion(True)
    rerun_state_machine.initialize_rerun_state_machine()
    parallel_state.get_global_memory_buffer().get_tensor([4], torch.float32, "mpu")
    LanguageModule.embedding_warning_printed = True


def test_restores_everything():
    before = everything()
    with isolated_state(HostPlace()):
        disturb()
        assert everything() != before
    assert everything() == before


def test_restores_everything_after_an_exception():
    def fail():
        with isolated_state(HostPlace()), depth_ranges(2):
            disturb()
            raise RuntimeError("inside")

    before = everything()
    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert everything() == before


def test_keeps_what_the_surrounding_job_had(monkeypatch):
    monkeypatch.setenv("NVTE_FLASH_ATTN", "0")
    with isolated_state(HostPlace()):
        disturb()
        outer = everything()
        with isolated_state(HostPlace()):
            assert logged_losses() == []
            assert float(MTPLossAutoScaler.main_loss_backward_scale) == 1.0
            disturb()
        assert everything() == outer
        assert [float(loss) for loss in logged_losses()] == [1.0]


def test_one_depth_and_then_two_work_in_one_process():
    with isolated_state(HostPlace()):
        save_mtp_loss(torch.tensor(2.0), 0, 1)
        clear_logged_losses()
        save_mtp_loss(torch.tensor(3.0), 0, 2)
        save_mtp_loss(torch.tensor(4.0), 1, 2)
        assert [float(loss) for loss in logged_losses()] == [3.0, 4.0]
    with isolated_state(HostPlace()):
        save_mtp_loss(torch.tensor(5.0), 2, 3)
        assert [float(loss) for loss in logged_losses()] == [0.0, 0.0, 5.0]
