"""Snippets: the part of a text that answers a query, in whole sentences or lines where they fit, with its matches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

from perdure.store.search.query import Term
from perdure.store.search.tokenizer import strip_accents

_SNIPPET_CHARS = 240
# A sentence may make a snippet longer up to here; a shorter one is continued within a sentence.
_LONGEST_CHARS = 320
_SHORT_CHARS = 120
# Longest run before the first match of a snippet that begins within a sentence.
_LEAD_CHARS = 70
# Bonus of a passage, as a share of its matches' weight, if it fits the query, and if it asks a question itself.
_FITS_SHARE = 0.3
_ASKS_SHARE = -0.3
# So many of the best passages are compared, and so much of a text without a match.
_COMPARED = 12
_COMPARED_CHARS = 4_000
# The end of a line, or of a sentence: a mark followed by a space and no lower-case letter.
_BREAK = re.compile(
    r"(?:(?<!\s)[^\S\n]+)?+\n\s*|(?<=[.!?…])(?<!\b\w\.)[\"'”’»)\]*_`]*\s+(?=[^\sa-z])|(?<=[。！？])(?![。！？…」』）])"
)
_SPACE = re.compile(r"\s+")
# Lines without content: rules of tables and headings, fences, marks below an error.
_BLANK_LINE = re.compile(r"[\s|:=~^*_#`+-]*")
_MAX_MATCHES = 4_000
# What is read on either side of a snippet, so that a secret which begins or ends there is recognized.
_AROUND_CHARS = 4_000


class _Place(NamedTuple):
    """A match in a text; `is_word` unless it is inside a longer word."""

    start: int
    end: int
    number: int
    is_word: bool


class Snippets:
    """Builds the snippets of one query; `weights` has one entry per term.

    `fits` returns whether a passage has what the query asks for, such as a number.
    """

    def __init__(
        self, terms: Sequence[Term], weights: Sequence[float], fits: Callable[[str], bool] | None = None
    ) -> None:
        self._weights = tuple(weights)
        self._fits = fits
        # Returns the semantic similarity of each passage to the query, for texts without a word of it.
        self.similarity: Callable[[Sequence[str]], Sequence[float]] | None = None
        self._numbers = {f: n for n, t in reversed(list(enumerate(terms))) for f in t.forms}
        self._literal = [n for n, t in enumerate(terms) if not t.forms]
        self._pattern = _pattern(terms)

    def excerpt(self, text: str) -> tuple[str, tuple[tuple[int, int], ...], int]:
        """Return one line around the best matches, the [start, end) of matches in it, and the best's offset in `text`.

        Matches inside words count only if no match is a whole word. Secrets are redacted. Without a match the line is
        the sentence nearest in meaning, else the beginning.
        """
        # The query may differ from the text in accents or full-width forms.
        for source in (text,) if text.isascii() else (text, strip_accents(text)):
            matches = self._matches(source)
            # A word may also be part of a name: `user` in getUserName.
            preferred = [m for m in matches if m.is_word] or matches
            if preferred:
                first, last = self._best(source, preferred)
                line = _line(source, *_bounds(source, first, last))
                marks = self._matches(line)
                return line, tuple((m.start, m.end) for m in [m for m in marks if m.is_word] or marks), first
        first, last = self._best_unmatched(text)
        return _line(text, *_bounds(text, first, last)), (), first

    def _matches(self, text: str) -> list[_Place]:
        folded = text.lower()
        if len(folded) != len(text):  # a few letters change their length with their case
            folded = text
        matches = []
        for match in islice(self._pattern.finditer(folded), _MAX_MATCHES):
            start, end = match.span()
            number = self._numbers.get(match[0])
            if number is None:
                matches.append(
                    _Place(start, end, self._literal[int(match.lastgroup[1:]) if match.lastgroup else 0], True)
                )
            else:
                is_word = not (folded[start - 1 : start].isalnum() or folded[end : end + 1].isalnum())
                matches.append(_Place(start, end, number, is_word))
        return matches

    def _best(self, source: str, matches: Sequence[_Place]) -> tuple[int, int]:
        """Return the [start, end) of the matches that fit one snippet and together rank highest."""
        heaviest = nlargest(_COMPARED, self._spans(matches), key=lambda span: (round(span[0], 6), -span[1]))

        def worth(span: tuple[float, int, int]) -> tuple[float, int]:
            weight, first, last = span
            fits = self._fits is not None and self._fits(source[slice(*_bounds(source, first, last))])
            return round(weight * (1 + _share(source, last, fits=fits)), 6), -first

        _, first, last = max(heaviest, key=worth)
        return first, last

    def _spans(self, matches: Sequence[_Place]) -> Iterator[tuple[float, int, int]]:
        """Yield, for each match, the weight, start and end of the longest group up to it that fits a snippet."""
        first, current = 0, 0.0
        inside: Counter[int] = Counter()
        for start, end, number, _ in matches:
            if not inside[number]:
                current += self._weights[number]
            inside[number] += 1
            while first < len(matches) and matches[first].start < end - _SNIPPET_CHARS and matches[first].start < start:
                dropped = matches[first].number
                inside[dropped] -= 1
                if not inside[dropped]:
                    current -= self._weights[dropped]
                first += 1
            yield current, matches[first].start, end

    def _best_unmatched(self, text: str) -> tuple[int, int]:
        """Return the start, twice, of the sentence nearest in meaning or with what the query asks for, else (0, 0)."""
        sentences = [(a, b) for a, b in _sentences(text[:_COMPARED_CHARS]) if not _BLANK_LINE.fullmatch(text, a, b)]
        if not sentences or (self._fits is None and self.similarity is None):
            return 0, 0
        passages = [text[a:b] for a, b in sentences]
        nearness = self.similarity(passages) if self.similarity is not None else [0.0] * len(passages)
        fits = [self._fits is not None and self._fits(p) for p in passages]
        worth = [
            round(near + _share(text, start, fits=has), 6)
            for near, has, (start, _) in zip(nearness, fits, sentences, strict=True)
        ]
        start, _ = sentences[max(range(len(worth)), key=lambda n: (worth[n], -n))]
        return start, start


def _share(source: str, position: int, *, fits: bool) -> float:
    """Return the bonus of a passage whose last match ends at `position`: it fits the query, or is a question."""
    end = _BREAK.search(source, position, position + _LONGEST_CHARS)
    asks = source.startswith(("?", "？"), max(0, (end.start() if end else len(source)) - 1))
    return _FITS_SHARE * fits + _ASKS_SHARE * asks


def highlight(line: str, matches: Sequence[tuple[int, int]]) -> str:
    """Put «…» around each match of a line."""
    for start, end in reversed(matches):
        line = f"{line[:start]}«{line[start:end]}»{line[end:]}"
    return line


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the [start, end) of each sentence or line."""
    start = 0
    for match in _BREAK.finditer(text):
        if match.start() > start:
            yield start, match.start()
        start = match.end()
    if start < len(text):
        yield start, len(text)


