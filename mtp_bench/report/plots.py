"""Pictures made of characters, for the terminal and for Markdown: ratios with intervals, samples in run order.

Pictures are lines of at most ``width`` columns, each with the word that decides its colour: a verdict, a style, "".
"""

from __future__ import annotations

import itertools
import statistics
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.cells import cell_len, chop_cells, set_cell_size

from mtp_bench.report.comparison_view import ForestEntry, SampleLane
from mtp_bench.report.inert import shortened
from mtp_bench.report.words import microseconds

_LABEL = 24  # a longer name has a line of its own
_LEAST_PLOT = 16
Line = tuple[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a picture."""

    measured: str
    modelled: str
    left: str
    line: str
    right: str
    one: str
    within: str
    levels: str
    throttled: str
    calm: str


UNICODE = Glyphs("●", "○", "├", "─", "┤", "│", "·", "▁▂▃▄▅▆▇█", "!", "·")
ASCII = Glyphs("*", "o", "[", "-", "]", "|", ".", "0123456789", "!", ".")


def forest(entries: Sequence[ForestEntry], width: int, glyphs: Glyphs) -> Iterator[Line]:
    """One line an entry, all on one scale, then the scale and the legend; nothing where no entry has a ratio."""
    known = [entry for entry in entries if entry.ratio is not None]
    if not known:
        return
    low, high = _domain(known)
    digits = 3 if high - low > 0.02 else 4 if high - low > 0.002 else 5
    texts = [_ratio(entry, digits) for entry in entries]
    names = [shortened(entry.label) for entry in entries]
    rows = _Rows(names, max(map(len, texts)), width)
    scale = _Scale(low, high, rows.plot)
    for group, of_group in _by_group(list(zip(entries, names, texts, strict=True)), lambda found: found[0].group):
        yield from rows.title(group)
        for entry, name, text in of_group:
            yield from rows.row(name, _forest_row(entry, scale, glyphs), text, entry.verdict)
    yield from rows.row("", _axis(scale, digits), "", "")
    measured = f"{glyphs.measured} measured, {glyphs.left}{glyphs.line}{glyphs.right} its 98 % interval"
    marks = [
        measured if any(not entry.modelled for entry in known) else "",
        f"{glyphs.modelled} modelled" if any(entry.modelled for entry in known) else "",
        f"{glyphs.one} the baseline",
        f"{glyphs.within} within the threshold",
    ]
    yield from rows.remark(", ".join(filter(None, marks)))


def run_order(lanes: Sequence[SampleLane], width: int, glyphs: Glyphs) -> Iterator[Line]:
    """The windows of every lane, its SM clock where that is known, and which windows were throttled."""
    if not lanes:
        return
    tracks = [track for lane in lanes for track in _tracks(lane, 1, glyphs)]
    rows = _Rows([name for name, *_ in tracks], max(len(text) for _, _, text, _ in tracks), width)
    size = -(-max(len(lane.step_ns) for lane in lanes) // rows.plot)
    for group, of_group in _by_group(lanes, lambda lane: lane.group):
        yield from rows.title(group)
        for lane in of_group:
            for track in _tracks(lane, size, glyphs):
                yield from rows.row(*track)
    mark = "a window" if size == 1 else f"the median of {size} windows"
    levels = f"{glyphs.levels[0]} the lowest and {glyphs.levels[-1]} the highest of its row"
    hot_mark = f", {glyphs.throttled} throttled" if any(any(lane.throttled) for lane in lanes) else ""
    yield from rows.remark(f"each mark is {mark}, in the order measured: {levels}{hot_mark}")


class _Rows:
    """Lines of a name, a picture and a number; a name that is too long for its column has lines of its own."""

    def __init__(self, names: Sequence[str], text: int, width: int) -> None:
        self._width = width
        self._label = min(max(map(cell_len, names)), _LABEL, max(0, width - _LEAST_PLOT // 2)) + 1
        self._beside = self._label + _LEAST_PLOT + 2 + text <= width  # else the number has a line of its own
        self.plot = max(1, width - self._label - (text + 2 if self._beside else 0))

    def title(self, name: str) -> Iterator[Line]:
        yield from ((line, "bold") for line in chop_cells(shortened(name), self._width))

    def remark(self, text: str) -> Iterator[Line]:
        yield from ((line, "dim") for line in textwrap.wrap(text, self._width))

    def row(self, name: str, picture: str, text: str, colour: str) -> Iterator[Line]:
        if cell_len(name) >= self._label:
            yield from ((line, "") for line in chop_cells(name, self._width))
            name = ""
        start = set_cell_size(name, self._label)
        if self._beside:
            yield f"{start}{set_cell_size(picture, self.plot)}  {text}".rstrip(), colour
            return
        yield f"{start}{picture}".rstrip(), colour
        if text:
            yield from ((line, colour) for line in chop_cells(f"  {text}", self._width))


class _Scale:
    """Columns 0 to ``width - 1`` for values from ``low`` to ``high``."""

    def __init__(self, low: float, high: float, width: int) -> None:
        self.low, self.high, self.width = low, high, width

    def at(self, value: float) -> int:
        """The column of a value; of one outside, the nearest."""
        if self.high <= self.low:
            return self.width // 2
        return max(0, min(self.width - 1, round((value - self.low) / (self.high - self.low) * (self.width - 1))))


def _by_group(items: Sequence[T], key: Callable[[T], str]) -> Iterator[tuple[str, list[T]]]:
    """Neighbours with one key together."""
    for group, found in itertools.groupby(items, key):
        yield group, list(found)


def _tracks(lane: SampleLane, size: int, glyphs: Glyphs) -> Iterator[tuple[str, str, str, str]]:
    """Name, marks, text and colour of what there is to show of a lane, ``size`` windows a mark."""
    steps = [statistics.median(part) for part in _parts(lane.step_ns, size)]
    least, most = min(lane.step_ns), max(lane.step_ns)
    yield shortened(lane.label), _levels(steps, glyphs), f"{microseconds(least)} to {microseconds(most)} us", ""
    if lane.clock_range_mhz:
        known = [[mhz for mhz in part if mhz is not None] for part in _parts(lane.clock_mhz, size)]
        clocks = [statistics.median(part) if part else None for part in known]
        slowest, fastest = lane.clock_range_mhz
        told = f"{slowest:,} MHz" if slowest == fastest else f"{slowest:,} to {fastest:,} MHz"
        yield "  SM clock", _levels(clocks, glyphs), told, ""
    if any(lane.throttled):
        hot = [glyphs.throttled if any(part) else glyphs.calm for part in _parts(lane.throttled, size)]
        yield "  throttled", "".join(hot), f"{sum(lane.throttled)} of {len(lane.throttled)} windows", "red"


def _domain(entries: Sequence[ForestEntry]) -> tuple[float, float]:
    """From the lowest to the highest end, with 1 and with thresholds that do not dwarf what they are for."""
    ends = [1.0, *(end for e in entries for end in (e.ratio, e.low, e.high) if end is not None)]
    far = max(abs(end - 1) for end in ends)
    reach = max((e.threshold for e in entries if far == 0 or e.threshold <= 2 * far), default=0.0)
    return min(*ends, 1 - reach), max(*ends, 1 + reach)


def _ratio(entry: ForestEntry, digits: int) -> str:
    if entry.ratio is None:
        return entry.verdict
    if entry.low is None or entry.high is None:
        return f"{entry.ratio:.{digits}f}{' modelled' if entry.modelled else ''}"
    return f"{entry.ratio:.{digits}f} [{entry.low:.{digits}f}, {entry.high:.{digits}f}]"


def _forest_row(entry: ForestEntry, scale: _Scale, glyphs: Glyphs) -> str:
    cells = [" "] * scale.width
    if entry.ratio is None:
        cells[scale.at(1)] = glyphs.one
        return "".join(cells)
    for column in range(scale.at(1 - entry.threshold), scale.at(1 + entry.threshold) + 1):
        cells[column] = glyphs.within
    cells[scale.at(1)] = glyphs.one
    if entry.low is not None and entry.high is not None:
        left, right = scale.at(entry.low), scale.at(entry.high)
        cells[left : right + 1] = glyphs.line * (right + 1 - left)
        cells[left], cells[right] = glyphs.left, glyphs.right
    cells[scale.at(entry.ratio)] = glyphs.modelled if entry.modelled else glyphs.measured
    return "".join(cells)


def _axis(scale: _Scale, digits: int) -> str:
    """The ends of the scale and 1 in their columns, where they do not run into each other."""
    cells = [" "] * scale.width
    low, high = f"{scale.low:.{digits}f}", f"{scale.high:.{digits}f}"
    for text, start in ((low, 0), (high, scale.width - len(high)), ("1", scale.at(1))):
        around = cells[max(0, start - 1) : start + len(text) + 1]
        if start >= 0 and start + len(text) <= scale.width and all(cell == " " for cell in around):
            cells[start : start + len(text)] = text
    return "".join(cells)


def _parts(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _levels(values: Sequence[float | None], glyphs: Glyphs) -> str:
    """A mark a value, higher for a higher one; the middle one where all are the same."""
    known = [value for value in values if value is not None]
    low, high = min(known), max(known)
    top = len(glyphs.levels) - 1
    return "".join(
        " " if value is None else glyphs.levels[round((value - low) / (high - low) * top) if high > low else top // 2]
        for value in values
    )
