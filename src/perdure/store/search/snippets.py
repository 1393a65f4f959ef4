"""Snippets: the part of a text that answers a query, with the matches in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from perdure.store.search.query import Term
from perdure.store.search.tokenizer import strip_accents

_SNIPPET_CHARS = 240
# Longest run before the first match of a snippet.
_LEAD_CHARS = 70
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
    """Builds the snippets of one query; `weights` has one entry per term."""

    def __init__(self, terms: Sequence[Term], weights: Sequence[float]) -> None:
        self._weights = tuple(weights)
        self._numbers = {f: n for n, t in reversed(list(enumerate(terms))) for f in t.forms}
        self._literal = [n for n, t in enumerate(terms) if not t.forms]
        self._pattern = _pattern(terms)

    def excerpt(self, text: str) -> tuple[str, tuple[tuple[int, int], ...], int]:
        """Return one line around the best matches, the [start, end) positions of all matches in it, and its offset.

        Secrets in it are redacted: who finds a message can open it.
        """
        # The query may differ from the text in accents or full-width forms.
        for source in (text,) if text.isascii() else (text, strip_accents(text)):
            matches = self._matches(source)
            # A word may also be part of a name: `user` in getUserName.
            preferred = [m for m in matches if m.is_word] or matches
            if preferred:
                first, last = self._best(preferred)
                line = _line(source, first, last)
                marks = self._matches(line)
                return line, tuple((m.start, m.end) for m in [m for m in marks if m.is_word] or marks), first
        return _line(text, 0, 0), (), 0

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

    def _best(self, matches: Sequence[_Place]) -> tuple[int, int]:
        """Return the start and end of the matches that fit a snippet and weigh most together."""
        best, span, first, current = -1.0, (0, 0), 0, 0.0
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
            if current > best + 1e-9:
                best, span = current, (matches[first].start, end)
        return span


def highlight(line: str, matches: Sequence[tuple[int, int]]) -> str:
    """Put «…» around each match of a line."""
    for start, end in reversed(matches):
        line = f"{line[:start]}«{line[start:end]}»{line[end:]}"
    return line


def _line(source: str, first: int, last: int) -> str:
    """Return one line of a text around [first, last), which is centred as far as the lead allows."""
    lead = min(_LEAD_CHARS, max(0, _SNIPPET_CHARS - (last - first)) // 2)
    start = max(0, first - lead)
    end = min(len(source), start + _SNIPPET_CHARS)
    start = max(0, min(start, end - _SNIPPET_CHARS))
    line = " ".join(_redacted(source, start, end).split())
    return ("…" if start else "") + line + ("…" if end < len(source) else "")


def _redacted(source: str, start: int, end: int) -> str:
    """Return a part of a text with the secrets in it redacted, also those that it has only a piece of."""
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
