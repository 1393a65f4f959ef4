"""Text operations of the context engine: sentences, patterns with a cheap pre-filter, excerpts that end at a word."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PatternMatcher:
    """A regex with required lower-case literals as a cheap pre-filter; CJK text skips the filter."""

    marks: tuple[str, ...]
    pattern: re.Pattern[str]
    cjk: re.Pattern[str] | None = None

    def is_in(self, text: str) -> bool:
        return bool(self.among((text,), text))

    def among(self, pieces: Iterable[str], whole: str) -> list[str]:
        """The pieces of a text that match."""
        low = whole.lower()
        present = [mark for mark in self.marks if mark in low]
        search = self.pattern.search
        if self.cjk is None or whole.isascii() or not self.cjk.search(whole):
            return [p for p in pieces if any(map(p.lower().__contains__, present)) and search(p)] if present else []
        in_cjk = self.cjk.search
        return [p for p in pieces if in_cjk(p) or (any(map(p.lower().__contains__, present)) and search(p))]


_END = re.compile(r"[\n.!?。！？]")
# A dot behind one of these ends no sentence.
_ABBREVIATED = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Prof|Hr|Fr|Sra?|Dra|Mme|e\.g|i\.e|vs|bzw|z\.B|d\.h|Nr)$")
_LONGEST_ABBREVIATION = 5
PLAN = PatternMatcher(
    marks=("next", "then", "remain", "still", "to do", "todo", "[ ] "),
    pattern=re.compile(
        r"^(?:\W*(?:next(?: steps?)?|then|remaining|still (?:need|to do|left)|to ?do|left to do)\b|\W*\[ \] "
        r"|.*\b(?:remains to be|still needs? to)\b)",
        re.IGNORECASE,
    ),
    cjk=re.compile("接下来|下一步|还需要|次に|残り|まだ|다음(?:으로|은)|남은"),
)


def sentences(text: str) -> list[str]:
    """The sentences of a text in any script, lines counting as ends; code blocks are left out."""
    prose = "".join(text.split("```")[::2]) if "```" in text else text
    pieces: list[str] = []
    start = 0
    for mark in _END.finditer(prose):
        end = mark.end()
        # A Latin mark inside a word or number ends nothing.
        if mark[0] not in ".!?" or (prose[end : end + 1].isspace() and not _is_abbreviation(prose, mark)):
            pieces.append(prose[start:end].strip())
            start = end
    pieces.append(prose[start:].strip())
    return [s for s in pieces if s]


def _is_abbreviation(text: str, mark: re.Match[str]) -> bool:
    at = mark.start()
    return (
        mark[0] == "."
        and text[at + 1] == " "
        and _ABBREVIATED.search(text[max(0, at - _LONGEST_ABBREVIATION) : at]) is not None
    )


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
