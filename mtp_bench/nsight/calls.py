"""The CUDA calls of a capture that have to do with waiting, and the records of what they caused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from mtp_bench.nsight.sqlite import MEMCPY, RUNTIME, STRINGS, SYNCHRONIZATION, Export
from mtp_bench.nsight.text import api_base, api_name

Key = tuple[int, int]
"""Process and correlation id, by which a call and what it caused on the device find each other."""

HOST_TO_DEVICE, DEVICE_TO_HOST = "htod", "dtoh"
# copyKind: to the device, to the host, to an array, from an array.
_DIRECTIONS = {1: HOST_TO_DEVICE, 2: DEVICE_TO_HOST, 3: HOST_TO_DEVICE, 4: DEVICE_TO_HOST}
_PAGEABLE = 0  # memKind
STREAM_WAIT_ROW = 2  # syncType: a stream waits for an event, the host goes on

PROCESS = "({0} >> 24 & 16777215)"
"""The process of a globalTid or globalPid, in SQL."""


class Role(Enum):
    """What a call has to do with waiting."""

    STREAM_SYNC = "stream_sync"
    DEVICE_SYNC = "device_sync"
    EVENT_SYNC = "event_sync"
    EVENT_QUERY = "event_query"
    STREAM_WAIT = "stream_wait"
    COPY = "copy"
    OTHER = "other"


_ROLES = {
    "cudaStreamSynchronize": Role.STREAM_SYNC,
    "cuStreamSynchronize": Role.STREAM_SYNC,
    "cudaDeviceSynchronize": Role.DEVICE_SYNC,
    "cudaThreadSynchronize": Role.DEVICE_SYNC,
    "cuCtxSynchronize": Role.DEVICE_SYNC,
    "cudaEventSynchronize": Role.EVENT_SYNC,
    "cuEventSynchronize": Role.EVENT_SYNC,
    "cudaEventQuery": Role.EVENT_QUERY,
    "cuEventQuery": Role.EVENT_QUERY,
    "cudaStreamWaitEvent": Role.STREAM_WAIT,
    "cuStreamWaitEvent": Role.STREAM_WAIT,
}
_GLOBS = ("cu*Synchronize*", "cu*EventQuery*", "cu*StreamWaitEvent*", "cu*Memcpy*")
_ENQUEUING_GLOBS = ("cu*Launch*", "cu*Memcpy*", "cu*Memset*")


class Api(NamedTuple):
    """A function of CUDA: its name without the version, and what it has to do with waiting."""

    name: str
    role: Role

    @property
    def is_async(self) -> bool:
        """Whether a copy's call returns before the copy is done, memory permitting."""
        return "Async" in self.name


@dataclass(slots=True)
class Call:
    """One call of CUDA by one thread. ``thread`` is the globalTid, times are nanoseconds of the capture's clock."""

    thread: int
    start: int
    end: int
    api: Api
    correlations: tuple[int, ...]
    callchain: int | None

    @property
    def process(self) -> int:
        """The process id."""
        return process_of(self.thread)

    @property
    def keys(self) -> list[Key]:
        """What device records of this call, or of calls inside it, have too."""
        return [(self.process, correlation) for correlation in self.correlations]


@dataclass(slots=True, eq=False)
class HostCopy:
    """One copy between host and device, as the device did it. ``pageable`` is the host's side, None where unknown."""

    key: Key
    direction: str
    pageable: bool | None
    bytes: int
    device: int | None
    stream: int | None
    in_graph: bool
    call: Call | None = None
    blocking: bool = False

    @property
    def process(self) -> int:
        """The process id."""
        return self.key[0]


class SyncRow(NamedTuple):
    """One row of the table of synchronisations."""

    start: int
    end: int
    type: int
    stream: int | None
    context: int | None


def process_of(thread: int) -> int:
    """The process id of a globalTid."""
    return thread >> 24 & 0xFFFFFF


def thread_id(thread: int) -> int:
    """The thread id of a globalTid."""
    return thread & 0xFFFFFF


def host_copies(export: Export) -> list[HostCopy]:
    """Copies between host and device; those within the device are left out."""
    if not export.has(MEMCPY, "copyKind", "bytes", "correlationId", "globalPid"):
        return []
    source, target, device, stream, node = (
        export.column(MEMCPY, name) for name in ("srcKind", "dstKind", "deviceId", "streamId", "graphNodeId")
    )
    rows = export.rows(
        f"SELECT {PROCESS.format('globalPid')}, CAST(correlationId AS INTEGER), copyKind, CAST(bytes AS INTEGER), "
        f"{source}, {target}, {device}, {stream}, {node} IS NOT NULL FROM {MEMCPY} "
        f"WHERE copyKind IN ({_listed(_DIRECTIONS)}) AND correlationId IS NOT NULL AND globalPid IS NOT NULL"
    )
    found = []
    for process, correlation, kind, size, source_kind, target_kind, on_device, on_stream, in_graph in rows:
        direction = _DIRECTIONS[kind]
        memory = source_kind if direction == HOST_TO_DEVICE else target_kind
        pageable = None if memory is None else memory == _PAGEABLE
        key = (process, correlation)
        found.append(HostCopy(key, direction, pageable, size, on_device, on_stream, bool(in_graph)))
    return found


