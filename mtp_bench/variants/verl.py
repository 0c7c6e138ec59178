"""``verl``: the MTP loss of the installed verl, loaded from its file: verl's other imports are many and heavy."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mtp_bench.errors import InputError
from mtp_bench.megatron import save_mtp_loss
from mtp_bench.variants.borrowed import run_postprocess

if TYPE_CHECKING:
    from torch import Tensor

ENVIRONMENT = "MTP_BENCH_VERL"  # a folder that holds the package verl, to be used instead of the installed one
_FILE = Path("models", "mcore", "mtp_patch.py")


def package() -> Path | None:
    """Folder of the package ``verl``, found without importing it; None where there is none with an MTP loss."""
    given = os.environ.get(ENVIRONMENT)
    if given:
        found = Path(given, "verl")
        if not (found / _FILE).is_file():
            raise InputError(f"{ENVIRONMENT}={given}: expected a folder with verl/{_FILE}")
        return found
    spec = importlib.util.find_spec("verl")
    folders = spec.submodule_search_locations if spec is not None else None
    return next((Path(folder) for folder in folders or () if (Path(folder) / _FILE).is_file()), None)


def version(verl: Path) -> str:
    """Version of the package in folder ``verl``, "" where it does not say."""
    file = verl / "version" / "version"
    found = re.search(r"\d[\w.+-]*", file.read_text()) if file.is_file() else None
    return found.group() if found else ""


def load_loss(verl: Path) -> Callable[..., Tensor]:
    """Return the loss of the package in folder ``verl``: its own code for a Megatron without ``process_mtp_loss``.

    The loaded copy takes that path whatever Megatron is installed.
    """
    module = _load(verl / _FILE)

    def verl_loss(**arguments: Any) -> Tensor:
        """Return the main model's hidden states [S, B, H], with the MTP losses attached to their backward pass."""
        return run_postprocess(module._megatron_gptmodel_postprocess, arguments)

    return verl_loss


def _load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location("mtp_bench_loaded_verl_mtp_patch", file)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._HAS_PROCESS_MTP_LOSS = False
    if not hasattr(module.MTPLossLoggingHelper, "save_loss_to_tracker"):
        # megatron-core 0.19 renamed the method; verl never calls it there, since it dispatches to Megatron.
        module.MTPLossLoggingHelper = SimpleNamespace(save_loss_to_tracker=_save_loss_to_tracker)
    return module


def _save_loss_to_tracker(loss: Tensor, layer_number: int, num_layers: int, avg_group: Any = None) -> None:
    save_mtp_loss(loss, layer_number, num_layers)
