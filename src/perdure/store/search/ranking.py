"""Rank texts by the words they share with a query: rare words first, long texts discounted, repetition saturating.

A variant of BM25 whose constants do not depend on the stored texts, so that both databases compute the same score from
the same message:

score    Σ over terms: weight × (saturated count + bonus), in any form, and half as much again for the exact word
         + a share of the largest weight that occurs within a few words of each other
         + all weights for a text with all of a few keywords, however long it is
context  words that the conversation's title or its other matches supply
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from perdure.store.search.query import SearchQuery, Term
from perdure.store.search.tokenizer import strip_accents
from perdure.store.search.words import STOP_WORDS

# Only the beginning of a text is ranked.
RANKED_CHARS = 65_536
# Letters in lower case, digits as they are, everything else a space.
_ASCII_FOLD = bytes(ord(chr(c).lower()) if chr(c).isalnum() and c < 128 else ord(" ") for c in range(256))
_ASCII = bytes(range(128))
_STOP_BYTES = frozenset(w.encode() for w in STOP_WORDS)
# Follows a symbol that is shown as an emoji.
_EMOJI_STYLE = "\ufe0f"
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS = re.compile(r"[^\W_]+")

# How quickly repetitions of a word stop counting, and how much longer texts are discounted.
_SATURATION = 1.2
_LENGTH_SHARE = 0.9
_TYPICAL_WORDS = 100
_CHARS_PER_WORD = 6
_MAX_LENGTH = 10.0
# Added for each term a text has, so that a long text with a word outranks a short one without.
_PRESENCE = 0.3
_EXACT_SHARE = 0.5
# Terms within this many words count once more, by this share.
_NEAR_WORDS = 30
_NEAR_SHARE = 0.3
# Added for a text with all terms of a query of a few keywords.
_COMPLETE_SHARE = 1.0
_MAX_KEYWORDS = 4
# The part of a name counts less than a word that was typed.
_PART_SHARE = 1.0
# What a conversation adds to its messages: by its title, and by its other matches.
_TITLE_SHARE = 1.0
_CONTEXT_SHARE = 0.6
_CONTEXT_SATURATION = 2.0
_CONTEXT_LENGTH_SHARE = 0.5
_TYPICAL_MESSAGES = 20


# A text of the query's own words answers nothing: it is the question asked before, or the call of a search for it.
ECHO_SHARE = 0.25
_ECHO_CHARS = 600
_ECHO_TERMS = 3
# A question may have so many other words; a statement with one, such as a number, may be the answer.
_ECHO_NEW_WORDS = 2
# A question mark at the end of a word, or a question word at the beginning.
ASKS = re.compile(
    r"\?(?![\w/=&.?*+:])|[？؟]"
    r"|\A\W*(?:what|why|how|when|where|which|who|whose|is|are|was|were|do|does|did|can|could|would|should)\b",
    re.IGNORECASE,
)
# A bare question answers few keywords either.
_QUESTION = re.compile(r"[^.!?\n]{1,200}\?\s*")
_QUESTION_SHARE = 0.7
# A handoff repeats its sources, and so do all handoffs after it.
_SUMMARY_SHARE = 0.4
# Questions are mostly about what a person wrote, which the answers after it only elaborate.
_USER_SHARE = 1.2
# Tool results are long and have many words of any question.
_RESULT_SHARE = 0.85
# A call of a search tool, maybe after a sentence that announces it.
_SEARCH_CALL = re.compile(r"(?:.{0,300}\n)?(?:session_search|lcm_grep|lcm_describe|lcm_expand)\n", re.DOTALL)
# How describe_report() begins, and a result that another model read first.
_SEARCH_RESULT = re.compile(r"Searched [\d,]+ messages?\b|\[(?:Answered by|Not answered: )")


@dataclass(frozen=True, slots=True)
class Relevance:
    """The score of a text, and which terms it has, by their number in the query."""

    score: float
    matched: frozenset[int]
    # Whether it only repeats the query.
    is_echo: bool = False


def is_search_text(text: str, *, kind: str) -> bool:
    """Whether a text is a call of a search tool or its result: they repeat the question and earlier messages.

    Other kinds of messages may mention the tools, and their words are looked for.
    """
    pattern = {"assistant": _SEARCH_CALL, "tool": _SEARCH_RESULT}.get(kind)
    return pattern is not None and pattern.match(text) is not None


def inverse_frequency(matches: float, texts: float) -> float:
    """Return the weight of a term that occurs in so many of all texts: rare terms weigh most."""
    matches = min(matches, texts)
    return math.log(1 + (texts - matches + 0.5) / (matches + 0.5))


class Ranker:
    """Scores texts for one query; `weights` has one entry per term."""

    def __init__(self, query: SearchQuery, weights: Sequence[float]) -> None:
        self.query = query
        self.weights = tuple(w * (_PART_SHARE if t.is_part else 1.0) for t, w in zip(query.terms, weights, strict=True))
        typed = {n for n, t in enumerate(query.terms) if not t.is_part}
        self._is_sentence = bool(query.ignored) or len(typed) > _MAX_KEYWORDS
        self._keywords = typed if len(typed) > 1 and not self._is_sentence else None
        self._words: dict[str | bytes, int] = {}
        # Text in ASCII is split as bytes, several times faster.
        for number, term in reversed(list(enumerate(query.terms))):
            for form in term.forms:
                self._words[form] = self._words[form.encode()] = number
        self._exact = {f for t in query.terms if t.forms for f in (t.forms[0], t.forms[0].encode())}
        self._inflected = {n for n, t in enumerate(query.terms) if t.forms}
        self._literal = [(n, t) for n, t in enumerate(query.terms) if not t.forms]

    def score(self, text: str, indexed: Collection[int] = (), *, kind: str = "tool") -> Relevance:
        """Score a text; `indexed` are the terms the index has in it, maybe as part of a longer name."""
        beginning = text[:RANKED_CHARS]
        lookup, counts, exact = self._words, dict.fromkeys(indexed, 0), dict.fromkeys(indexed, 0)
        words = _split_words(beginning)
        positions = [(at, lookup[w]) for at, w in enumerate(words) if w in lookup]
        if self._inflected.intersection(indexed) - {n for _, n in positions}:
            # The others are parts of names such as getUserName; splitting those takes longer than all the rest.
            words = _split_words(_HUMP.sub(" ", beginning))
            positions = [(at, lookup[w]) for at, w in enumerate(words) if w in lookup]
        for at, number in positions:
            counts[number] = counts.get(number, 0) + 1
            if words[at] in self._exact:
                exact[number] = exact.get(number, 0) + 1
        if self._literal:
            folded = _fold(beginning)
            for number, term in self._literal:
                if count := _occurrences(term, folded):
                    counts[number] = exact[number] = count
        # Words of Chinese and Japanese stand together, so they are counted by their characters.
        length = (len(words) if text.isascii() else max(len(words), len(beginning) / _CHARS_PER_WORD)) / _TYPICAL_WORDS
        discount = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * min(_MAX_LENGTH, length))
        total = 0.0
        for number in sorted(counts):
            value = _saturate(counts[number] or 1, discount)
            if exact.get(number):
                value += _EXACT_SHARE * _saturate(exact[number], discount)
            total += self.weights[number] * value
        if self._keywords is not None and self._keywords <= counts.keys():
            total += _COMPLETE_SHARE * sum(self.weights)
        total += _NEAR_SHARE * self._nearest(positions)
        is_echo = self._is_echo(text, words, len(counts), kind=kind)
        is_question = not self._is_sentence and _QUESTION.fullmatch(text) is not None
        share = ECHO_SHARE if is_echo else _QUESTION_SHARE if is_question else 1.0
        if kind == "handoff":
            share *= _SUMMARY_SHARE
        elif self.query.has_meaning:
            share *= _USER_SHARE if kind == "user" else _RESULT_SHARE if kind == "tool" else 1.0
        return Relevance(total * share, frozenset(counts), is_echo)

    def _is_echo(self, text: str, words: Sequence[str | bytes], matched: int, *, kind: str) -> bool:
        if is_search_text(text, kind=kind):
            return True
        if len(text) > _ECHO_CHARS or len(self.query.terms) < _ECHO_TERMS or 2 * matched <= len(self.query.terms):
            return False
        lookup = self._words
        new = {w for w in words if w not in lookup and w not in STOP_WORDS and w not in _STOP_BYTES}
        if any(w.isdigit() for w in new):
            return False
        return len(new) <= _ECHO_NEW_WORDS if ASKS.search(text) else not new

    def title_terms(self, title: str) -> frozenset[int]:
        """Return the terms a title contains."""
        literal = (n for n, t in self._literal if _occurrences(t, _fold(title)))
        return frozenset([*(self._words[w] for w in _split_words(title) if w in self._words), *literal])

    def context(self, title: float, matches: Mapping[int, int], *, messages: int) -> float:
        """Return what a conversation adds to its texts.

        `title` is the weight of its title, `matches` counts its texts that have each term, `messages` is its length.
        """
        length = messages / _TYPICAL_MESSAGES
        discount = _CONTEXT_SATURATION * (1 - _CONTEXT_LENGTH_SHARE + _CONTEXT_LENGTH_SHARE * length)
        shared = sum(
            self.weights[n] * matches[n] * (_CONTEXT_SATURATION + 1) / (matches[n] + discount) for n in sorted(matches)
        )
        return _TITLE_SHARE * title + _CONTEXT_SHARE * shared

    def title_weights(self, titles: Iterable[frozenset[int]]) -> dict[int, float]:
        """Return the weight of each term in titles: a word of most titles weighs little."""
        listed = list(titles)
        counts = Counter(n for t in listed for n in t)
        return {n: inverse_frequency(count, len(listed)) for n, count in sorted(counts.items())}

    def _nearest(self, positions: Sequence[tuple[int, int]]) -> float:
        """Return the largest weight of different terms within a few words of each other."""
        best = current = 0.0
        inside: Counter[int] = Counter()
        first = 0
        for at, number in positions:
            if not inside[number]:
                current += self.weights[number]
            inside[number] += 1
            while positions[first][0] < at - _NEAR_WORDS:
                removed = positions[first][1]
                inside[removed] -= 1
                if not inside[removed]:
                    current -= self.weights[removed]
                first += 1
            best = max(best, current)
        return best


def _saturate(count: int, discount: float) -> float:
    return count * (_SATURATION + 1) / (count + discount) + _PRESENCE


def _split_words(text: str) -> Sequence[str | bytes]:
    """Return the words of a text in one case and without accents, as bytes if they are ASCII."""
    if text.isascii() or _has_ascii_words(text):
        return text.encode("ascii", "replace").translate(_ASCII_FOLD).split()
    return _WORDS.findall(strip_accents(text).casefold())


def _has_ascii_words(text: str) -> bool:
    """Return whether all letters are ASCII: the dashes, arrows and frames of tool output only separate words."""
    others = text.encode("utf-8", "replace").translate(None, _ASCII).decode()
    return all(map(_is_separator, set(others)))


@lru_cache(maxsize=4_096)
def _is_separator(character: str) -> bool:
    """Return whether a character separates words, as normalization leaves it too."""
    normal = unicodedata.normalize("NFKD", character)
    return all(unicodedata.category(c)[0] in "PSZ" or c == _EMOJI_STYLE for c in normal)


def split_words(text: str) -> set[str | bytes]:
    """Return the different words of a text that have a meaning, as bytes if it is ASCII."""
    return {w for w in set(_split_words(text)) - STOP_WORDS - _STOP_BYTES if len(w) > 2 and w.isalpha()}


def _fold(text: str) -> str:
    return text.lower() if text.isascii() else strip_accents(text).casefold()


def _occurrences(term: Term, folded: str) -> int:
    clause = term.clauses[0]
    if clause.is_prefix and len(clause.parts) == 1:
        return len(re.findall(rf"(?<![^\W_]){re.escape(clause.parts[0])}", folded))
    if " " in term.needle:
        folded = " ".join(folded.split())
    return folded.count(term.needle) or folded.replace("\\", "/").count(term.needle)
