"""What a run records of the machine it ran on."""

import subprocess
import sys

from mtp_bench import __version__, environment


def test_versions_and_variables_are_recorded(monkeypatch):
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    monkeypatch.setenv("UNRELATED", "1")
    found = environment.describe({"kind": "sim", "name": "h100", "modelled": True})
    assert found.torch.startswith("2.")
    assert found.megatron_core
    assert found.cuda_env["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert "UNRELATED" not in found.cuda_env
    assert found.packages["mtp-bench"] == __version__
    assert found.cpu.affinity <= found.cpu.count


def test_the_same_machine_is_described_the_same_twice():
    device = {"kind": "sim", "name": "h100", "modelled": True}
    assert environment.describe(device) == environment.describe(device)


def test_describing_imports_no_torch():
    code = (
        "import sys; from mtp_bench.environment import describe; "
        "describe({'kind': 'sim', 'name': 'h100', 'modelled': True}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
