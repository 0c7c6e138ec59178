"""Reports as they are read: what a terminal shows, and what a renderer makes of Markdown."""

from __future__ import annotations

import io
import re
import unicodedata

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console

from mtp_bench.compare import Comparison, compare

HOSTILE = [
    "[red]x[/red]",
    "[/] [link=http://x.org]y[/link]",
    "a|b",
    "a\\|b",
    "`a` ``b",
    "a`|b",
    "```",
    "~~~ a",
    "<script>alert(1)</script>",
    "</details>",
    "</summary></code>",
    "<!-- a",
    "&lt;b&gt; &#64;a",
    "one\ntwo\r\n# three",
    "# one",
    "1. one",
    "- one",
    "+ one",
    "> one",
    "---",
    "a\n===",
    "    one",
    "|a|\n|---|",
    "\x1b[31mred\x1b[0m\x07\x9b1m",
    "abc\u202edcba\u2066",
    "a\u200bb\ufeff",
    "\u05e9\u05dc\u05d5\u05dd",
    "\ud800",
    "\x00",
    "@octocat and cc:@octo/team",
    "#123 GH-7 a/b#7",
    "commit deadbeefdeadbeef",
    "http://example.com www.example.com a@example.com",
    "[x](javascript:alert(1))",
    "[x]: http://example.com",
    "[^1]: a",
    "[x] done",
    "![x](http://example.com/a.png)",
    ":smile: $x$ **b** _i_ ~~s~~ __b__",
    "\\",
    '"\' onload="x',
    "x" * 10_000,
    "two words " * 3_000,
]


def compared(*sides, **options) -> Comparison:
    """Sides of one run each, called a, b, c."""
    labels = "abcdefgh"
    return compare([(label, [(label, run)]) for label, run in zip(labels, sides, strict=False)], **options)


def text_of(renderable, width=80, terminal=True, encoding="utf-8") -> str:
    """What a terminal shows, or what a pipe gets."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n", write_through=True)
    Console(file=out, width=width, highlight=False, force_terminal=terminal, color_system=None).print(
        renderable, crop=False
    )
    return out.buffer.getvalue().decode(encoding)


def words(text: str) -> str:
    """A report without what its width decides."""
    return " ".join(text.split())


def unseen(text: str) -> set[str]:
    """Characters other than line ends that are not for reading, those that scripts need apart."""
    hidden = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")}
    return hidden - {"\n", "\u200c", "\u200d"}


def parsed(markdown: str) -> list[Token]:
    """The tokens of a report, those inside lines too."""
    tokens = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown):
        tokens += [token, *(token.children or [])]
    return tokens


def live_text(markdown: str) -> str:
    """The text that GitHub looks through for mentions, issues and addresses: all that is not code."""
    text, inside = [], False
    for token in parsed(markdown):
        if token.type == "html_inline" and token.content in ("<code>", "</code>"):
            inside = token.content == "<code>"
        elif token.type in ("text", "text_special") and not inside:
            text.append(token.content)
        elif token.type in ("code_inline", "paragraph_close", "softbreak", "td_close"):
            text.append(" ")
    return "".join(text)


def shown_text(markdown: str) -> str:
    """All text, code too, on one line."""
    shown = [
        token.content
        for token in parsed(markdown)
        if token.type in ("text", "text_special", "code_inline", "fence", "softbreak")
    ]
    return re.sub(r"\s+", " ", "".join(shown))


def tables(markdown: str) -> list[list[str]]:
    """The lines of every table, its head first."""
    found: list[list[str]] = [[]]
    fence = ""
    for line in markdown.splitlines():
        marks = re.match(r"`{3,}", line)
        if marks and (not fence or line == fence):
            fence = "" if fence else marks[0]
        if line.startswith("|") and not fence:
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [table for table in found if table]
