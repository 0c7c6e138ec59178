"""An SQLite export of Nsight Systems, open for reading: nothing is written beside it, what it lacks is known."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mtp_bench.errors import InputError
from mtp_bench.nsight.text import decoded, printable

MAGIC = b"SQLite format 3\0"
OLDEST, NEWEST = (3, 0), (3, 25)  # export schemas that were tried
AGAIN = "export it again: nsys export --type sqlite"
_BUSY_SECONDS = 1.0
_STEPS_BETWEEN_STOPS = 1_000_000  # of SQLite's virtual machine: some hundredths of a second
_META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_MEMORY_PAGES_KIB = 65536
_MAX_VERSION = 40  # characters of a version; there is no longer one

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NVTX = "NVTX_EVENTS"
STRINGS = "StringIds"
CALLCHAINS = "CUDA_CALLCHAINS"
DIAGNOSTICS = "DIAGNOSTIC_EVENT"
_KNOWN = (RUNTIME, SYNCHRONIZATION, MEMCPY, MEMSET, KERNEL, GRAPH_TRACE, NVTX)


class Export:
    """The tables of one export. Tables exist only where they have rows, and columns differ between versions."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        names = self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._columns = {name: self._columns_of(name) for (name,) in names if name in _TABLES}
        self._lacking: dict[str, list[str]] = {}
        meta: dict[str, str] = {}
        for table in _META_TABLES:
            if self.has(table, "name", "value"):
                meta |= {str(name): str(value) for name, value in self.rows(f"SELECT name, value FROM {table}")}
        self.tool_version = printable(meta.get("EXPORT_PRODUCT_VERSION", ""))[:_MAX_VERSION]
        self.schema = printable(meta.get("EXPORT_SCHEMA_VERSION", ""))[:_MAX_VERSION]

    def _columns_of(self, table: str) -> frozenset[str]:
        return frozenset(row[1] for row in self.rows(f'PRAGMA table_info("{table}")'))

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> Iterator[Any]:
        """Rows of a query, as they are asked for."""
        return self._connection.execute(sql, parameters)

    def has(self, table: str, *columns: str) -> bool:
        """Whether ``table`` is there with all of ``columns``; what a table lacks is kept for :meth:`lacking`."""
        if table not in self._columns:
            return False
        absent = [column for column in columns if column not in self._columns[table]]
        if absent:
            self._lacking.setdefault(table, absent)
        return not absent

    def offers(self, table: str, column: str) -> bool:
        """Whether ``table`` has a column that can be done without."""
        return column in self._columns.get(table, ())

    def column(self, table: str, name: str, default: str = "NULL") -> str:
        """``name`` as SQL, or ``default`` where the table has no such column."""
        return name if self.offers(table, name) else default

    def lacking(self) -> list[str]:
        """Tables that could not be read for want of columns, a sentence each."""
        return [f"table {table} has no column {', '.join(columns)}" for table, columns in self._lacking.items()]

    def fill(self, table: str, columns: str, rows: Iterable[tuple[int, ...]]) -> None:
        """Put ``rows`` of integers into a new temporary table, in memory; its columns together are its key."""
        self._create(table, columns)
        self.add(table, columns, rows)

    def fill_from(self, table: str, columns: str, select: str) -> None:
        """The same with the rows of a query."""
        self._create(table, columns)
        self._connection.execute(f"INSERT OR IGNORE INTO {table} {select}")

    def add(self, table: str, columns: str, rows: Iterable[tuple[int, ...]]) -> None:
        """Put more rows into a temporary table."""
        marks = ", ".join("?" for _ in columns.split(", "))
        self._connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)

    def _create(self, table: str, columns: str) -> None:
        definition = ", ".join(f"{name} INTEGER NOT NULL" for name in columns.split(", "))
        self._connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
        one = ", " not in columns  # then it is the row id, by which rows are found twice as fast
        options = f"PRIMARY KEY ({columns})" + (")" if one else ") WITHOUT ROWID")
        self._connection.execute(f"CREATE TEMP TABLE {table} ({definition}, {options}")


_TABLES = frozenset({*_KNOWN, *_META_TABLES, STRINGS, CALLCHAINS, DIAGNOSTICS})