def _bounds(source: str, first: int, last: int) -> tuple[int, int]:
    """Return the [start, end) of the sentences that have [first, last), and as many around them as fit a snippet.

    A sentence that is too long is cut between words.
    """
    lowest, highest = max(0, last - _LONGEST_CHARS), min(len(source), last + _LONGEST_CHARS)
    starts = [] if lowest else [0]
    starts += [m.end() for m in _BREAK.finditer(source, lowest, first) if m.end() <= first]
    ends = [m.start() for m in _BREAK.finditer(source, last, highest) if m.end() > last]
    ends += [len(source)] if highest == len(source) else []
    start = starts.pop() if starts else _find_cut(source, max(lowest, first - _LEAD_CHARS), first, is_start=True)
    if not ends or ends[0] - start > _LONGEST_CHARS:
        if last - start > _SNIPPET_CHARS or (ends and ends[0] - start > _LONGEST_CHARS and first - start > _LEAD_CHARS):
            start = _find_cut(source, first - _lead(first, last), first, is_start=True)
        return start, _find_cut(source, last, max(last, min(len(source), start + _SNIPPET_CHARS)), is_start=False)
    end = max([e for e in ends if e - start <= _SNIPPET_CHARS], default=ends[0])
    start = min([s for s in starts if end - s <= _SNIPPET_CHARS], default=start)
    if end < len(source) and (end - start < _SHORT_CHARS or source[end - 1] in ":："):
        # Show what follows a lead-in or a heading, in part if it is long.
        whole = next((e for e in ends if end < e <= start + _LONGEST_CHARS), None)
        end = whole or _find_cut(source, end, max(end, min(len(source), start + _SNIPPET_CHARS)), is_start=False)
    return start, end


def _lead(first: int, last: int) -> int:
    return min(_LEAD_CHARS, max(0, _SNIPPET_CHARS - (last - first)) // 2, first)


def _find_cut(source: str, low: int, high: int, *, is_start: bool) -> int:
    """Return the first position between two words in [low, high] for the start of a snippet, the last for its end."""
    if is_start:
        if low <= 0 or source[low - 1].isspace():
            return max(0, low)
        space = _SPACE.search(source, low, high)
        return space.end() if space else low
    if high >= len(source) or source[high].isspace():
        return high
    position = max(source.rfind(" ", low, high), source.rfind("\n", low, high))
    return position if position > low else high


def _line(source: str, start: int, end: int) -> str:
    """Return a part of a text in one line, without rules, fences and marks."""
    part = _redact_slice(source, start, end)
    line = " ".join(" ".join(line.split()) for line in part.splitlines() if not _BLANK_LINE.fullmatch(line))
    return ("…" if start else "") + line + ("…" if end < len(source) else "")


def _redact_slice(source: str, start: int, end: int) -> str:
    """Return a part of a text with its secrets redacted, including those that cross its ends."""
    from perdure.redaction import redact_part  # loaded with the first search

    before = max(0, start - _AROUND_CHARS)
    return redact_part(source[before : end + _AROUND_CHARS], start - before, end - before)


def _pattern(terms: Sequence[Term]) -> re.Pattern[str]:
    """Build a regex of all literal terms, each in a group, then of all forms; for text in lower case."""
    literal = [t for t in terms if not t.forms]
    groups = [f"(?P<t{n}>{_needle_pattern(t)})" for n, t in enumerate(literal)]
    forms = sorted({f for t in terms for f in t.forms}, key=lambda f: (-len(f), f))
    return re.compile("|".join([*groups, *map(re.escape, forms)]) or r"(?!)")


def _needle_pattern(term: Term) -> str:
    r"""Escape a needle so that any whitespace and either slash match; a prefix takes the rest of its word along."""
    pattern = r"\s+".join(re.escape(w).replace("/", r"[/\\]") for w in term.needle.split())
    return rf"{pattern}[^\W_]*" if term.clauses[0].is_prefix else pattern
