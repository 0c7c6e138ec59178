"""What is read of megatron-core without importing it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

from mtp_bench.errors import InputError
from mtp_bench.megatron import versions
from tests.megatron.versions import INSTALLED


@pytest.fixture
def core(tmp_path, monkeypatch):
    """A megatron-core of the test's making."""
    (tmp_path / "transformer").mkdir()
    monkeypatch.setattr(versions, "folder", lambda: tmp_path)
    versions._source.cache_clear()
    yield tmp_path
    versions._source.cache_clear()


def test_the_installed_version():
    assert versions.version() == version("megatron-core") == INSTALLED
    assert (versions.has_process_mtp_loss(), versions.has_packed_roll()) == (False, True)
    assert versions.packed_unsupported() is None


def test_asking_imports_neither_megatron_nor_torch():
    code = (
        "import sys; from mtp_bench.megatron import versions as v; v.version(); v.has_process_mtp_loss();"
        "sys.exit('torch' in sys.modules or 'megatron.core' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_source_checkout_without_metadata(core):
    (core / "package_info.py").write_text("MAJOR = 0\nMINOR = 20\nPATCH = 0\nPRE_RELEASE = 'rc1'\n")
    (core / "transformer/multi_token_prediction.py").write_text("\ndef process_mtp_loss(\n    hidden_states,\n): ...\n")
    assert versions.version() == "0.20.0rc1"
    assert versions.has_process_mtp_loss()
    assert (
        versions.packed_unsupported()
        == "packed sequences need megatron-core 0.16 or later: 0.20.0rc1 has no packed roll"
    )


def test_without_megatron(monkeypatch):
    monkeypatch.setattr(versions, "folder", lambda: None)
    versions._source.cache_clear()
    assert versions.version() == ""
    with pytest.raises(InputError, match="megatron-core is not installed: pip install megatron-core"):
        versions.require()
    versions._source.cache_clear()
