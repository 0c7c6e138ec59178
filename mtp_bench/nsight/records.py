"""What a capture records beside the calls: copies between host and device, and synchronisations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from mtp_bench.nsight.sqlite import MEMCPY, SYNCHRONIZATION, Export

if TYPE_CHECKING:
    from mtp_bench.nsight.calls import Call

Key = int
"""Process and correlation id in one number: by it a call and what it caused on the device find each other."""

PROCESS = "({0} >> 24 & 16777215)"
"""The process of a globalTid or globalPid, in SQL."""

HOST_TO_DEVICE, DEVICE_TO_HOST = "htod", "dtoh"
# copyKind: to the device, to the host, to an array, from an array.
_DIRECTIONS = {1: HOST_TO_DEVICE, 2: DEVICE_TO_HOST, 3: HOST_TO_DEVICE, 4: DEVICE_TO_HOST}
_PAGEABLE = 0  # memKind
_STREAM_WAIT = 2  # syncType: a stream waits for an event, the host goes on


class HostCopy:
    """One copy between host and device. ``pageable`` is the host's side, None where the capture does not say."""

    __slots__ = ("blocking", "bytes", "call", "device", "direction", "in_graph", "key", "pageable", "stream")

    def __init__(
        self,
        key: Key,
        direction: str,
        pageable: bool | None,
        bytes: int,
        device: int | None,
        stream: int | None,
        in_graph: bool,
    ) -> None:
        self.key = key
        self.direction, self.pageable, self.bytes = direction, pageable, bytes
        self.device, self.stream, self.in_graph = device, stream, in_graph
        self.call: Call | None = None
        self.blocking = False

    @property
    def process(self) -> int:
        """The process id."""
        return process_of_key(self.key)


class SyncRow(NamedTuple):
    """The record of a synchronisation, without its times."""

    type: int
    stream: int | None
    context: int | None


def key_sql(table: str, owner: str) -> str:
    """The key of a row of ``table``, in SQL; ``owner`` is its globalTid or globalPid."""
    return f"(({PROCESS.format(f'{table}.{owner}')} << 32) | ({table}.correlationId & 4294967295))"


def process_of_key(key: Key) -> int:
    """The process id in a key."""
    return key >> 32


def copies_recorded(export: Export) -> bool:
    """Whether the capture has copies and what is needed to find their calls."""
    return export.has(MEMCPY, "copyKind", "bytes", "correlationId", "globalPid")


def host_copies(export: Export) -> list[HostCopy]:
    """Copies between host and device; those within the device are left out."""
    if not copies_recorded(export):
        return []
    source, target, device, stream, node = (
        f"CAST({export.column(MEMCPY, name)} AS INTEGER)"
        for name in ("srcKind", "dstKind", "deviceId", "streamId", "graphNodeId")
    )
    kinds = ", ".join(map(str, _DIRECTIONS))
    rows = export.rows(
        f"SELECT {key_sql(MEMCPY, 'globalPid')}, copyKind, CAST(bytes AS INTEGER), "
        f"{source}, {target}, {device}, {stream}, {node} IS NOT NULL FROM {MEMCPY} "
        f"WHERE copyKind IN ({kinds}) AND correlationId IS NOT NULL AND globalPid IS NOT NULL"
    )
    found = []
    for key, kind, size, source_kind, target_kind, on_device, on_stream, in_graph in rows:
        direction = _DIRECTIONS[kind]
        memory = source_kind if direction == HOST_TO_DEVICE else target_kind
        pageable = None if memory is None else memory == _PAGEABLE
        found.append(HostCopy(key, direction, pageable, size, on_device, on_stream, bool(in_graph)))
    return found


def syncs_recorded(export: Export) -> bool:
    """Whether the capture has a usable table of synchronisations."""
    return export.has(SYNCHRONIZATION, "start", "end", "correlationId", "globalPid", "syncType")


def sync_rows(export: Export) -> dict[Key, SyncRow]:
    """Synchronisations, without waits of a stream for an event, in which the host takes no part."""
    if not syncs_recorded(export):
        return {}
    stream, context = (f"CAST({export.column(SYNCHRONIZATION, name)} AS INTEGER)" for name in ("streamId", "contextId"))
    rows = export.rows(
        f"SELECT {key_sql(SYNCHRONIZATION, 'globalPid')}, CAST(syncType AS INTEGER), {stream}, {context} "
        f"FROM {SYNCHRONIZATION} WHERE syncType <> {_STREAM_WAIT} AND correlationId IS NOT NULL "
        'AND globalPid IS NOT NULL AND "end" >= start'
    )
    shared: dict[tuple[int, int | None, int | None], SyncRow] = {}
    return {key: shared.setdefault((kind, *place), SyncRow(kind, *place)) for key, kind, *place in rows}


def sync_times(export: Export, keys: Iterable[Key]) -> dict[Key, tuple[int, int]]:
    """When the synchronisations with these keys began and ended."""
    export.fill("wanted", "key", ((key,) for key in keys))
    rows = export.rows(
        f'SELECT {key_sql(SYNCHRONIZATION, "globalPid")} AS key, CAST(start AS INTEGER), CAST("end" AS INTEGER) '
        f"FROM {SYNCHRONIZATION} WHERE key IN (SELECT key FROM wanted)"
    )
    return {key: (start, end) for key, start, end in rows}


def count_stream_wait_rows(export: Export) -> int:
    """How many synchronisations are waits of a stream for an event."""
    if not export.has(SYNCHRONIZATION, "syncType"):
        return 0
    ((count,),) = export.rows(f"SELECT count(*) FROM {SYNCHRONIZATION} WHERE syncType = {_STREAM_WAIT}")
    return int(count)
