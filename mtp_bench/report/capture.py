"""A capture of Nsight Systems as text, Markdown, JSON and CSV. Its strings come from anywhere: none of them acts.

They hold no control characters (:func:`mtp_bench.nsight.text.printable`); here Markdown's are taken care of, formulas
of spreadsheets, and length. Without rich, which takes longer to import than a capture of some megabytes to read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mtp_bench.nsight.model import Capture, CapturedCopy, CapturedSync, RangeName

SCHEMA_VERSION = 1
NO_RANGE = "(no range)"
LEGEND = "blocked: the host waits in the call; device idle: the device has nothing to do from its last work to its next"
_MAX_TEXT = 120  # characters of one name in text and Markdown; JSON and CSV have all of it
_MAX_PATH = 400
_MAX_SENTENCES, _MAX_SENTENCE = 20, 400
_DIRECTIONS = {"htod": "host to device", "dtoh": "device to host"}
_FORMULA = ("=", "+", "-", "@")
_CSV_COLUMNS = (
    "process,thread,device,range,api,copy_api,kind,op,site,pageable,bytes,count,blocked_ns,copy_ns,device_idle_ns"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Syncs of all processes that share range path, calls, kind, pageability and call site."""

    rows: tuple[CapturedSync, ...]

    @property
    def first(self) -> CapturedSync:
        """One of the rows, for what they share."""
        return self.rows[0]

    @property
    def count(self) -> int:
        """How many syncs."""
        return sum(row.count for row in self.rows)

    @property
    def blocked_ns(self) -> int:
        """How long the host was blocked, over all processes."""
        return sum(row.blocked_ns for row in self.rows)

    @property
    def copy_ns(self) -> int:
        """How much of that in copies."""
        return sum(row.copy_ns for row in self.rows)

    @property
    def device_idle_ns(self) -> int | None:
        """How long devices were idle; a gap that threads of a process share counts for each."""
        known = [row.device_idle_ns for row in self.rows if row.device_idle_ns is not None]
        return sum(known) if known else None

    @property
    def bytes(self) -> int | None:
        """How much was copied."""
        sizes = [row.bytes for row in self.rows if row.bytes is not None]
        return sum(sizes) if sizes else None


def places(capture: Capture) -> list[Place]:
    """The syncs of a capture by place, the longest blocked first."""
    groups: dict[tuple[object, ...], list[CapturedSync]] = defaultdict(list)
    for row in capture.syncs:
        groups[row.range, row.api, row.copy_api, row.kind, row.pageable, row.site].append(row)
    return sorted((Place(tuple(rows)) for rows in groups.values()), key=lambda place: -place.blocked_ns)


def to_json(capture: Capture, top: int | None = None) -> dict[str, Any]:
    """The document of ``import --json``; with ``top`` only that many rows of syncs and of copies."""
    return {
        "schema_version": SCHEMA_VERSION,
        "source": _fields(capture.source),
        "missing": list(capture.missing),
        "diagnostics": [_fields(diagnostic) for diagnostic in capture.diagnostics],
        "totals": _fields(capture.totals),
        "not_syncs": _fields(capture.not_syncs),
        "syncs": [_with_texts(row) for row in capture.syncs[:top]],
        "copies": [_with_texts(row) for row in capture.copies[:top]],
        "ranges": [
            {"process": row.process, "range": list(row.path), "count": row.count, "total_ns": row.total_ns}
            for row in capture.ranges
        ],
    }


def to_csv(capture: Capture, top: int | None = None) -> str:
    """One row a row of ``syncs``; what is not known is empty."""
    import csv
    import io

    names = _CSV_COLUMNS.split(",")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in capture.syncs[:top]:
        values = {**_fields(row), "range": _path(row.range)}
        writer.writerow([_csv_cell(values[name]) for name in names])
    return text.getvalue()


def to_text(capture: Capture, top: int) -> list[str]:
    """The report for a terminal, a line each; a line's indent is its continuation's too."""
    sections = (_places(capture, top), _copies(capture, top), _ranges(capture, top))
    return [*_introduction(capture), "", *_summary(capture), *(line for section in sections for line in section)]


def _introduction(capture: Capture) -> Iterator[str]:
    yield _what(capture)
    if capture.missing:
        yield "cannot tell:"
        yield from (f"  {text}" for text in _missing(capture))


