"""How the terminal's report is laid out: prose wraps on a terminal only, tables are whole, no line ends with blanks."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

_NAME_WIDTH = 16  # boundary_roll and a blank or two
_UNBOUNDED = 10_000


class Prose:
    """Text with an indent. In a pipe it stays one line, so that a sentence can be found with grep."""

    def __init__(self, text: Text | str, indent: int = 0) -> None:
        self.text = Text(text) if isinstance(text, str) else text
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
        if self._needs(console, options) <= options.max_width:
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

    def _needs(self, console: Console, options: ConsoleOptions) -> int:
        whole = Measurement.get(console, options.update(width=_UNBOUNDED), self.table).maximum
        name = max((cell_len(_plain(cell)) for cell in self.table.columns[0].cells), default=0)
        return whole - max(0, name - _NAME_WIDTH)


def _plain(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


class WithoutTrailingBlanks:
    """Everything inside, with nothing but its own characters on a line. Print it with ``crop=False``."""

    def __init__(self, inside: RenderableType) -> None:
        self.inside = inside

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in Segment.split_lines(console.render(self.inside, options)):
            while line and not line[-1].text.rstrip():
                line.pop()
            if line:
                last = line.pop()
                line.append(Segment(last.text.rstrip(), last.style))
            yield from line
            yield Segment.line()
