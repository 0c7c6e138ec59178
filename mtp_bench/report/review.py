"""Markdown that can stand in a review: people's text without effect, and sections cut on purpose to a length.

GitHub refuses the body of a pull request above 65,536 characters, and a comment above as many of four bytes; it counts
code points, and what is pasted into a browser arrives with two characters a line end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mtp_bench.report.columns import Column
from mtp_bench.report.inert import shortened
from mtp_bench.report.words import plural

LIMIT = 60_000  # leaves room for what people write above it
_LONGEST = 1_000  # characters of one text

_AROUND = re.compile(r"([(\"']*)(.*?)([,.;:)\"']*)", re.S)
_NUMBER = re.compile(r"\[?<?[+-]?\d[\d.,]*\]?[,;.:)]*")
# Nothing of ASCII that Markdown gives a meaning inside a line; at its start, what would make a list or a heading of it;
# and what GitHub makes a link or a picture of.
_PLAIN = re.compile(r"[^\x00-\x20*_`\[\]<>#@|~\\&$^{}!]+|>")
_BEGINS_BLOCK = re.compile(r"[-+=>]+|\d{1,9}[.)]")
_LINKED = re.compile(r"://|www\.|mailto:|xmpp:|:[\w+-]*[a-z][\w+-]*:|[0-9a-f]{7}|[A-Z]{2,}-\d", re.I)


def prose(text: str) -> str:
    """``text`` as a line of Markdown that shows it as it is: what Markdown or GitHub would act on stands in code spans.

    GitHub links mentions, issues, commits and addresses after Markdown is done with a text, so that escapes do not
    stop it; inside code it leaves them alone.
    """
    first, *others = shortened(text, _LONGEST).split(" ")
    return " ".join([code(first) if _BEGINS_BLOCK.fullmatch(first) else _word(first), *map(_word, others)])


def inline(text: str) -> str:
    """:func:`prose` for the middle of a line, where nothing begins a block."""
    return " ".join(map(_word, shortened(text, _LONGEST).split(" ")))


def code(text: str) -> str:
    """``text`` as a code span; "" where it is empty."""
    shown = shortened(text, _LONGEST)
    return f"`{shown}`" if shown and "`" not in shown else _element(shown)


def fence(lines: Sequence[str]) -> str:
    """A fence that none of ``lines`` closes."""
    return "`" * max(3, 1 + max((len(run) for line in lines for run in re.findall("`+", line)), default=0))


def length(text: str) -> int:
    """What GitHub counts, at the most: code points, and a line end as two."""
    return len(text) + text.count("\n")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report: ``items``, each some lines, may be left out from the end, each as a whole.

    ``head`` and ``tail`` stand around them: the head of a table, the fences of a picture. ``title`` is always shown.
    ``summary``: the section is folded under it. Space goes to the sections with the lowest ``rank`` first.
    """

    title: Sequence[str] = ()
    head: Sequence[str] = ()
    items: Sequence[Sequence[str]] = ()
    tail: Sequence[str] = ()
    summary: str = ""
    noun: str = "line"
    rank: int = 0

    def lines(self, kept: int, whole: str) -> Iterator[str]:
        """The section with its first ``kept`` items; ``whole`` says where all of them are."""
        if self.summary:
            yield from (f"<details><summary>{self.summary}</summary>", "")
        yield from self.title
        if kept:
            yield from (*self.head, *(line for item in self.items[:kept] for line in item), *self.tail)
        if kept < len(self.items):
            left = f"{len(self.items) - kept:,} of {plural(len(self.items), self.noun)}"
            yield from ([""] if kept else [])
            yield f"{left} left out here to fit a review; {whole}."
        yield ""
        if self.summary:
            yield from ("</details>", "")

    def fit(self, room: int, whole: str) -> tuple[int, int]:
        """How many items fit, and how much more than none of them they take."""
        least = self._length(0, whole)
        if (all_of_it := self._length(len(self.items), whole) - least) <= room:
            return len(self.items), all_of_it
        kept, used = 0, self._length(1, whole) - least - _length(self.items[0])
        for item in self.items:
            if used + _length(item) > room:
                break
            kept, used = kept + 1, used + _length(item)
        return (kept, used) if kept else (0, 0)

    def _length(self, kept: int, whole: str) -> int:
        return _length(self.lines(kept, whole))


def fitted(sections: Sequence[Section], whole: str, limit: int = LIMIT) -> str:
    """The sections in their order, with as many items of each as ``limit`` allows."""
    room = limit - sum(_length(section.lines(0, whole)) for section in sections)
    kept = [0] * len(sections)
    for index in sorted(range(len(sections)), key=lambda index: sections[index].rank):
        kept[index], used = sections[index].fit(room, whole)
        room -= used
    lines = (line for section, count in zip(sections, kept, strict=True) for line in section.lines(count, whole))
    return "\n".join(lines).rstrip("\n") + "\n"


def bullets(
    texts: Iterable[str], title: str = "", summary: str = "", noun: str = "line", rank: int = 0
) -> list[Section]:
    """A section of a list of ``texts`` of anyone; none where there is nothing to list."""
    items = [[f"- {prose(text)}"] for text in texts]
    heading = [title, ""] if title else []
    return [Section(heading, items=items, summary=summary, noun=noun, rank=rank)] if items else []


def table(columns: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    """The head of a table and its rows; the first column holds names."""
    titles = [" ".join(column.title.split()) for column in columns]
    head = [_row(titles), f"|{'|'.join('---:' if column.number else '---' for column in columns)}|"]
    rows = zip(*(column.cells for column in columns), strict=True)
    return head, [[_row([_cell(name, code), *(_cell(cell, inline) for cell in cells)])] for name, *cells in rows]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str, as_: Callable[[str], str]) -> str:
    """A table ends a cell at every pipe, also in a code span."""
    shown = as_(text)
    return _element(shortened(text, _LONGEST)) if "|" in shown else shown


def _element(text: str) -> str:
    """A code element, in which no character has a meaning left."""
    inside = "".join(c if c.isalnum() or c == " " or not c.isascii() else f"&#{ord(c)};" for c in text)
    return f"<code>{inside}</code>" if text else ""


def _length(lines: Iterable[str]) -> int:
    """Of lines with their ends."""
    return sum(len(line) + 2 for line in lines)


def _word(word: str) -> str:
    if _NUMBER.fullmatch(word) or (_PLAIN.fullmatch(word) and not _LINKED.search(word)):
        return word
    before, inside, after = _AROUND.fullmatch(word).groups()  # type: ignore[union-attr]  # it matches everything
    return f"{before}{code(inside)}{after}" if inside else code(word)
