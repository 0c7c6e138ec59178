"""What a rank's file says of the process that wrote it."""

from __future__ import annotations

import sys

import pytest

from mtp_bench.ab import job_run


@pytest.mark.parametrize(
    ("variables", "command"),
    [
        ({}, "python3 train.py --data 'a b'"),
        ({"LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "1"}, "python3 train.py --data 'a b'"),  # another launcher's
        (
            {"TORCHELASTIC_RUN_ID": "7", "LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "1"},
            "torchrun --standalone --nproc-per-node=8 train.py --data 'a b'",
        ),
        (
            {"TORCHELASTIC_RUN_ID": "7", "LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "4"},
            "torchrun --nnodes=4 --nproc-per-node=8 train.py --data 'a b'",
        ),
    ],
)
def test_the_command_names_the_launcher_where_that_is_torchrun(monkeypatch, variables, command):
    for name in ("TORCHELASTIC_RUN_ID", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    monkeypatch.setattr(sys, "argv", ["train.py", "--data", "a b"])
    assert job_run.command() == command
