"""NVTX ranges around moments: push/pop ranges of the thread, start/end ranges of the process, outermost first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from mtp_bench.nsight.calls import PROCESS, process_of
from mtp_bench.nsight.model import CapturedRange, RangeName
from mtp_bench.nsight.sqlite import NVTX, STRINGS, Export
from mtp_bench.nsight.text import printable, range_text
from mtp_bench.ranges import DOMAIN

Moment = tuple[int, int]
"""A thread (globalTid) and a time in nanoseconds."""

Path = tuple[RangeName, ...]

# eventType: push/pop and start/end ranges, as NVTX gives them and as read from a text file; a domain is created.
_PUSH_POP, _START_END, _DOMAIN_CREATED = "(59, 70)", "(60, 71)", 75
_STILL_OPEN = 2**63 - 1  # the end of a range that the capture does not see end


class Range:
    """One range. ``thread`` is the one that opened it."""

    __slots__ = ("end", "name", "start", "thread")

    def __init__(self, thread: int, start: int, end: int, name: RangeName) -> None:
        self.thread, self.start, self.end, self.name = thread, start, end, name


class _Span(NamedTuple):
    """While a range is around what a thread does; ``since`` is later than its start where another thread opened it."""

    since: int
    start: int
    until: int
    range: Range


class Ranges:
    """The ranges of a capture that hold a moment of interest, and all those of mtp-bench's own domain."""

    def __init__(self, export: Export, moments: Iterable[Moment]) -> None:
        self.recorded = export.has(NVTX, "start", "end", "eventType", "globalTid")
        self._nested: dict[int, list[_Span]] = defaultdict(list)
        self._process_wide: dict[int, list[_Span]] = defaultdict(list)
        if self.recorded:
            self._read(_Reader(export), export, list(moments))

    def _read(self, reader: _Reader, export: Export, moments: list[Moment]) -> None:
        export.fill("process_moment", "process, at", ((process_of(thread), at) for thread, at in moments))
        for found in reader.process_wide():
            self._process_wide[process_of(found.thread)].append(_whole(found))
        # What is around the opening of a process-wide range is around the threads that work inside it too.
        openings = [(span.range.thread, span.start) for spans in self._process_wide.values() for span in spans]
        export.fill("moment", "thread, at", [*moments, *openings])
        for found in reader.nested():
            self._nested[found.thread].append(_whole(found))
        for spans in (*self._nested.values(), *self._process_wide.values()):
            spans.sort(key=_by_start)

    def paths(self, moments: Iterable[Moment]) -> dict[Moment, Path]:
        """The path of each moment, outermost range first."""
        times: dict[int, list[int]] = defaultdict(list)
        for thread, at in moments:
            times[thread].append(at)
        known: dict[Path, Path] = {}
        found = {}
        for thread, ats in times.items():
            for at, stack in _stacks(self._around(thread), ats):
                names = tuple(span.range.name for span in stack)
                found[thread, at] = known.setdefault(names, names)
        return found

    def own(self) -> tuple[CapturedRange, ...]:
        """The ranges of mtp-bench's own domain, by their path in it, in the order in which the paths first opened."""
        mine: dict[int, dict[int, list[Range]]] = defaultdict(lambda: defaultdict(list))
        for spans in (*self._nested.values(), *self._process_wide.values()):
            for span in spans:
                if span.range.name.domain == DOMAIN:
                    mine[span.range.thread][span.start].append(span.range)
        opened: list[tuple[int, int, tuple[str, ...], int]] = []
        for thread, by_start in mine.items():
            for at, stack in _stacks(self._around(thread), list(by_start)):
                own = [span.range for span in stack if span.range.name.domain == DOMAIN]
                for found in by_start[at]:
                    path = tuple(around.name.text for around in own[: own.index(found) + 1])
                    opened.append((at, process_of(thread), path, found.end - found.start))
        durations: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
        for _, process, path, ns in sorted(opened):
            durations[process, path].append(ns)
        return tuple(CapturedRange(process, path, len(ns), sum(ns)) for (process, path), ns in durations.items())

    def _around(self, thread: int) -> list[_Span]:
        """Whatever may be around a moment of ``thread``, in the order in which it comes to be.

        A thread that had no range of its own open when another thread opened a process-wide range works for that one
        (autograd's threads do): what was around the opening is around this thread too, while both are open.
        """
        nested, process_wide = self._nested.get(thread, []), self._process_wide.get(process_of(thread), [])
        foreign = [span for span in process_wide if span.range.thread != thread]
        busy = {at for at, stack in _stacks(nested, [span.start for span in foreign]) if stack}
        inherited = self._around_openings([span for span in foreign if span.start not in busy])
        return sorted([*nested, *process_wide, *inherited], key=_by_start)

    def _around_openings(self, process_wide: Sequence[_Span]) -> Iterator[_Span]:
        openings: dict[int, list[_Span]] = defaultdict(list)
        for opened in process_wide:
            openings[opened.range.thread].append(opened)
        for thread, spans in openings.items():
            stacks = dict(_stacks(self._nested.get(thread, []), [opened.start for opened in spans]))
            for opened in spans:
                for around in stacks[opened.start]:
                    yield around._replace(since=opened.start, until=min(around.until, opened.until))


