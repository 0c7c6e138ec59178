"""What the parent tells its worker process to do, and what the worker tells back: JSON lines, one message a line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import IO, Any


@dataclass(slots=True)
class Job:
    """What is left to do. ``passed`` holds what an earlier worker had found before another variant killed it."""

    workloads: dict[str, dict[str, Any]]
    variants: dict[str, list[str]]  # by workload; those that failed are taken out
    scope: str
    leads_ms: list[float]
    values: str
    detectors: list[str]
    seed: int
    max_seconds: float
    stage: str = "all"  # or "passes", then "time" in another worker
    trace: str | None = None
    passed: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)  # by workload and variant

    def as_message(self) -> dict[str, Any]:
        """The job as one JSON object."""
        return asdict(self)


def send(stream: IO[str], message: dict[str, Any]) -> None:
    """Write one message. Non-finite floats pass as Python's JSON has them: both ends are ours."""
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def receive(stream: IO[str]) -> dict[str, Any] | None:
    """Read one message; None at the end of the stream, or where the writer died within a line."""
    line = stream.readline()
    if not line.endswith("\n"):
        return None
    message: dict[str, Any] = json.loads(line)
    return message