def _missing(capture: Capture) -> Iterator[str]:
    """What the capture cannot tell, as much as is read."""
    yield from (_short(text, _MAX_SENTENCE) for text in capture.missing[:_MAX_SENTENCES])
    if len(capture.missing) > _MAX_SENTENCES:
        yield f"and {len(capture.missing) - _MAX_SENTENCES:,} more; --json has all"


def _what(capture: Capture) -> str:
    source = capture.source
    return f"{source.file}: nsys {source.version or '(unknown)'}, export schema {source.schema or '(unknown)'}"


def _summary(capture: Capture) -> Iterator[str]:
    totals, others = capture.totals, capture.not_syncs
    processes = len({row.process for row in capture.syncs})
    where = f" in {_plural(processes, 'process', 'processes')}" if capture.syncs else ""
    yield f"{_plural(totals.syncs, 'sync')}{where}: {_times(totals.blocked_ns, totals.copy_ns, totals.device_idle_ns)}"
    yield LEGEND
    yield (
        f"calls: {totals.stream_sync:,} stream, {totals.device_sync:,} device, {totals.event_sync:,} event "
        f"synchronisations; {others.event_query:,} event queries and {others.stream_wait:,} stream waits are not syncs"
    )
    yield (
        f"copies: {totals.htod:,} host to device ({totals.htod_pageable:,} pageable), "
        f"{totals.dtoh:,} device to host ({totals.dtoh_pageable:,} pageable)"
    )


def _times(blocked_ns: int, copy_ns: int, idle_ns: int | None) -> str:
    parts = f" ({_ms(blocked_ns - copy_ns)} in synchronise calls, {_ms(copy_ns)} in copies)" if copy_ns else ""
    return f"blocked {_ms(blocked_ns)}{parts}, device idle {_ms(idle_ns)}"


def _places(capture: Capture, top: int) -> Iterator[str]:
    found = places(capture)
    for place in found[:top]:
        yield ""
        yield _path(place.first.range, _MAX_TEXT) or NO_RANGE
        yield f"  {_plural(place.count, 'sync')}, {_kind_and_calls(place)}"
        yield f"  {_times(place.blocked_ns, place.copy_ns, place.device_idle_ns)}"
        if place.first.site:
            yield f"  at {_short(place.first.site)}"
        for row in place.rows:
            times = f"blocked {_ms(row.blocked_ns)}, device idle {_ms(row.device_idle_ns)}"
            yield f"    {_who(row)}: {row.count:,}, {times}"
    yield from _rest(len(found) - top, "place")


def _kind_and_calls(place: Place) -> str:
    first = place.first
    calls = " and ".join(filter(None, [first.copy_api, first.api]))
    parts = [f"{first.kind}: {_short(calls)}"]
    if place.bytes is not None:
        parts += [_memory(first.pageable), f"{place.bytes:,} bytes"]
    return ", ".join(parts)


def _who(row: CapturedSync) -> str:
    thread = "" if row.thread is None else f", thread {row.thread}"
    device = "" if row.device is None else f", device {row.device}"
    return f"process {row.process}{thread}{device}"


def _copies(capture: Capture, top: int) -> Iterator[str]:
    rows = _copies_by_size(capture.copies)
    if rows:
        yield ""
        yield "copies between host and device"
        yield from (f"  {_copy(row)}" for row in rows[:top])
        yield from _rest(len(rows) - top, "size")


def _copies_by_size(copies: Iterable[CapturedCopy]) -> list[CapturedCopy]:
    """Copies of all processes and ranges by direction, pageability and size, the most frequent first."""
    groups: dict[tuple[str, bool | None, int], list[CapturedCopy]] = defaultdict(list)
    for row in copies:
        groups[row.direction, row.pageable, row.bytes].append(row)
    rows = [
        CapturedCopy(
            0, None, None, (), *key, count=sum(row.count for row in rows), blocking=sum(row.blocking for row in rows)
        )
        for key, rows in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.count, row.direction, row.bytes))


def _copy(row: CapturedCopy) -> str:
    waits = f"the host waits in {row.blocking:,}" if row.blocking else "the host waits in none"
    return f"{row.count:,} {_DIRECTIONS[row.direction]}, {_memory(row.pageable)}, {row.bytes:,} bytes each; {waits}"


def _ranges(capture: Capture, top: int) -> Iterator[str]:
    if capture.ranges:
        yield ""
        yield "ranges of mtp-bench"
        for row in capture.ranges[:top]:
            path = _short(" > ".join(row.path), _MAX_PATH)
            yield f"  {path}: {row.count:,}, {_ms(row.total_ns)}, process {row.process}"
        yield from _rest(len(capture.ranges) - top, "range")


