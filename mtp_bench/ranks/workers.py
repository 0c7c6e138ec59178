"""Worker processes that are the context-parallel ranks of one run, seen as one worker: spoken to, and merged."""

from __future__ import annotations

import contextlib
import queue
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtp_bench.errors import InputError, RunError
from mtp_bench.job import receive, send
from mtp_bench.ranks.launch import Ranks
from mtp_bench.ranks.merge import merge_passes, merge_times

_START_SECONDS = 300.0
_SILENCE_SECONDS = 600.0  # for the first rank to say something
_APART_SECONDS = 120.0  # for the other ranks to say the same
_POLL_SECONDS = 0.1

Event = dict[str, Any]


class RankWorkers:
    """``count`` workers on ``device``, one a rank, as one :class:`mtp_bench.process.WorkerProcess`.

    All ranks do the same and say the same in the same order. A rank that says something else, nothing, or that a
    variant failed is out of step with the others, who wait for it: that is the death of this worker.
    """

    def __init__(self, device: str, count: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mtp-bench-")
        path = str(Path(self._folder.name, "ranks"))
        self._why = ""
        self._ranks: list[_Rank] = []
        self._inbox: queue.Queue[tuple[int, Event | None]] = queue.Queue()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen(count)
            listening.settimeout(_POLL_SECONDS)
            self._processes = Ranks("mtp_bench.ranks.serve:serve_as_rank", {"socket": path}, count)
            try:
                self._connect(listening, count)
                self.send({"device": device})
                started = self.receive()
                if started is None:
                    raise RunError(f"the worker processes did not start: {self.why_it_died()}")
            except BaseException:
                self.close()
                raise
        self.spec: str = started["spec"]
        self.device: dict[str, Any] = started["device"]
        self.detectors: list[str] = started["detectors"]
        self.detectors_linger: bool = started["detectors_linger"]

    def send(self, message: Event) -> None:
        """Tell all ranks something; that one is dead shows on receiving."""
        for rank in self._ranks:
            rank.send(message)

    def receive(self) -> Event | None:
        """What all ranks say next, merged; None where one is dead or out of step. Raises InputError where one does."""
        events = self._next_of_each()
        if events is None:
            return None
        for event in events:
            if event["event"] == "input_error":
                raise InputError(event["message"])
        return _merged(events)

    def why_it_died(self) -> str:
        """Which rank was the first to fail, how, and the end of what it wrote."""
        return self._why or self._processes.why_failed()

    def finish(self) -> None:
        """Let ranks that are done end by themselves."""
        deadline = time.monotonic() + _APART_SECONDS
        while self._processes.running() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """End all ranks and what they have started."""
        self._processes.close()
        for rank in self._ranks:
            rank.close()
        self._folder.cleanup()

    def _connect(self, listening: socket.socket, count: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while len(self._ranks) < count:
            with contextlib.suppress(TimeoutError):
                self._ranks.append(_Rank(listening.accept()[0], self._inbox))
            if not self._processes.running():
                raise RunError(self._processes.why_failed())
            if time.monotonic() > deadline:
                raise RunError(self._processes.why_late(f"{_START_SECONDS:g} s"))
        self._ranks.sort(key=lambda rank: rank.number)

    def _next_of_each(self) -> list[Event] | None:
        """One event of every rank; None, with the reason kept, where one of them does not come."""
        deadline = time.monotonic() + _SILENCE_SECONDS
        while missing := [rank for rank in self._ranks if not rank.events]:
            try:
                number, event = self._inbox.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                self._why = self._who_is_missing(missing)
                return None
            if event is None:
                return None
            if event.get("status") == "failed":
                self._why = f"rank {number} of {len(self._ranks)}: {event['error']}"
                return None
            self._ranks[number].events.append(event)
            deadline = time.monotonic() + _APART_SECONDS
        return [rank.events.popleft() for rank in self._ranks]

    def _who_is_missing(self, missing: Sequence[_Rank]) -> str:
        limit = _SILENCE_SECONDS if len(missing) == len(self._ranks) else _APART_SECONDS
        return self._processes.why_late(f"{limit:g} s", [rank.number for rank in missing])


class _Rank:
    """The connection to one rank, which says its number first; what it says later goes to ``inbox``."""

    def __init__(self, connection: socket.socket, inbox: queue.Queue[tuple[int, Event | None]]) -> None:
        connection.settimeout(None)
        self._socket = connection
        self._messages, self._out = connection.makefile("r", errors="replace"), connection.makefile("w")
        first = receive(self._messages)
        assert first is not None
        self.number: int = first["rank"]
        self.events: deque[Event] = deque()  # said, and not yet by every rank
        self._reader = threading.Thread(target=self._read, args=(inbox,), daemon=True)
        self._reader.start()

    def send(self, message: Event) -> None:
        """Tell this rank something."""
        with contextlib.suppress(OSError):
            send(self._out, message)

    def close(self) -> None:
        """Close the connection of a rank that has ended."""
        self._reader.join()
        for stream in (self._messages, self._out, self._socket):
            with contextlib.suppress(OSError):
                stream.close()

    def _read(self, inbox: queue.Queue[tuple[int, Event | None]]) -> None:
        event: Event | None = {}
        while event is not None:
            try:
                event = receive(self._messages)
            except (OSError, ValueError):  # something else has written there
                event = None
            inbox.put((self.number, event))


def _merged(events: list[Event]) -> Event:
    first = events[0]
    told = [
        {name: event.get(name) for name in ("event", "workload", "variant", "stage", "lead_ms")} for event in events
    ]
    assert all(one == told[0] for one in told), told
    match first["event"]:
        case "passed":
            return {**first, "found": merge_passes([event["found"] for event in events])}
        case "timed":
            return {**first, "time": merge_times([event["time"] for event in events])}
    return first
