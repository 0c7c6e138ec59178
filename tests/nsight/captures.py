"""Captures in the schema of Nsight Systems' SQLite exports, made row by row: what a test needs and nothing else.

As in an export, a table is there only if it has rows, and columns are those of the schema's version: 3.0 (nsys 2022.4),
3.24 and 3.25 (nsys 2026.2).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGEABLE, PINNED, DEVICE, MANAGED = 0, 1, 2, 4  # memKind
EVENT, STREAM_WAIT, STREAM, CONTEXT = 1, 2, 3, 4  # syncType
HTOD, DTOH, DTOD = 1, 2, 8  # copyKind
PUSH_POP, START_END, MARK, DOMAIN_CREATED = 59, 60, 34, 75  # eventType

_TIMES = "start end"
_PLACE = "deviceId contextId greenContextId* streamId correlationId globalPid"
_PAYLOAD = "uint64Value int64Value doubleValue uint32Value int32Value floatValue jsonTextId jsonText binaryData*"
# Columns marked * are not in schema 3.0.
_TABLES = {
    "StringIds": "id value",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"{_TIMES} eventClass globalTid correlationId nameId returnValue callchainId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_TIMES} {_PLACE} deprecatedSyncType* syncType eventId eventSyncId*",
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{_TIMES} {_PLACE} bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId "
        "dstContextId migrationCause graphNodeId virtualAddress copyCount*"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_TIMES} {_PLACE} value bytes graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{_TIMES} {_PLACE} demangledName shortName mangledName launchType cacheConfig registersPerThread "
        "gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread "
        "localMemoryTotal gridId sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig qmdBulkReleaseDone* "
        "qmdPreexitDone* qmdLastCtaDone* graphId* clusterX* clusterY* clusterZ* clusterSchedulingPolicy* "
        "maxPotentialClusterSize* maxActiveClusters* sharedMemoryRequestedPercentage* tensorSizeMinusOneElements*"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_TIMES} {_PLACE} graphId graphExecId",
    "NVTX_EVENTS": (
        f"{_TIMES} eventType rangeId category color text globalTid endGlobalTid textId domainId {_PAYLOAD}"
    ),
    "CUDA_CALLCHAINS": "id symbol module unresolved originalIP stackDepth",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
}
_KEYS = {"StringIds": "id INTEGER PRIMARY KEY", "CUDA_CALLCHAINS": "PRIMARY KEY (id, stackDepth)"}
_TEXTS = {"value", "text", "jsonText", "binaryData"}
_PREFIX = 1 << 48  # the part of a globalTid above the process: machine and hypervisor


def columns(table: str, schema: str) -> list[str]:
    """The columns of ``table`` in an export of ``schema``."""
    newer = not schema.startswith("3.0.")
    return [name.removesuffix("*") for name in _TABLES[table].split() if newer or not name.endswith("*")]


def create_table(connection: sqlite3.Connection, table: str, names: Sequence[str]) -> None:
    """Create ``table`` with columns ``names``."""
    key = _KEYS.get(table, "")
    definitions = [f'"{name}" {"TEXT" if name in _TEXTS else "INTEGER"}' for name in names]
    if key.startswith("id "):
        definitions[0] = key
    elif key:
        definitions.append(key)
    connection.execute(f"CREATE TABLE {table} ({', '.join(definitions)})")


def write_meta(connection: sqlite3.Connection, schema: str, version: str) -> None:
    """Create the table that says which tool and schema an export is of."""
    table = "EXPORT_META_DATA" if schema.startswith("3.0.") else "META_DATA_EXPORT"
    connection.execute(f"CREATE TABLE {table} (name TEXT, value TEXT)")
    rows = [("EXPORT_PRODUCT_VERSION", version), ("EXPORT_SCHEMA_VERSION", schema)]
    connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)


def global_pid(process: int) -> int:
    """The globalPid of a process."""
    return _PREFIX | process << 24


def global_tid(process: int, thread: int) -> int:
    """The globalTid of a thread."""
    return global_pid(process) | thread


@dataclass
class CaptureFile:
    """A capture in the making. Times are nanoseconds."""

    schema: str = "3.25.0"
    version: str = "2026.2.1.210"
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)
    correlation: int = 0
    chains: int = 0

    def thread(self, process: int, thread: int | None = None) -> Thread:
        """A thread of a process; by default its first."""
        return Thread(self, process, process if thread is None else thread)

    def row(self, table: str, **values: Any) -> None:
        """Add a row; what is not given is NULL."""
        self.tables.setdefault(table, []).append(values)

    def string(self, text: str) -> int:
        """The id of a string."""
        return self.strings.setdefault(text, len(self.strings) + 1)

    def device_work(self, table: str, start: int, end: int, process: int, **values: Any) -> None:
        """A kernel (``KERNEL``), copy, memset or graph of ``process``."""
        place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": global_pid(process)}
        self.row(f"CUPTI_ACTIVITY_KIND_{table}", start=start, end=end, **{**place, **values})

    def kernel(self, start: int, end: int, process: int = 100, device: int = 0, stream: int = 7) -> None:
        """A kernel, whoever launched it."""
        self.device_work("KERNEL", start, end, process, deviceId=device, streamId=stream, shortName=self.string("k"))

    def domain(self, process: int, number: int, text: str) -> None:
        """An NVTX domain."""
        tid = global_tid(process, process)
        self.row("NVTX_EVENTS", start=0, eventType=DOMAIN_CREATED, text=text, globalTid=tid, domainId=number)

    def diagnostic(self, severity: int, text: str) -> None:
        """What the profiler has to say: severity 1 information, 2 a warning, 3 an error."""
        self.row("DIAGNOSTIC_EVENT", timestamp=0, timestampType=0, source=0, severity=severity, text=text)

    def write(
        self, path: Path, without: Mapping[str, Iterable[str] | None] | None = None, shuffle: bool = False
    ) -> Path:
        """Write the capture, ``without`` whole tables (None) or some of their columns; ``shuffle`` turns rows round."""
        without = without or {}
        self.tables["StringIds"] = [{"id": number, "value": text} for text, number in self.strings.items()]
        connection = sqlite3.connect(path)
        if "META" not in without:
            write_meta(connection, self.schema, self.version)
        for table, rows in self.tables.items():
            dropped = without.get(table, ())
            if not rows or dropped is None:
                continue
            names = [name for name in columns(table, self.schema) if name not in dropped]
            create_table(connection, table, names)
            marks = ", ".join("?" * len(names))
            ordered = rows[::-1] if shuffle else rows
            connection.executemany(
                f"INSERT INTO {table} VALUES ({marks})", [[row.get(name) for name in names] for row in ordered]
            )
        connection.commit()
        connection.close()
        return path


@dataclass
class Thread:
    """A thread of a capture, with what it does."""

    capture: CaptureFile
    process: int
    thread: int

    @property
    def tid(self) -> int:
        return global_tid(self.process, self.thread)

    def push(self, start: int, end: int | None, text: str, domain: int = 0, registered: bool = False) -> None:
        """A push/pop range."""
        self._range(PUSH_POP, start, end, text, domain, registered)

    def range(self, start: int, end: int | None, text: str, domain: int = 0, registered: bool = False) -> None:
        """A start/end range, which is the whole process's."""
        self._range(START_END, start, end, text, domain, registered)

    def _range(self, kind: int, start: int, end: int | None, text: str, domain: int, registered: bool) -> None:
        name = {"textId": self.capture.string(text)} if registered else {"text": text}
        tid = self.tid
        self.capture.row("NVTX_EVENTS", start=start, end=end, eventType=kind, globalTid=tid, domainId=domain, **name)

    def call(
        self, api: str, start: int, end: int, chain: Sequence[tuple[str, str]] = (), correlation: int | None = None
    ) -> int:
        """A call of CUDA, and its correlation id; ``chain`` is symbol and module of its callers, innermost first."""
        capture = self.capture
        capture.correlation += 1
        number = capture.correlation if correlation is None else correlation
        chain_id = None
        if chain:
            capture.chains += 1
            chain_id = capture.chains
            for depth, (symbol, module) in enumerate(chain):
                frame = {"symbol": capture.string(symbol), "module": capture.string(module), "stackDepth": depth}
                capture.row("CUDA_CALLCHAINS", id=chain_id, **frame)
        capture.row(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=int(api.startswith("cu") and not api.startswith("cuda")),
            globalTid=self.tid,
            correlationId=number,
            nameId=capture.string(api),
            returnValue=0,
            callchainId=chain_id,
        )
        return number

    def launch(self, start: int, end: int, kernel: tuple[int, int], device: int = 0, stream: int = 7) -> None:
        """A kernel launch, and when the kernel ran."""
        number = self.call("cudaLaunchKernel_v7000", start, end)
        place = {"deviceId": device, "streamId": stream, "correlationId": number}
        self.capture.device_work("KERNEL", *kernel, self.process, shortName=self.capture.string("k"), **place)

    def copy(
        self,
        start: int,
        end: int,
        kind: int,
        memory: int = PAGEABLE,
        bytes: int = 8,
        on_device: tuple[int, int] | None = None,
        api: str = "cudaMemcpyAsync_v3020",
        device: int = 0,
        stream: int = 7,
        chain: Sequence[tuple[str, str]] = (),
    ) -> None:
        """A copy: its call, and what the device did."""
        number = self.call(api, start, end, chain)
        kinds = {HTOD: (memory, DEVICE), DTOH: (DEVICE, memory), DTOD: (DEVICE, DEVICE)}[kind]
        self.capture.device_work(
            "MEMCPY",
            *(on_device or (start, end)),
            self.process,
            deviceId=device,
            streamId=stream,
            correlationId=number,
            bytes=bytes,
            copyKind=kind,
            srcKind=kinds[0],
            dstKind=kinds[1],
        )

    def sync(
        self,
        start: int,
        end: int,
        type: int = STREAM,
        api: str = "cudaStreamSynchronize_v3020",
        stream: int = 7,
        chain: Sequence[tuple[str, str]] = (),
    ) -> None:
        """A call in the table of synchronisations, which has device 0 whatever the device."""
        number = self.call(api, start, end, chain)
        self.capture.device_work(
            "SYNCHRONIZATION", start, end, self.process, streamId=stream, correlationId=number, syncType=type, eventId=0
        )

    def blocking_copy(self, start: int, end: int, kind: int, memory: int = PAGEABLE, **values: Any) -> None:
        """As PyTorch does it: a copy, and a synchronisation of its stream, in ten nanoseconds and the rest."""
        self.copy(start, start + 10, kind, memory, **values)
        self.sync(start + 11, end, stream=values.get("stream", 7))