def sync_rows(export: Export) -> dict[Key, SyncRow]:
    """The table of synchronisations without waits of a stream for an event, in which the host takes no part."""
    if not export.has(SYNCHRONIZATION, "start", "end", "correlationId", "globalPid", "syncType"):
        return {}
    stream, context = (export.column(SYNCHRONIZATION, name) for name in ("streamId", "contextId"))
    rows = export.rows(
        f"SELECT {PROCESS.format('globalPid')}, CAST(correlationId AS INTEGER), CAST(start AS INTEGER), "
        f'CAST("end" AS INTEGER), CAST(syncType AS INTEGER), {stream}, {context} FROM {SYNCHRONIZATION} '
        f"WHERE syncType <> {STREAM_WAIT_ROW} AND correlationId IS NOT NULL AND globalPid IS NOT NULL "
        f'AND "end" >= start'
    )
    return {(process, correlation): SyncRow(*row) for process, correlation, *row in rows}


def count_stream_wait_rows(export: Export) -> int:
    """How many rows of the table of synchronisations are waits of a stream for an event."""
    if not export.has(SYNCHRONIZATION, "syncType"):
        return 0
    ((count,),) = export.rows(f"SELECT count(*) FROM {SYNCHRONIZATION} WHERE syncType = {STREAM_WAIT_ROW}")
    return int(count)


class Calls:
    """The table of CUDA calls."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self.recorded = export.has(RUNTIME, "start", "end", "globalTid", "nameId") and export.has(
            STRINGS, "id", "value"
        )
        correlation, callchain = (export.column(RUNTIME, name) for name in ("correlationId", "callchainId"))
        self._columns = (
            f'CAST(globalTid AS INTEGER), CAST(start AS INTEGER), CAST("end" AS INTEGER), nameId, '
            f"CAST({correlation} AS INTEGER), CAST({callchain} AS INTEGER)"
        )

    def waiting(self) -> list[Call]:
        """Synchronisations, queries, waits and copies, by thread and time, without calls that others make inside."""
        return outermost(self._calls(self._apis(_GLOBS)))

    def behind(self, keys: Iterable[Key]) -> dict[Key, Call]:
        """The calls with these keys, whatever they are."""
        if not self.recorded:
            return {}
        self._export.fill("wanted", "process, correlation", list(keys))
        condition = (
            f"EXISTS (SELECT 1 FROM wanted WHERE process = {PROCESS.format('globalTid')} "
            "AND correlation = correlationId)"
        )
        rows = list(self._rows(condition))
        names = sorted({row[3] for row in rows})
        apis = {name: api for name in names for api in self._apis_where("id = ?", (name,)).values()}
        return {key: call for row in rows if row[3] in apis for call in [_call(row, apis)] for key in call.keys}

    def interrupted(self, gaps: Sequence[tuple[Call, Call]]) -> set[int]:
        """Indices of the ``gaps`` between two calls of a thread in which it had the device do something else."""
        names = self._apis(_ENQUEUING_GLOBS)
        if not gaps or not names:
            return set()
        self._export.fill(
            "gap",
            "thread, before, after, number",
            [(first.thread, second.start, first.end, number) for number, (first, second) in enumerate(gaps)],
        )
        # Gaps of a thread do not overlap: the first that ends after the call is the only one that may hold it.
        rows = self._export.rows(
            "SELECT DISTINCT (SELECT CASE WHEN after <= start THEN number END FROM gap WHERE thread = globalTid "
            f"AND before > start ORDER BY before LIMIT 1) FROM {RUNTIME} WHERE nameId IN ({_listed(names)})"
        )
        return {number for (number,) in rows if number is not None}

    def _apis(self, globs: Sequence[str]) -> dict[int, Api]:
        condition = " OR ".join("value GLOB ?" for _ in globs)
        return self._apis_where(condition, tuple(globs)) if self.recorded else {}

    def _apis_where(self, condition: str, parameters: tuple[object, ...]) -> dict[int, Api]:
        rows = self._export.rows(f"SELECT id, CAST(value AS TEXT) FROM {STRINGS} WHERE {condition}", parameters)
        return {number: _api(value) for number, value in rows}

    def _calls(self, apis: dict[int, Api]) -> list[Call]:
        if not apis:
            return []
        return [_call(row, apis) for row in self._rows(f"nameId IN ({_listed(apis)})")]

    def _rows(self, condition: str) -> Iterator[tuple[int, int, int, int, int | None, int | None]]:
        return self._export.rows(
            f'SELECT {self._columns} FROM {RUNTIME} WHERE {condition} AND globalTid IS NOT NULL AND "end" >= start'
        )


def outermost(calls: list[Call]) -> list[Call]:
    """``calls`` by thread and time without those inside another: the runtime calls the driver, which waits once.

    Device records may carry the correlation id of either, so the outer call gets that of an inner one too.
    """
    calls.sort(key=lambda call: (call.thread, call.start, -call.end))
    kept: list[Call] = []
    for call in calls:
        outer = kept[-1] if kept else None
        if outer is not None and outer.thread == call.thread and call.end <= outer.end and call.start >= outer.start:
            outer.correlations = tuple(sorted({*outer.correlations, *call.correlations}))
            continue
        kept.append(call)
    return kept


def _call(row: tuple[int, int, int, int, int | None, int | None], apis: dict[int, Api]) -> Call:
    thread, start, end, name, correlation, callchain = row
    return Call(thread, start, end, apis[name], () if correlation is None else (correlation,), callchain)


def _api(value: str) -> Api:
    name = api_name(value)
    base = api_base(name)
    copy = base.startswith(("cudaMemcpy", "cuMemcpy"))
    return Api(name, Role.COPY if copy else _ROLES.get(base, Role.OTHER))


def _listed(names: Iterable[int]) -> str:
    return ", ".join(map(str, names))
