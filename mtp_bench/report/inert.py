"""Text of unknown origin made inert: what a terminal, a browser or an editor would obey is shown instead."""

from __future__ import annotations

import unicodedata

# Control characters, lone surrogates, line and paragraph separators, private use and unassigned, and what is not seen:
# marks that reorder the text around them (Unicode Standard Annex 9), zero-width characters, tags.
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
# Persian, Indic scripts and emoji need the joiners; the signs of Arabic and Syriac stand before numbers and are seen.
_NEEDED = frozenset("\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2")
_WORD, _WHOLE = 160, 4_000


def inert(text: str, limit: int | None = None) -> str:
    """``text`` on one line of at most ``limit`` characters, what is not for reading as ``\\x1b`` and ``\\u202e``.

    Letters of right-to-left scripts stay; only the characters that reorder their surroundings are shown as escapes.
    """
    shown = "".join(map(_visible, " ".join(text.split())))
    if limit is None or len(shown) <= limit:
        return shown
    return f"{shown[: max(0, limit - 3)]}..."


def shortened(text: str, limit: int = _WHOLE) -> str:
    """``text`` inert, no word longer than 160 characters and the whole not much longer than ``limit``.

    What is left out is said with its number, so that one very long name hides neither itself nor what stands after it.
    """
    shown = " ".join(_clipped(word, _WORD) for word in inert(text).split(" "))
    return _clipped(shown, limit)


def _clipped(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}...({len(text) - limit:,} more characters)"


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN_CATEGORIES or character in _NEEDED:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x1_0000 else f"\\U{code:08x}"
