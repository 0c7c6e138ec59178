"""How the terminal's report is laid out: prose wraps on a terminal only, tables are whole, no line ends with blanks.

All text of people comes in as ``str`` and is made inert here; a ``Text`` is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from mtp_bench.report.inert import shortened
from mtp_bench.report.plots import ASCII, UNICODE, Glyphs

_NAME_WIDTH = 16  # boundary_roll and a blank or two
_UNBOUNDED = 10_000
_STYLES = {
    "nan": "bold red",
    "differs": "red",
    "failed": "bold red",
    "slower": "red",
    "faster": "green",
    "unclear": "yellow",
    "incomparable": "yellow",
}


def plain(value: str, style: str = "") -> Text:
    """Text of anyone, without what a terminal or rich would obey."""
    return Text(shortened(value), style=style)


def styled(word: str, also: str = "") -> Text:
    """A status or a verdict in its colour; ``also`` has the words that decide the colour where ``word`` does not."""
    return plain(word, _STYLES.get(also or word, ""))


def heading(text: str) -> Iterator[RenderableType]:
    """A blank line and a title."""
    yield Text("")
    yield Prose(plain(text, "bold underline"))


def new_table() -> Table:
    """A table without a frame."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="")


def number_columns(table: Table, headers: Iterable[str]) -> None:
    """Columns whose cells stand at the right."""
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)


def add_row(table: Table, cells: Iterable[str | Text]) -> None:
    """A row of a table, whose texts rich does not take for markup."""
    table.add_row(*(cell if isinstance(cell, Text) else plain(cell) for cell in cells))


class Prose:
    """Text with an indent. In a pipe it stays one line, so that a sentence can be found with grep."""

    def __init__(self, text: Text | str, indent: int = 0) -> None:
        self.text = plain(text) if isinstance(text, str) else text
        self.indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, options.max_width - self.indent)
        lines = self.text.wrap(console, width, overflow="fold") if console.is_terminal else [self.text]
        for line in lines:
            yield Text.assemble(" " * self.indent, line, overflow="ignore", no_wrap=True)


class TableOrBlocks:
    """A table; one block a row where the terminal is too narrow, so that no name and no number is ever cut.

    The first column names the row, and may fold to ``_NAME_WIDTH`` before the table is given up. ``title`` says above
    the blocks what a table has above its first column.
    """

    def __init__(self, table: Table, title: str = "") -> None:
        self.table = table
        self.title = title

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.fits(console, options):
            yield self.table
            return
        names, *others = ([_plain(cell) for cell in column.cells] for column in self.table.columns)
        titles = [" ".join(_plain(column.header).split()) for column in self.table.columns[1:]]
        if self.title:
            yield Prose(self.title)
        for name, *cells in zip(names, *others, strict=True):
            yield Prose(name)
            for title, cell in zip(titles, cells, strict=True):
                if cell:
                    yield Prose(f"{title}: {' '.join(cell.split())}", 2)

    def fits(self, console: Console, options: ConsoleOptions) -> bool:
        """Whether the table is shown as one."""
        whole = Measurement.get(console, options.update(width=_UNBOUNDED), self.table).maximum
        name = max((cell_len(_plain(cell)) for cell in self.table.columns[0].cells), default=0)
        return whole - max(0, name - _NAME_WIDTH) <= options.max_width


class OneOrSeveral:
    """One wide table where the terminal is wide enough for it, else several narrow ones with the same rows."""

    def __init__(self, one: TableOrBlocks, several: Sequence[TableOrBlocks]) -> None:
        self.one = one
        self.several = several

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.one.fits(console, options):
            yield self.one
            return
        for index, table in enumerate(self.several):
            if index:
                yield Text("")
            yield table


class Drawing:
    """Lines drawn for the width of the terminal and for the characters that its encoding has: (text, style) each."""

    def __init__(self, draw: Callable[[int, Glyphs], Iterable[tuple[str, str]]]) -> None:
        self.draw = draw

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line, word in self.draw(options.max_width, ASCII if options.ascii_only else UNICODE):
            yield Text(line, style=_STYLES.get(word, word), overflow="ignore", no_wrap=True)


def _plain(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


class WithoutTrailingBlanks:
    """Everything inside, with nothing but its own characters on a line. Print it with ``crop=False``.

    A character that the output's encoding lacks is shown as its escape.
    """

    def __init__(self, inside: RenderableType) -> None:
        self.inside = inside

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in Segment.split_lines(console.render(self.inside, options)):
            while line and not line[-1].text.rstrip():
                line.pop()
            if line:
                last = line.pop()
                line.append(Segment(last.text.rstrip(), last.style))
            for text, style, _ in line:
                yield Segment(text.encode(options.encoding, "backslashreplace").decode(options.encoding), style)
            yield Segment.line()
