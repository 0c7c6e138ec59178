"""Start ranks, wait for them within a time limit, and end them all: no rank outlives the process that asked for it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from mtp_bench.errors import RunError, readable
from mtp_bench.process import import_path

_TAIL = 2_000  # characters of a rank's output that an error keeps
_POLL_SECONDS = 0.02
_END_SECONDS = 10.0  # for the launcher to end its ranks and itself
_DUMP_SECONDS = 1.0  # for a rank to write where it stands


class Ranks:
    """``count`` running processes that each call ``target`` (``package.module:function``) with ``job``.

    The function finds the environment of ``torch.distributed.run`` (``RANK``, ``WORLD_SIZE``, ...); what it returns is
    the rank's result. To be closed, or used in a ``with`` statement.
    """

    def __init__(self, target: str, job: dict[str, Any], count: int) -> None:
        self.count = count
        self._folder = tempfile.TemporaryDirectory(prefix="mtp-bench-ranks-")
        self.folder = Path(self._folder.name)
        (self.folder / "job.json").write_text(json.dumps({"target": target, "job": job}))
        self._output = (self.folder / "launcher.log").open("w+", errors="replace")
        # The launcher ends its ranks when its standard input does, however this process ends.
        self._launcher = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "mtp_bench.ranks.launcher", str(self.folder), str(count)],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            env={"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **os.environ, "PYTHONPATH": import_path()},
            start_new_session=True,  # Ctrl-C is for this side
        )

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def running(self) -> bool:
        """Whether no rank has failed yet and some are still at work."""
        return self._launcher.poll() is None

    def results(self, time_limit_s: float) -> list[Any]:
        """What each rank returned. RunError where one fails, or where one has returned nothing in time."""
        deadline = time.monotonic() + time_limit_s
        while self.running():
            if time.monotonic() > deadline:
                raise RunError(self.why_late(f"{time_limit_s:g} s"))
            time.sleep(_POLL_SECONDS)
        missing = self._missing()
        if self._launcher.returncode or missing:
            raise RunError(self.why_failed())
        return [json.loads(self._result(rank).read_text()) for rank in range(self.count)]

    def why_failed(self) -> str:
        """Which rank ended the others, how, and the end of what it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._launcher.wait(_END_SECONDS)
        failures, missing = self._failures(), self._missing()
        if failures:
            rank, how = self._first(failures)
        elif self._launcher.returncode == 0 and missing:
            rank, how = missing[0], "ended without a result"
        else:
            return f"torch.distributed.run ended by itself ({self._launcher.returncode}): {self._launcher_tail()}"
        return f"rank {rank} of {self.count} {how}{self._its_output(rank)}"

    def why_late(self, limit: str, late: Collection[int] | None = None) -> str:
        """Which ranks have no result after ``limit``, where they stand, and the end of what they wrote.

        By default those that have returned nothing are ``late``.
        """
        missing = self._missing() if late is None else sorted(late)
        for pid in filter(None, map(self._pid, missing)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)  # see rank.py: it writes its stack
        time.sleep(_DUMP_SECONDS if missing else 0)
        who = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
        outputs = "".join(f"\nrank {rank}{self._its_output(rank)}" for rank in missing)
        return f"{who} of {self.count} gave no answer in {limit}{outputs}"

    def close(self) -> None:
        """End every rank and what it has started."""
        assert self._launcher.stdin is not None
        pids = [pid for pid in map(self._pid, range(self.count)) if pid is not None]
        with contextlib.suppress(OSError):
            self._launcher.stdin.close()
        try:
            self._launcher.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_group(self._launcher.pid)
            self._launcher.wait()
        for pid in pids:
            _kill_group(pid)  # a rank leads a group of its own, which holds what it has started
        self._output.close()
        self._folder.cleanup()

    def _result(self, rank: int) -> Path:
        return self.folder / f"result.{rank}.json"

    def _missing(self) -> list[int]:
        return [rank for rank in range(self.count) if not self._result(rank).exists()]

    def _pid(self, rank: int) -> int | None:
        file = self.folder / f"pid.{rank}"
        return int(file.read_text()) if file.exists() else None

    def _failures(self) -> dict[int, int]:
        """Exit codes of the ranks that had failed when ``torch.distributed.run`` ended the others."""
        file = self.folder / "failures.json"
        return {int(rank): code for rank, code in json.loads(file.read_text()).items()} if file.exists() else {}

    def _first(self, failures: dict[int, int]) -> tuple[int, str]:
        """The rank that failed of itself: the others fail when they miss it, or are ended by SIGTERM.

        A rank that raises notes when; one that ends otherwise cannot, and what others raise is then for its sake.
        """

        def order(rank: int) -> float:
            ended = math.inf if failures[rank] == -signal.SIGTERM else 0.0
            return self._raised(rank) or ended

        rank = min(failures, key=order)
        code = failures[rank]
        if self._raised(rank) is not None:
            return rank, "failed"
        return rank, f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _raised(self, rank: int) -> float | None:
        file = self.folder / f"raised.{rank}"
        return float(file.read_text()) if file.exists() else None

    def _its_output(self, rank: int) -> str:
        tail = self._tail(rank)
        return f"; its output ends with:\n{tail}" if tail else "; it wrote nothing"

    def _tail(self, rank: int) -> str:
        file = self._error_log(rank)
        return "" if file is None else readable(_last(file.read_text(errors="replace")))

    def _error_log(self, rank: int) -> Path | None:
        return next(self.folder.glob(f"logs/**/{rank}/stderr.log"), None)

    def _launcher_tail(self) -> str:
        self._output.flush()
        return readable(_last((self.folder / "launcher.log").read_text(errors="replace")))


def launch(target: str, job: dict[str, Any], *, ranks: int, time_limit_s: float) -> list[Any]:
    """Call ``target`` (``package.module:function``) with ``job`` on every rank; return the results by rank.

    Raises RunError where a rank raises, exits, is killed or has not returned in time, with the end of its output. No
    process is left behind, also when this one is interrupted or killed.
    """
    with Ranks(target, job, ranks) as running:
        return running.results(time_limit_s)


def _last(text: str) -> str:
    return text[-_TAIL:].strip()


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
