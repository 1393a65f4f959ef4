"""Excerpts around a fact, short enough to quote and long enough to be understood."""

from __future__ import annotations

import re

from perdure.core.memo import Memo

# An excerpt with this many plain words is understandable.
ENOUGH_WORDS = 3
_WORD = re.compile(r"[^\W\d_]{4,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NOT_PLAIN = re.compile(r"[/_\d]|[a-z][A-Z]")
# Line number of a file viewer and its separator; begins with a literal character, for speed.
_NUMBERED = re.compile(r"\n\s*\d+(?:→|\t|:(?=\s)|\|)")

_SHORTEST_WORD = 4
_MEMO_BYTES = 32_000_000
_LINE = 110
_MOST = 150
_REACH = 110
# Penalty, in characters, for crossing the end of a line or sentence.
_BREAK = 40

# Start and end of an excerpt in its text.
Span = tuple[int, int]


def plain_words(text: str) -> int:
    """Count the distinct plain words of a text: CJK by character, paths and identifiers not at all."""
    return len(_NONE.union(*map(_WORDS_IN.__getitem__, text.split())))


def is_understood(text: str) -> bool:
    """Whether a text has enough plain words; stops scanning once it has."""
    words: set[str] = set()
    for more in map(_WORDS_IN.__getitem__, text.split()):
        if more:
            words |= more
            if len(words) >= ENOUGH_WORDS:
                return True
    return False


_NONE: frozenset[str] = frozenset()


def _words_in(piece: str) -> frozenset[str]:
    if piece.isascii() and (len(piece) < _SHORTEST_WORD or _NOT_PLAIN.search(piece)):
        return _NONE
    return frozenset(w.lower() for w in _WORD.findall(piece))


_WORDS_IN: Memo[str, frozenset[str]] = Memo(_words_in, max_bytes=_MEMO_BYTES, bytes_per_char=140)


def quote(text: str, fact: str, *, near: int = _LINE, most: int = _MOST) -> str:
    """The excerpt of `text` around the first `fact`, on one line; "" where the fact does not occur."""
    at = text.find(fact)
    if at < 0:
        return ""
    lo, hi = line_around(text, at, at + len(fact), near=near, most=most)
    return tidy(text[lo:hi])


def line_around(text: str, at: int, end: int, *, near: int = _LINE, most: int = _MOST) -> Span:
    """The line around `at` to `end`, with its neighbours where it is not understandable alone."""
    lo, hi = _within_line(text, at, end, near)
    if not is_understood(text[lo:hi]):
        lo, hi = _widened(text, lo, hi, most=most)
    return lo, hi


def shortest_around(text: str, at: int, end: int, *, reach: int = _REACH) -> Span | None:
    """The shortest excerpt around `at` to `end` with enough plain words; None where none within reach has.

    Crossing the end of a line or sentence adds a penalty.
    """
    best: Span | None = None
    shortest = 2 * (reach + _BREAK) + 1
    rights = _forwards(text, end, reach)
    for start, words_before, before in _backwards(text, at, reach):
        for stop, words_after, behind in rights:
            if before + behind >= shortest:
                break
            if len(words_before | words_after) >= ENOUGH_WORDS:
                best, shortest = (start, stop), before + behind
                break
    return best


# For each further plain word: the offset, the words up to there, and the length with penalties.
_Steps = list[tuple[int, frozenset[str], int]]


def _backwards(text: str, end: int, reach: int) -> _Steps:
    words, steps, at = _NONE, [(end, _NONE, 0)], end
    first = max(0, end - reach)
    broken = max(text.rfind("\n", first, end), text.rfind(". ", first, end))
    for word in reversed(text[first:end].split()):
        at = text.rfind(word, 0, at)
        more = _WORDS_IN[word]
        if more and not more <= words:
            words |= more
            steps.append((at, words, end - at + (_BREAK if at <= broken else 0)))
            if len(words) >= ENOUGH_WORDS:
                break
    return steps


def _forwards(text: str, start: int, reach: int) -> _Steps:
    words, steps, at = _NONE, [(start, _NONE, 0)], start
    last = start + reach
    # A full stop and the space after it belong to their sentence.
    broken = min(_or_default(text.find("\n", start, last), last), _or_default(text.find(". ", start, last), last)) + 1
    for word in text[start:last].split():
        at = text.find(word, at) + len(word)
        more = _WORDS_IN[word]
        if more and not more <= words:
            words |= more
            steps.append((at, words, at - start + (_BREAK if at > broken else 0)))
            if len(words) >= ENOUGH_WORDS:
                break
    return steps


def _or_default(at: int, otherwise: int) -> int:
    return at if at >= 0 else otherwise


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


def _within_line(text: str, at: int, end: int, near: int) -> tuple[int, int]:
    """The fact's line, or for a long one as much around the fact as `near` allows, cut between words."""
    lo = text.rfind("\n", 0, at) + 1
    hi = _or_default(text.find("\n", end), len(text))
    if hi - lo <= near:
        return lo, hi
    room = max(0, near - (end - at))
    before = min(at - lo, max(room // 2, room - (hi - end)))
    first, last = at - before, min(hi, end + room - before)
    return _at_word(text, first, lo, at), _at_word_end(text, last, end, hi)


def _widened(text: str, lo: int, hi: int, *, most: int) -> tuple[int, int]:
    """Add whole lines before and after in turn until the excerpt is understandable or long enough."""
    while hi - lo < most:
        before = text.rfind("\n", 0, max(0, lo - 1)) + 1 if lo > 0 else lo
        if lo - before > most - (hi - lo):
            before = _at_word(text, lo - (most - (hi - lo)), before, lo)
        if before < lo and is_understood(text[before:hi]):
            return before, hi
        after = _or_default(text.find("\n", hi + 1), len(text))
        if after - before > most:
            after = _at_word_end(text, before + most, hi, after)
        if (before, after) == (lo, hi):
            break
        lo, hi = before, after
        if is_understood(text[lo:hi]):
            break
    return lo, hi


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
