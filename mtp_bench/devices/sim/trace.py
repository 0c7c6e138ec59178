"""The modelled timeline of a step as a Chrome trace, for chrome://tracing and https://ui.perfetto.dev."""

from __future__ import annotations

import gzip
import json
from typing import Any

from mtp_bench import ranges
from mtp_bench.devices.sim.clock import Timeline
from mtp_bench.devices.sim.plans import Plan
from mtp_bench.devices.sim.recorder import Recorder
from mtp_bench.errors import InputError

RANGES, HOST, DEVICE = 1, 2, 3
_ROWS = {RANGES: "ranges (modelled)", HOST: "host (modelled)", DEVICE: "device (modelled)"}
_NS_PER_US = 1e3


class _SpanTimeline(Timeline):
    """A timeline that remembers when each kernel ran: [(start_ns, end_ns)]."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kernels: list[tuple[float, float]] = []

    def _kernel(self, start_ns: float, end_ns: float) -> None:
        self.kernels.append((start_ns, end_ns))


class TraceRecorder(Recorder):
    """A recorder that also keeps the span of every operation, wait, kernel and range."""

    timeline: _SpanTimeline

    def __init__(self, profile: Any) -> None:
        super().__init__(_SpanTimeline(profile))
        self.events: list[dict[str, Any]] = []
        self._open: list[tuple[str, float]] = []

    def operation(self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """An operation was dispatched."""
        begin_ns = self._begin()
        super().operation(plan, args, kwargs, result)
        self._end(plan.name, begin_ns, {})

    def wait(self, kind: str, op: str, args: tuple[Any, ...] = ()) -> None:
        """The host waited once."""
        begin_ns = self._begin()
        super().wait(kind, op, args)
        sync = self.syncs[-1]
        where = {"kind": kind, "at": f"{sync.file}:{sync.line} in {sync.function}", "code": sync.code}
        self._end(op, begin_ns, where, prefix="wait: ")

    def finish(self) -> None:
        """The step is over."""
        super().finish()
        self._follow_ranges(())

    def _begin(self) -> float:
        self._follow_ranges(ranges.path())
        self.timeline.kernels.clear()
        return self.timeline.issue_ns

    def _end(self, name: str, begin_ns: float, details: dict[str, Any], prefix: str = "") -> None:
        self._span(HOST, prefix + name, begin_ns, self.timeline.issue_ns, details)
        for start_ns, end_ns in self.timeline.kernels:
            self._span(DEVICE, name, start_ns, end_ns, {})

    def _follow_ranges(self, path: tuple[str, ...]) -> None:
        """Close the ranges that are not open any more and open the new ones, as the host's clock stands."""
        now_ns = self.timeline.issue_ns
        shared = 0
        while shared < min(len(path), len(self._open)) and path[shared] == self._open[shared][0]:
            shared += 1
        while len(self._open) > shared:
            text, begin_ns = self._open.pop()
            self._span(RANGES, text, begin_ns, now_ns, {})
        self._open.extend((text, now_ns) for text in path[shared:])

    def _span(self, row: int, name: str, begin_ns: float, end_ns: float, details: dict[str, Any]) -> None:
        self.events.append(
            {
                "ph": "X",
                "pid": 0,
                "tid": row,
                "name": name,
                "ts": begin_ns / _NS_PER_US,
                "dur": (end_ns - begin_ns) / _NS_PER_US,
                "args": details,
            }
        )


def write_trace(recorder: TraceRecorder, spec: str, path: str) -> None:
    """Write what ``recorder`` saw to ``path``. InputError where that cannot be written."""
    rows = [
        {"ph": "M", "pid": 0, "tid": row, "name": "thread_name", "args": {"name": name}} for row, name in _ROWS.items()
    ]
    document = {"traceEvents": rows + recorder.events, "otherData": {"device": spec, "modelled": True}}
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "wt", encoding="utf-8") as file:
            json.dump(document, file)
    except OSError as error:
        raise InputError(f"--trace {path}: cannot be written: {error.strerror}") from None