@contextmanager
def open_export(path: Path) -> Iterator[Export]:
    """Open the export at ``path``.

    Raises:
        InputError: ``path`` is no SQLite export of a schema known here, or it cannot be read to the end: it is empty,
            truncated, damaged, encrypted, or another program is writing to it.
    """
    name = printable(str(path))
    header = _header(path, name)
    stops: list[KeyboardInterrupt] = []
    try:
        uri = _uri(path, header)
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
            connection.set_progress_handler(_stopping(stops), _STEPS_BETWEEN_STOPS)
            connection.text_factory = decoded
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA cache_size = -{_MEMORY_PAGES_KIB}")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("BEGIN")  # all queries see the same state of the file
            export = Export(connection, path)
            _check_schema(export, name)
            yield export
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where SQLite's message quotes what is broken
        if stops:
            raise stops[0] from None
        raise InputError(f"{name}: {_what_is_wrong(error, path)}") from None


def _stopping(stops: list[KeyboardInterrupt]) -> Callable[[], int]:
    """What SQLite calls now and then, so that Ctrl-C and the like end a query; they are kept in ``stops``.

    Python runs signal handlers when it gets to run, and SQLite swallows what they raise then. In a generator that is
    resumed it is raised at the ``yield``, where it can be caught; in a function it would be before any line of it.
    """

    def ticks() -> Iterator[int]:
        while True:
            try:
                yield 0
            except KeyboardInterrupt as stop:
                stops.append(stop)
                yield 1  # SQLite's sign to give up

    running = ticks()
    next(running)
    return running.__next__


def is_sqlite(path: Path) -> bool:
    """Whether the file begins as SQLite's do."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise InputError(f"{printable(str(path))}: {error.strerror}") from None


def _header(path: Path, name: str) -> bytes:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{name}: not a file; expected an export of Nsight Systems")
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from None
    size = found.st_size
    if not size:
        raise InputError(f"{name}: the file is empty; {AGAIN}")
    if not header.startswith(MAGIC):
        raise InputError(f"{name}: not an SQLite file, or an encrypted one; expected an export of Nsight Systems")
    if len(header) < 100:
        raise InputError(f"{name}: the file is truncated, it ends within its header; {AGAIN}")
    page_bytes = int.from_bytes(header[16:18], "big")
    expected = (65536 if page_bytes == 1 else page_bytes) * int.from_bytes(header[28:32], "big")
    # The number of pages counts only where the last writer knew of it (bytes 92 to 95 repeat 24 to 27).
    if header[24:28] == header[92:96] and size < expected and not _pending(path):
        raise InputError(f"{name}: the file is truncated, it has {size:,} of {expected:,} bytes; {AGAIN}")
    return header


def _pending(path: Path) -> bool:
    """Whether changes in write-ahead mode wait beside the file."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def _uri(path: Path, header: bytes) -> str:
    """A file in write-ahead mode that is complete is read as immutable: else SQLite would create files beside it."""
    complete = header[18] == 2 and not _pending(path)
    return f"file:{quote(str(path.resolve()))}?mode=ro{'&immutable=1' if complete else ''}"


def _check_schema(export: Export, name: str) -> None:
    if not any(export.has(table) for table in (*_KNOWN, *_META_TABLES)):
        raise InputError(
            f"{name}: an SQLite file, but not an export of Nsight Systems: it has none of its tables; "
            f"make one with nsys export --type sqlite"
        )
    if export.schema and schema_version(export.schema)[:1] != NEWEST[:1]:
        raise InputError(
            f"{name}: export schema {export.schema} is not known; "
            f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} are, which nsys 2022.4 to 2026.2 export"
        )


def schema_version(text: str) -> tuple[int, ...]:
    """``(3, 25, 0)`` for ``"3.25.0"``; empty where it is no version."""
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def _what_is_wrong(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> str:
    """What SQLite's error code means for somebody with a capture."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "the file is locked: another program is writing to it; try again when it has finished"
    if code == sqlite3.SQLITE_NOTADB:
        return "not an SQLite file, or an encrypted one; expected an export of Nsight Systems"
    if code == sqlite3.SQLITE_CORRUPT:
        return f"the file is damaged or truncated ({printable(str(error))}); {AGAIN}"
    closed = code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    if closed and path.with_name(path.name + "-journal").exists():
        return f"the program that wrote the file was stopped half way ({printable(path.name)}-journal is left); {AGAIN}"
    if closed and _pending(path):
        return (
            f"the newest rows are in {printable(path.name)}-wal, which cannot be read in a folder without write "
            "permission; copy both files to another folder"
        )
    return f"cannot be read: {printable(str(error))}"
