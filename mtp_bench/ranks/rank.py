"""What a rank runs: ``python -m mtp_bench.ranks.rank FOLDER`` calls the job's function and files what it returns."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from mtp_bench.signals import end_with_parent


def main() -> None:
    """Run the job; whatever ends this process early is left in its exit code and on its standard error."""
    end_with_parent()
    faulthandler.register(signal.SIGUSR1)  # asked where it stands when it is late
    sys.excepthook = sys.__excepthook__
    folder, rank = Path(sys.argv[1]), os.environ["RANK"]
    _write(folder / f"pid.{rank}", str(os.getpid()))
    try:
        request = json.loads((folder / "job.json").read_text())
        module, _, name = request["target"].partition(":")
        result = json.dumps(getattr(importlib.import_module(module), name)(request["job"]))
    except BaseException:
        _write(folder / f"raised.{rank}", repr(time.time()))
        raise
    _write(folder / f"result.{rank}.json", result)


def _write(file: Path, text: str) -> None:
    """Write in one step: a reader never sees half of it."""
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(text)
    partial.replace(file)


if __name__ == "__main__":
    main()
