"""How the terminal's report is laid out: prose that wraps on a terminal only, and no blanks at the ends of lines."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text


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