def _memory(pageable: bool | None) -> str:
    return {True: "pageable", False: "not pageable", None: "memory unknown"}[pageable]


def _rest(count: int, noun: str) -> Iterator[str]:
    if count > 0:
        yield f"{_plural(count, f'more {noun}')}: --top shows more, --json all"


def to_markdown(capture: Capture, top: int) -> str:
    """The report in Markdown; names stand in code spans, where nothing is a link, a mention or markup."""
    lines = ["# Syncs of a capture", "", _code(_what(capture)), ""]
    if capture.missing:
        lines += ["Cannot tell:", "", *(f"- {_plain(text)}" for text in _missing(capture)), ""]
    lines += [*(f"- {_plain(text)}" for text in _summary(capture)), ""]
    found = places(capture)
    if found:
        header = "range | kind | calls | memory | bytes | syncs | blocked ms | of it in copies | device idle ms | from"
        lines += [f"| {header} |", "|---|---|---|---|---:|---:|---:|---:|---:|---|"]
        lines += [_table_row(_place_cells(place)) for place in found[:top]]
        lines += ["", *_rest(len(found) - top, "place"), ""]
        lines += ["| process | thread | device | range | kind | syncs | blocked ms | device idle ms |"]
        lines += ["|---:|---:|---:|---|---|---:|---:|---:|"]
        lines += [_table_row(_row_cells(row)) for place in found[:top] for row in place.rows]
        lines += [""]
    sizes = _copies_by_size(capture.copies)
    if sizes:
        lines += ["Copies between host and device:", "", *(f"- {_copy(row)}" for row in sizes[:top])]
        lines += [*(f"- {text}" for text in _rest(len(sizes) - top, "size")), ""]
    if capture.ranges:
        lines += ["| range of mtp-bench | process | count | ms |", "|---|---:|---:|---:|"]
        lines += [
            _table_row(
                [
                    _code(_short(" > ".join(row.path), _MAX_PATH)),
                    str(row.process),
                    f"{row.count:,}",
                    _ms(row.total_ns, unit=""),
                ]
            )
            for row in capture.ranges[:top]
        ]
        lines += ["", *_rest(len(capture.ranges) - top, "range")]
    return "\n".join(lines).rstrip() + "\n"


def _place_cells(place: Place) -> list[str]:
    first = place.first
    return [
        _code(_path(first.range, _MAX_TEXT) or NO_RANGE),
        first.kind,
        _code(_short(" + ".join(filter(None, [first.copy_api, first.api])))),
        "" if place.bytes is None else _memory(first.pageable),
        "" if place.bytes is None else f"{place.bytes:,}",
        str(place.count),
        _ms(place.blocked_ns, unit=""),
        _ms(place.copy_ns, unit=""),
        _ms(place.device_idle_ns, unit=""),
        _code(_short(first.site)) if first.site else "",
    ]


def _row_cells(row: CapturedSync) -> list[str]:
    return [
        str(row.process),
        "" if row.thread is None else str(row.thread),
        "" if row.device is None else str(row.device),
        _code(_path(row.range, _MAX_TEXT) or NO_RANGE),
        row.kind,
        str(row.count),
        _ms(row.blocked_ns, unit=""),
        _ms(row.device_idle_ns, unit=""),
    ]


def _table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _code(text: str) -> str:
    """``text`` as a code span, whatever backticks it has."""
    fence = "`"
    while fence in text:
        fence += "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _plain(text: str) -> str:
    """``text`` as Markdown that shows it as it is."""
    return "".join(f"&#{ord(char)};" if char in "\\`*_[]<>&|#@~" else char for char in text)


def _path(path: Sequence[RangeName], longest: int | None = None) -> str:
    return " > ".join(name.text if longest is None else _short(name.text, longest) for name in path)


def _short(text: str, longest: int = _MAX_TEXT) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _ms(ns: int | None, unit: str = " ms") -> str:
    """``324.5 ms``, ``0.44 ms``."""
    if ns is None:
        return "unknown" if unit else ""
    return f"{ns / 1e6:,.{1 if abs(ns) >= 100_000_000 else 2}f}{unit}"


def _plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _csv_cell(value: Any) -> Any:
    """Spreadsheets take text that begins so for a formula; a quote before it makes it text again."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _fields(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def _with_texts(row: CapturedSync | CapturedCopy) -> dict[str, Any]:
    return {**_fields(row), "range": [name.text for name in row.range]}
