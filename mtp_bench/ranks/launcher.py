"""The process between the one that asks for ranks and the ranks: ``torch.distributed.run``, ended with its parent.

``python -m mtp_bench.ranks.launcher FOLDER COUNT``; standard input is a pipe that its parent holds and never writes to.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path


def main() -> int:
    """Run the ranks; file the exit codes of those that fail in ``failures.json``."""
    folder, count = Path(sys.argv[1]), sys.argv[2]
    lifeline = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # ranks read nothing
    threading.Thread(target=_end_with_parent, args=(lifeline, folder), daemon=True).start()

    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    one_machine = ["--standalone", "--nnodes", "1", "--nproc-per-node", count]
    logs = ["--log-dir", str(folder / "logs"), "--redirects", "3"]
    arguments = parse_args(  # type: ignore[no-untyped-call]
        [*one_machine, *logs, "-m", "mtp_bench.ranks.rank", str(folder)]
    )
    try:
        run(arguments)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        partial = folder / "failures.partial"
        partial.write_text(json.dumps(codes))
        partial.replace(folder / "failures.json")
        return 1
    return 0


def _end_with_parent(lifeline: int, folder: Path) -> None:
    """Wait for the parent to close its end, or to die; then end the ranks with all that they have started.

    A parent that was killed has left the folder.
    """
    os.read(lifeline, 1)
    for pid in _children():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # torch.distributed.run starts each rank in a session of its own
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _children() -> list[int]:
    """Process ids of this process's children (Linux)."""
    found: list[int] = []
    for thread in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, thread.read_text().split())
    return found


if __name__ == "__main__":
    sys.exit(main())
