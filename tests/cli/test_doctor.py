"""``mtp-bench doctor``: what works here, what does not, and what to do about it."""

import os

import pytest
from typer.testing import CliRunner

from mtp_bench import cli, doctor


def finding(name):
    return next(found for found in doctor.examine() if found.name == name)


@pytest.fixture
def nsys(monkeypatch, tmp_path):
    """Put an ``nsys`` of a version on PATH."""

    def install(version):
        script = tmp_path / "nsys"
        script.write_text(f"#!/bin/sh\necho 'NVIDIA Nsight Systems version {version}'\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


def test_doctor_says_everything_and_exits_with_0():
    done = CliRunner().invoke(cli.app, ["doctor"])
    assert done.exit_code == 0
    names = [
        "mtp-bench",
        "Python",
        "torch",
        "GPU",
        "sim",
        "megatron-core",
        "verl",
        "Transformer Engine",
        "nsys",
        "nvtx",
        "nsys options",
        "nsys ranges",
        "perf",
    ]
    assert [line[:18].strip() for line in done.stdout.splitlines()] == names


def test_megatron_core_is_named_with_its_loss_and_its_folder():
    found = finding("megatron-core")
    assert "MTP loss in GPTModel._postprocess" in found.text or "MTP loss in process_mtp_loss" in found.text
    assert "megatron/core" in found.text


def test_sim_works_because_an_operation_ran_on_it():
    found = finding("sim")
    assert found.state == "works"
    assert found.text.startswith("registered, and 1 operation waited as on a GPU; profiles: ")


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (
            "from torch.utils import backend_registration\n"
            "del backend_registration._setup_privateuseone_for_python_backend\n",
            "the simulated device needs PyTorch >= 2.11, this is ",
        ),
        ("import sys\nsys.modules['torch'] = None\n", "ModuleNotFoundError: "),
        ("import os\nos.abort()\n", "its trial ended with exit code -6"),
    ],
)
def test_a_sim_that_cannot_run_is_missing_with_the_reason(monkeypatch, broken, text):
    monkeypatch.setattr(doctor, "_SIM_TRIAL", broken + doctor._SIM_TRIAL)
    found = finding("sim")
    assert found.state == "missing"
    assert found.text.startswith(text)


@pytest.mark.parametrize(
    ("version", "triton", "state"),
    [("0.17.1", False, "works"), ("0.18.0", False, "limited"), ("0.19.2", False, "limited"), ("0.19.2", True, "works")],
)
def test_a_megatron_core_that_imports_triton_without_it_is_said_so(monkeypatch, version, triton, state):
    monkeypatch.setattr(doctor.megatron_core, "version", lambda: version)
    monkeypatch.setattr(doctor.megatron_core, "packed_unsupported", lambda: None)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: name if triton else None)
    found = doctor._megatron()
    assert found.state == state
    assert ("pip install triton" in found.text) == (state == "limited")


def test_a_new_nvtx_under_an_old_nsys_loses_ranges_and_doctor_says_so(monkeypatch, nsys):
    nsys("2023.4.4.54-234433681190v0")
    monkeypatch.setattr(doctor, "version", {"nvtx": "0.2.13"}.get)
    found = finding("nvtx")
    assert found.state == "limited"
    assert found.text == "0.2.13 loses all ranges silently under nsys 2023.4: use nsys 2024 or later, or nvtx 0.2.11"


@pytest.mark.parametrize(("nvtx", "nsys_version"), [("0.2.11", "2022.4.2"), ("0.2.13", "2025.6.1")])
def test_pairs_that_work(monkeypatch, nsys, nvtx, nsys_version):
    nsys(nsys_version)
    monkeypatch.setattr(doctor, "version", {"nvtx": nvtx}.get)
    assert finding("nvtx").state == "works"


def test_nsys_is_shown_with_version_and_path(nsys, tmp_path):
    nsys("2025.6.1.190-256136914041v0")
    assert finding("nsys").text == f"2025.6.1.190, {tmp_path}/nsys"


def test_an_nsys_that_does_not_run_is_said_once_and_is_no_fault_of_nvtx(monkeypatch):
    monkeypatch.setenv("NSYS", "/nowhere/nsys")
    monkeypatch.setattr(doctor, "version", {"nvtx": "0.2.13"}.get)
    found = {row.name: (row.state, row.text) for row in doctor.examine()}
    assert found["nsys"] == ("missing", "NSYS=/nowhere/nsys: no such program; set it to the path of nsys")
    assert found["nvtx"] == ("works", "0.2.13")
    for name in ("nsys options", "nsys ranges", "perf"):
        assert found[name] == ("missing", "no nsys that runs")


def test_what_a_broken_package_raises_is_what_is_said(monkeypatch):
    def broken():
        raise OSError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(doctor, "_CHECKS", (("torch", broken),))
    found = finding("torch")
    assert (found.state, found.text) == ("missing", "OSError: libcudart.so.12: cannot open shared object file")


def test_verl_is_inactive_where_megatron_core_has_process_mtp_loss(monkeypatch, tmp_path):
    from mtp_bench.variants import verl

    monkeypatch.setattr(verl, "package", lambda: tmp_path)
    for has, state in ((True, "limited"), (False, "works")):
        monkeypatch.setattr(doctor.megatron_core, "has_process_mtp_loss", lambda has=has: has)
        assert finding("verl").state == state
    assert "active with this megatron-core" in finding("verl").text
