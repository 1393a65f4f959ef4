"""Shorten a text to its beginning or its end, at a word, on one line."""

from __future__ import annotations

import re

# Line number of a file viewer and its separator; begins with a literal character, for speed.
_NUMBERED = re.compile(r"\n\s*\d+(?:→|\t|:(?=\s)|\|)")


def tidy(piece: str) -> str:
    """An excerpt on one line, without viewer line numbers and repeated blanks."""
    # Skip the regex where no line begins with a digit.
    if "\n" in piece or piece.lstrip()[:1].isdecimal():
        piece = _NUMBERED.sub(" ", f"\n{piece}")
    return " ".join(piece.split())


def ending(text: str, most: int) -> str:
    """The last words of the last paragraph."""
    piece = text.rstrip().rsplit("\n\n", 1)[-1]
    if len(piece) > most:
        at = len(piece) - most
        piece = piece[_at_word(piece, at, 0, len(piece)) :]
    return tidy(piece)


def beginning(text: str, most: int) -> str:
    """The first words of a text."""
    piece = text.lstrip()
    return tidy(piece[: _at_word_end(piece, most, 0, len(piece))] if len(piece) > most else piece)


def _at_word(text: str, at: int, lo: int, hi: int) -> int:
    """The first word boundary at or after `at`, within lo..hi; CJK text is cut anywhere."""
    if at <= lo:
        return lo
    for i in range(at, min(hi, at + 20)):
        if not (text[i - 1].isalnum() or text[i - 1] == "_"):
            return i
    return min(at, hi)


def _at_word_end(text: str, at: int, lo: int, hi: int) -> int:
    if at >= hi:
        return hi
    for i in range(at, max(lo, at - 20), -1):
        if not (text[i].isalnum() or text[i] == "_"):
            return i
    return max(at, lo)
