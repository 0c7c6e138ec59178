"""The CUDA calls of a capture that have to do with waiting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from enum import Enum
from typing import NamedTuple

from mtp_bench.nsight.model import RangeName
from mtp_bench.nsight.records import Key, key_sql
from mtp_bench.nsight.sqlite import RUNTIME, STRINGS, Export
from mtp_bench.nsight.text import api_base, api_name


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
_LAUNCH_GLOBS = ("cu*Launch*Kernel*",)

_Row = tuple[int, int, int, int, Key | None, int | None]


class Api(NamedTuple):
    """A function of CUDA: its name without the version, and what it has to do with waiting."""

    name: str
    role: Role

    @property
    def is_async(self) -> bool:
        """Whether a copy's call returns before the copy is done, memory permitting."""
        return "Async" in self.name


class Call:
    """One call of CUDA by one thread.

    ``thread`` is the globalTid, times are nanoseconds of the capture's clock, ``path`` the NVTX ranges around it as
    :meth:`mtp_bench.nsight.ranges.Ranges.place` finds them. Records of what a call caused have its key, or that of a
    call inside it (``inner_keys``).
    """

    __slots__ = ("api", "callchain", "end", "inner_keys", "key", "path", "start", "thread")

    def __init__(self, thread: int, start: int, end: int, api: Api, key: Key | None, callchain: int | None) -> None:
        self.thread, self.start, self.end = thread, start, end
        self.api, self.key, self.callchain = api, key, callchain
        self.inner_keys: tuple[Key, ...] = ()
        self.path: tuple[RangeName, ...] = ()

    @property
    def process(self) -> int:
        """The process id."""
        return process_of(self.thread)

    @property
    def keys(self) -> Sequence[Key]:
        """Its key, and those of calls inside it."""
        return (*(() if self.key is None else (self.key,)), *self.inner_keys)


def process_of(thread: int) -> int:
    """The process id of a globalTid."""
    return thread >> 24 & 0xFFFFFF


def thread_id(thread: int) -> int:
    """The thread id of a globalTid."""
    return thread & 0xFFFFFF


class Calls:
    """The table of CUDA calls."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self.recorded = export.has(RUNTIME, "start", "end", "globalTid", "nameId") and export.has(
            STRINGS, "id", "value"
        )
        self._key = key_sql(RUNTIME, "globalTid") if export.offers(RUNTIME, "correlationId") else "NULL"
        callchain = export.column(RUNTIME, "callchainId")
        self._columns = (
            f'CAST(globalTid AS INTEGER), CAST(start AS INTEGER), CAST("end" AS INTEGER), nameId, {self._key}, '
            f"CAST({callchain} AS INTEGER)"
        )

    def waiting(self, copies: Set[Key] | None) -> list[Call]:
        """Synchronisations, queries, waits and copies, by thread and time, without calls that others make inside.

        Of the asynchronous copies, most of which are within the device, only those in ``copies``; all where it is None.
        """
        apis = self._apis(_GLOBS)
        if not apis:
            return []
        rows = self._rows(f"nameId IN ({_listed(apis)})")
        if copies is not None:
            copying = {number for number, api in apis.items() if api.role is Role.COPY and api.is_async}
            rows = (row for row in rows if row[3] not in copying or row[4] in copies)
        return outermost(_calls(rows, apis))

    def behind(self, keys: Iterable[Key]) -> dict[Key, Call]:
        """The calls with these keys, whatever they are."""
        if not self.recorded:
            return {}
        self._export.fill("wanted", "key", ((key,) for key in keys))
        rows = list(self._rows(f"{self._key} IN (SELECT key FROM wanted)"))
        apis: dict[int, Api] = {}
        for name in {row[3] for row in rows}:
            apis |= self._apis_where("id = ?", (name,))
        found = _calls((row for row in rows if row[3] in apis), apis)
        return {call.key: call for call in found if call.key is not None}

    def interrupted(self, gaps: Sequence[tuple[Call, Call]]) -> set[int]:
        """Indices of the ``gaps`` between two calls of a thread in which it had the device do something else."""
        names = self._apis(_ENQUEUING_GLOBS)
        if not gaps or not names:
            return set()
        self._export.fill(
            "gap",
            "thread, before, after, number",
            ((first.thread, second.start, first.end, number) for number, (first, second) in enumerate(gaps)),
        )
        # Gaps of a thread do not overlap: the first that ends after the call is the only one that may hold it.
        rows = self._export.rows(
            "SELECT DISTINCT (SELECT CASE WHEN after <= start THEN number END FROM gap WHERE thread = globalTid "
            f"AND before > start ORDER BY before LIMIT 1) FROM {RUNTIME} WHERE nameId IN ({_listed(names)})"
        )
        return {number for (number,) in rows if number is not None}

    def launches(self) -> int:
        """How many kernels were launched, a driver call inside a runtime call counted too."""
        names = self._apis(_LAUNCH_GLOBS)
        if not names:
            return 0
        ((count,),) = self._export.rows(f"SELECT count(*) FROM {RUNTIME} WHERE nameId IN ({_listed(names)})")
        return int(count)

    def _apis(self, globs: Sequence[str]) -> dict[int, Api]:
        condition = " OR ".join("value GLOB ?" for _ in globs)
        return self._apis_where(condition, tuple(globs)) if self.recorded else {}

    def _apis_where(self, condition: str, parameters: tuple[object, ...]) -> dict[int, Api]:
        rows = self._export.rows(f"SELECT id, CAST(value AS TEXT) FROM {STRINGS} WHERE {condition}", parameters)
        return {number: _api(value) for number, value in rows}

    def _rows(self, condition: str) -> Iterator[_Row]:
        return self._export.rows(
            f'SELECT {self._columns} FROM {RUNTIME} WHERE {condition} AND globalTid IS NOT NULL AND "end" >= start'
        )


def outermost(calls: list[Call]) -> list[Call]:
    """``calls`` by thread and time without those inside another: the runtime calls the driver, which waits once.

    Records of the device may carry the correlation id of either, so the outer call gets that of an inner one too.
    """
    calls.sort(key=lambda call: (call.thread, call.start, -call.end))
    kept: list[Call] = []
    for call in calls:
        outer = kept[-1] if kept else None
        if outer is not None and outer.thread == call.thread and call.end <= outer.end:
            outer.inner_keys += tuple(call.keys)
            continue
        kept.append(call)
    return kept


def _calls(rows: Iterable[_Row], apis: dict[int, Api]) -> list[Call]:
    threads: dict[int, int] = {}  # one object a thread, not one a call
    return [
        Call(threads.setdefault(thread, thread), start, end, apis[name], key, callchain)
        for thread, start, end, name, key, callchain in rows
    ]


def _api(value: str) -> Api:
    name = api_name(value)
    base = api_base(name)
    copy = base.startswith(("cudaMemcpy", "cuMemcpy"))
    return Api(name, Role.COPY if copy else _ROLES.get(base, Role.OTHER))


def _listed(names: Iterable[int]) -> str:
    return ", ".join(map(str, names))
