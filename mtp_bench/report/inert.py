"""Text of unknown origin made inert: what a terminal, a browser or an editor would obey is shown instead."""

from __future__ import annotations

import unicodedata

# Marks, embeddings, overrides and isolates that reorder the text around them (Unicode Standard Annex 9).
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, lone surrogates, line separators


def inert(text: str, limit: int | None = None) -> str:
    """``text`` on one line of at most ``limit`` characters, what is not for reading as ``\\x1b`` and ``\\u202e``.

    Letters of right-to-left scripts stay; only the characters that reorder their surroundings are shown as escapes.
    """
    shown = "".join(map(_visible, " ".join(text.split())))
    if limit is None or len(shown) <= limit:
        return shown
    return f"{shown[: max(0, limit - 3)]}..."


def _visible(character: str) -> str:
    if character in _BIDI or unicodedata.category(character) in _HIDDEN_CATEGORIES:
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    return character
