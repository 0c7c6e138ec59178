"""NVTX ranges around moments: push/pop ranges of the thread, start/end ranges of the process, outermost first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from mtp_bench.nsight.calls import Call, process_of
from mtp_bench.nsight.model import CapturedRange, RangeName
from mtp_bench.nsight.records import PROCESS
from mtp_bench.nsight.sqlite import NVTX, STRINGS, Export
from mtp_bench.nsight.text import decoded, operator_name, printable
from mtp_bench.ranges import DOMAIN

Moment = tuple[int, int]
"""A thread (globalTid) and a time in nanoseconds."""

Path = tuple[RangeName, ...]

# eventType: push/pop and start/end ranges, as NVTX gives them and as read from a text file; a domain is created.
_PUSH_POP, _START_END, _DOMAIN_CREATED = "(59, 70)", "(60, 71)", 75
_STILL_OPEN = 2**63 - 1  # the end of a range that the capture does not see end


class Span(NamedTuple):
    """While a range is around what a thread does.

    ``since`` is later than its ``start`` where another thread (``thread``) opened it.
    """

    since: int
    start: int
    until: int
    thread: int
    name: RangeName

    @property
    def inherited(self) -> bool:
        """Whether another thread opened it, and a process-wide range brought it in."""
        return self.since != self.start


class Ranges:
    """The ranges of a capture that hold a moment of interest, and all those of mtp-bench's own domain."""

    def __init__(self, export: Export, moments: Iterable[Moment]) -> None:
        self.recorded = export.has(NVTX, "start", "end", "eventType", "globalTid")
        self._nested: dict[int, list[Span]] = defaultdict(list)
        self._process_wide: dict[int, list[Span]] = defaultdict(list)
        if self.recorded:
            self._read(_Reader(export), export, moments)

    def _read(self, reader: _Reader, export: Export, moments: Iterable[Moment]) -> None:
        export.fill("moment", "thread, at", moments)
        export.fill_from("process_moment", "process, at", f"SELECT {PROCESS.format('thread')}, at FROM moment")
        for span in reader.process_wide():
            self._process_wide[process_of(span.thread)].append(span)
        # What is around the opening of a process-wide range is around the threads that work inside it too.
        openings = [(span.thread, span.start) for spans in self._process_wide.values() for span in spans]
        export.add("moment", "thread, at", openings)
        export.fill_from("moment_time", "at", "SELECT at FROM moment")
        for span in reader.nested():
            self._nested[span.thread].append(span)
        for spans in (*self._nested.values(), *self._process_wide.values()):
            spans.sort(key=_by_start)

    def place(self, calls: Iterable[Call]) -> None:
        """Give each call its path: the ranges around its start, outermost first."""
        by_thread: dict[int, list[Call]] = defaultdict(list)
        for call in calls:
            by_thread[call.thread].append(call)
        known: dict[Path, Path] = {}
        for thread, its_calls in by_thread.items():
            paths = self._paths(thread, (call.start for call in its_calls), known)
            its_calls.sort(key=lambda call: call.start)
            for (_, path), together in zip(paths, groupby(its_calls, key=lambda call: call.start), strict=True):
                for call in together[1]:
                    call.path = path

    def paths(self, moments: Iterable[Moment]) -> dict[Moment, Path]:
        """The path of each moment, outermost range first."""
        times: dict[int, list[int]] = defaultdict(list)
        for thread, at in moments:
            times[thread].append(at)
        known: dict[Path, Path] = {}
        return {(thread, at): path for thread, ats in times.items() for at, path in self._paths(thread, ats, known)}

    def _paths(self, thread: int, times: Iterable[int], known: dict[Path, Path]) -> Iterator[tuple[int, Path]]:
        """The path of ``thread`` at each of ``times``, in order and once; paths that are the same are one object."""
        for at, stack in stacks(self._around(thread), times):
            path = tuple([span.name for span in stack])
            yield at, known.setdefault(path, path)

    def exists(self, export: Export, glob: str) -> bool:
        """Whether the capture has a range, around a call or not, that the last part of a path's pattern may mean."""
        return self.recorded and _Reader(export).has_text(glob.rpartition(" > ")[2])

    def own(self) -> tuple[CapturedRange, ...]:
        """The ranges of mtp-bench's own domain, by their path in it, in the order in which the paths first opened."""
        mine: dict[int, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
        for spans in (*self._nested.values(), *self._process_wide.values()):
            for span in spans:
                if span.name.domain == DOMAIN:
                    mine[span.thread][span.start].append(span)
        opened: list[tuple[int, int, tuple[str, ...], int]] = []
        for thread, by_start in mine.items():
            for at, stack in stacks(self._around(thread), by_start):
                own = [span for span in stack if span.name.domain == DOMAIN]
                for found in by_start[at]:
                    path = tuple(span.name.text for span in own[: own.index(found) + 1])
                    ns = 0 if found.until == _STILL_OPEN else found.until - found.start
                    opened.append((at, process_of(thread), path, ns))
        durations: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
        for _, process, path, ns in sorted(opened):
            durations[process, path].append(ns)
        return tuple(CapturedRange(process, path, len(ns), sum(ns)) for (process, path), ns in durations.items())

    def _around(self, thread: int) -> list[Span]:
        """Whatever may be around a moment of ``thread``, in the order in which it comes to be.

        A thread that had no range of its own open when another thread opened a process-wide range works for that one
        (autograd's threads do): what was around the opening is around this thread too, while both are open.
        """
        nested, process_wide = self._nested.get(thread, []), self._process_wide.get(process_of(thread), [])
        foreign = [span for span in process_wide if span.thread != thread]
        busy = {at for at, stack in stacks(nested, [span.start for span in foreign]) if stack}
        inherited = self._around_openings([span for span in foreign if span.start not in busy])
        return sorted([*nested, *process_wide, *inherited], key=_by_start)

    def _around_openings(self, process_wide: Sequence[Span]) -> Iterator[Span]:
        openings: dict[int, list[Span]] = defaultdict(list)
        for opened in process_wide:
            openings[opened.thread].append(opened)
        for thread, spans in openings.items():
            around_opening = dict(stacks(self._nested.get(thread, []), [opened.start for opened in spans]))
            for opened in spans:
                for around in around_opening[opened.start]:
                    yield around._replace(since=opened.start, until=min(around.until, opened.until))


class _Reader:
    """The table of NVTX events, narrowed to the ranges that hold one of the moments put into temporary tables."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._domain = export.column(NVTX, "domainId", "0")
        value = f"(SELECT value FROM {STRINGS} WHERE id = textId)" if export.has(STRINGS, "id", "value") else "NULL"
        texts = [export.column(NVTX, "text"), value if export.offers(NVTX, "textId") else "NULL"]
        self._text = f"CAST(coalesce({', '.join(texts)}, '') AS BLOB)"  # bytes are cheaper to cut than to decode
        self._names: dict[tuple[str, bytes], RangeName] = {}
        self._threads: dict[int, int] = {}
        self._domains: dict[tuple[int, int], str] = {}

    def has_text(self, glob: str) -> bool:
        """Whether any range's text is like a shell's pattern, which may name a domain after an ``@``."""
        globs = {glob, glob.rpartition("@")[0] or glob}
        globs = {pattern.replace("[!", "[^") for pattern in globs}  # as SQLite writes it
        globs |= {f"{pattern}, *" for pattern in globs}  # an operator with the numbers of the call
        text = f"CAST({self._text} AS TEXT)"
        like = " OR ".join(f"{text} GLOB ?" for _ in globs)
        found = self._export.rows(
            f"SELECT 1 FROM {NVTX} WHERE eventType IN {_PUSH_POP[:-1]}, {_START_END[1:]} AND ({like}) LIMIT 1",
            tuple(globs),
        )
        return next(found, None) is not None

    def process_wide(self) -> list[Span]:
        """Start/end ranges, of other domains than the default one all. Learns the names of domains on the way."""
        holds = _holds("process_moment", f"process = {PROCESS.format('globalTid')}")
        wanted = f"eventType IN {_START_END} AND ({self._domain} <> 0 OR {holds})"
        rows = list(self._rows(f"(eventType = {_DOMAIN_CREATED} OR {wanted}) AND globalTid IS NOT NULL"))
        for kind, thread, _, _, domain, text in rows:
            if kind == _DOMAIN_CREATED:
                self._domains[process_of(thread), domain] = printable(decoded(text))
        return [
            self._span(thread, start, until, domain, text)
            for kind, thread, start, until, domain, text in rows
            if kind != _DOMAIN_CREATED
        ]

    def nested(self) -> Iterator[Span]:
        """Push/pop ranges that hold a moment or are of mtp-bench's own domain."""
        own = ", ".join(str(domain) for (_, domain), text in self._domains.items() if text == DOMAIN)
        of_own = f"{self._domain} IN ({own}) AND globalTid IS NOT NULL" if own else "0"
        # Most ranges hold no moment of any thread, which is the quicker to find out.
        holds = f"{_holds('moment_time', 'true')} AND {_holds('moment', 'thread = globalTid')}"
        for _, thread, start, until, domain, text in self._rows(f"eventType IN {_PUSH_POP} AND ({of_own} OR {holds})"):
            yield self._span(thread, start, until, domain, text)

    def _rows(self, condition: str) -> Iterator[tuple[int, int, int, int, int, bytes]]:
        until = f'max(coalesce("end", {_STILL_OPEN}), start + 1)'
        return self._export.rows(
            f"SELECT eventType, CAST(globalTid AS INTEGER), CAST(start AS INTEGER), CAST({until} AS INTEGER), "
            f"CAST(coalesce({self._domain}, 0) AS INTEGER), {self._text} FROM {NVTX} WHERE {condition}"
        )

    def _span(self, thread: int, start: int, until: int, domain: int, text: bytes) -> Span:
        thread = self._threads.setdefault(thread, thread)  # one object a thread, not one a range
        return Span(start, start, until, thread, self._name(thread, domain, text))

    def _name(self, thread: int, domain: int, text: bytes) -> RangeName:
        if domain == 0:
            key = ("", operator_name(text))
        else:
            key = (self._domains.get((process_of(thread), domain), f"domain {domain}"), text)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = RangeName(key[0], printable(decoded(key[1])))
        return name


def _holds(moments: str, same: str) -> str:
    """Whether a range holds one of the ``moments``, in SQL."""
    return f'EXISTS (SELECT 1 FROM {moments} WHERE {same} AND at >= start AND at < coalesce("end", {_STILL_OPEN}))'


def _by_start(span: Span) -> tuple[int, int, int]:
    return (span.since, span.start, -span.until)


def stacks(spans: Sequence[Span], times: Iterable[int]) -> Iterator[tuple[int, list[Span]]]:
    """For each of ``times``, in order and once, the ``spans`` that hold it; both are walked once."""
    repeated = any(span.inherited for span in spans)  # several process-wide ranges bring in the same range
    stack: list[Span] = []
    position = 0
    for at in sorted(set(times)):
        stack = [span for span in stack if span.until > at]
        while position < len(spans) and spans[position].since <= at:
            if spans[position].until > at:
                stack.append(spans[position])
            position += 1
        yield at, _once(stack) if repeated else stack


def _once(stack: list[Span]) -> list[Span]:
    seen: dict[tuple[int, int, RangeName], Span] = {}
    for span in stack:
        seen.setdefault((span.thread, span.start, span.name), span)
    return list(seen.values())