class _Reader:
    """The table of NVTX events, narrowed to the ranges that hold one of the moments put into temporary tables."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._domain = export.column(NVTX, "domainId", "0")
        value = f"(SELECT value FROM {STRINGS} WHERE id = textId)" if export.has(STRINGS, "id", "value") else "NULL"
        texts = [export.column(NVTX, "text"), value if export.column(NVTX, "textId") != "NULL" else "NULL"]
        self._text = f"CAST(coalesce({', '.join(texts)}, '') AS TEXT)"
        self._names: dict[tuple[str, str], RangeName] = {}
        self._domains = {
            (process, domain): printable(text)
            for process, domain, text in export.rows(
                f"SELECT {PROCESS.format('globalTid')}, {self._domain}, {self._text} FROM {NVTX} "
                f"WHERE eventType = {_DOMAIN_CREATED}"
            )
        }

    def process_wide(self) -> Iterator[Range]:
        """Start/end ranges."""
        holds = self._holds("process_moment", "process", PROCESS.format("globalTid"))
        return self._ranges(_START_END, holds)

    def nested(self) -> Iterator[Range]:
        """Push/pop ranges."""
        return self._ranges(_PUSH_POP, self._holds("moment", "thread", "globalTid"))

    def _holds(self, table: str, key: str, value: str) -> str:
        return (
            f"(SELECT at FROM {table} WHERE {key} = {value} AND at >= start ORDER BY at LIMIT 1) < "
            f'coalesce("end", {_STILL_OPEN})'
        )

    def _ranges(self, event_types: str, holds: str) -> Iterator[Range]:
        own = {domain for (_, domain), text in self._domains.items() if text == DOMAIN}
        of_own = f"{self._domain} IN ({', '.join(map(str, own))})" if own else "0"
        rows = self._export.rows(
            f'SELECT CAST(globalTid AS INTEGER), CAST(start AS INTEGER), CAST("end" AS INTEGER), '
            f"CAST(coalesce({self._domain}, 0) AS INTEGER), {self._text} FROM {NVTX} "
            f"WHERE eventType IN {event_types} AND globalTid IS NOT NULL AND ({of_own} OR {holds})"
        )
        for thread, start, end, domain, text in rows:
            yield Range(
                thread, start, _STILL_OPEN if end is None else end, self._name(process_of(thread), domain, text)
            )

    def _name(self, process: int, domain: int, text: str) -> RangeName:
        if domain == 0:
            key = ("", range_text(text))
        else:
            key = (self._domains.get((process, domain), f"domain {domain}"), printable(text))
        return self._names.setdefault(key, RangeName(*key))


def _whole(found: Range) -> _Span:
    return _Span(found.start, found.start, max(found.end, found.start + 1), found)


def _by_start(span: _Span) -> tuple[int, int, int]:
    return (span.since, span.start, -span.until)


def _stacks(spans: Sequence[_Span], times: Iterable[int]) -> Iterator[tuple[int, list[_Span]]]:
    """For each of ``times``, in order and once, the ``spans`` that hold it; both are walked once."""
    stack: list[_Span] = []
    position = 0
    for at in sorted(set(times)):
        while position < len(spans) and spans[position].since <= at:
            if spans[position].until > at:
                stack.append(spans[position])
            position += 1
        stack = [span for span in stack if span.until > at]
        yield at, _once(stack)


def _once(stack: list[_Span]) -> list[_Span]:
    """``stack`` without what several process-wide ranges brought in."""
    seen: dict[int, _Span] = {}
    for span in stack:
        seen.setdefault(id(span.range), span)
    return list(seen.values())
