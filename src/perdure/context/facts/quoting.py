"""Contiguous pieces of a source in which a fact stands, short enough to quote and long enough to be understood."""

from __future__ import annotations

import re

from perdure.core.memo import Memo

# A piece is understood by the plain words in it: three of them tell what a fact is about.
ENOUGH_WORDS = 3
_WORD = re.compile(r"[^\W\d_]{4,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NOT_PLAIN = re.compile(r"[/_\d]|[a-z][A-Z]")
# A viewer's line number and what parts it from the line; it begins with a plain character, which is found soonest.
_NUMBERED = re.compile(r"\n\s*\d+(?:→|\t|:(?=\s)|\|)")

_SHORTEST_WORD = 4
_MEMO_BYTES = 32_000_000
_LINE = 110
_MOST = 150
_REACH = 110
# What crossing the end of a line or sentence counts for beside its length.
_BREAK = 40

# Where a piece begins and ends in its text.
Span = tuple[int, int]


def plain_words(text: str) -> int:
    """How many distinct plain words a text has: CJK counts by character, paths and identifiers do not count."""
    return len(_NONE.union(*map(_WORDS_IN.__getitem__, text.split())))


def is_understood(text: str) -> bool:
    """Whether a text has plain words enough; looked at no further than that takes."""
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
    """The piece of `text` around the first `fact`, on one line; "" where the fact does not stand there."""
    at = text.find(fact)
    if at < 0:
        return ""
    lo, hi = line_around(text, at, at + len(fact), near=near, most=most)
    return tidy(text[lo:hi])


def line_around(text: str, at: int, end: int, *, near: int = _LINE, most: int = _MOST) -> Span:
    """The line in which `at` to `end` stands, and its neighbours where that says too little."""
    lo, hi = _within_line(text, at, end, near)
    if not is_understood(text[lo:hi]):
        lo, hi = _widened(text, lo, hi, most=most)
    return lo, hi


def shortest_around(text: str, at: int, end: int, *, reach: int = _REACH) -> Span | None:
    """The shortest piece around `at` to `end` that has enough plain words; None where none within reach has.

    One that goes on beyond its line or sentence reads badly, and counts as longer than it is.
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


# How far a piece must reach for each further plain word, the words up to there, and as how long that counts.
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
    # A stop and the space behind it belong to the sentence they end.
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
    """A piece on one line: line numbers that a viewer added and runs of blanks are gone."""
    # Where no line begins with a digit there is nothing to look for.
    if "\n" in piece or piece.lstrip()[:1].isdecimal():
        piece = _NUMBERED.sub(" ", f"\n{piece}")
    return " ".join(piece.split())


def ending(text: str, most: int) -> str:
    """The last words of a text, from its last paragraph."""
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
    """The fact's line, or where that is long, as much around the fact as `near` allows, cut between words."""
    lo = text.rfind("\n", 0, at) + 1
    hi = _or_default(text.find("\n", end), len(text))
    if hi - lo <= near:
        return lo, hi
    room = max(0, near - (end - at))
    before = min(at - lo, max(room // 2, room - (hi - end)))
    first, last = at - before, min(hi, end + room - before)
    return _at_word(text, first, lo, at), _at_word_end(text, last, end, hi)


def _widened(text: str, lo: int, hi: int, *, most: int) -> tuple[int, int]:
    """Whole lines before and after are taken in by turns until the piece is understood or long enough."""
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
    """The first word boundary at or after `at`, within lo..hi; CJK has none, so a near one is enough."""
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
