"""The excerpts that can show each fact, their headings, and the first mention of each path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from perdure.context.facts.extraction import PLACES, kind_of
from perdure.context.facts.quoting import (
    Span,
    beginning,
    ending,
    is_understood,
    line_around,
    plain_words,
    quote,
    shortest_around,
    tidy,
)
from perdure.context.facts.ranking import Weights
from perdure.context.facts.reading import MessageFacts
from perdure.context.user_words import own_words

# Heading for text that the user pasted.
PASTED = "pasted by the user"
_NOTE_CHARS = 90
_ENOUGH_PIECES = 2
_LONG_CALL = 400


class Piece(NamedTuple):
    """One way to show a fact: an excerpt (empty where the label shows it) and its heading."""

    fact: str
    label: str
    text: str
    # Position of the message, its text, and the range of the excerpt.
    position: int
    source: str
    span: Span
    # The facts it shows.
    facts: tuple[str, ...]
    is_clear: bool

    @property
    def is_listed(self) -> bool:
        """Whether it is the bare fact, to be listed under its heading."""
        return self.text == self.fact


class FactSources:
    """Builds excerpts for candidate facts from their messages."""

    def __init__(self, entries: Sequence[MessageFacts], weights: Weights, candidates: Iterable[str]) -> None:
        self._entries = entries
        self._weights = weights
        self._candidates = frozenset(candidates)
        self._candidates_at: dict[int, list[str]] = {}
        self._call_texts: dict[int, str] = {}
        self._own_words: dict[int, str] = {}
        self._targets = {c.call_id: c.target or c.tool for entry in entries for c in entry.calls}

    def pieces(self, fact: str) -> list[Piece]:
        """The excerpts of a fact, from the messages it last occurred in."""
        weights = self._weights
        is_place = kind_of(fact) in PLACES
        if is_place and fact in weights.brief.last:
            # An opened path is shown by its own heading.
            return [Piece(fact, fact, "", weights.calls.last[fact], "", (0, 0), (fact,), True)]
        pieces: list[Piece] = []
        for source in (weights.assistant, weights.calls, weights.user, weights.results):
            if len(pieces) > _ENOUGH_PIECES or (position := source.last.get(fact)) is None:
                continue
            text = self._call_text(position) if source is weights.calls else self._entries[position].message.text
            if (at := text.find(fact)) >= 0:
                pieces += self._quoted(fact, position, text, at)
        if pieces and not is_place:
            last = pieces[-1]
            pieces.append(Piece(fact, last.label, fact, last.position, last.source, last.span, (fact,), False))
        return pieces

    def _quoted(self, fact: str, position: int, text: str, at: int) -> list[Piece]:
        """The shortest understandable excerpt, for this fact alone; and the line, for all facts in it."""
        label = self._label(position, fact)
        end = at + len(fact)
        pieces: list[Piece] = []
        short = shortest_around(text, at, end)
        if short is not None:
            pieces.append(Piece(fact, label, tidy(text[short[0] : short[1]]), position, text, short, (fact,), True))
        line = line_around(text, at, end)
        if line != short:
            quoted = tidy(text[line[0] : line[1]])
            also = tuple([f for f in self._candidates_in(position) if f in quoted])
            is_clear = short is not None or is_understood(quoted)
            pieces.append(Piece(fact, label, quoted, position, text, line, also, is_clear))
        return pieces

    def _candidates_in(self, position: int) -> list[str]:
        """The candidate facts of a message."""
        if (facts := self._candidates_at.get(position)) is None:
            entry = self._entries[position]
            facts = self._candidates_at[position] = sorted(
                entry.mentioned & self._candidates | entry.used & self._candidates
            )
        return facts

    def _call_text(self, position: int) -> str:
        """A call with its context: the text before it, its arguments, the beginning of its result."""
        if (text := self._call_texts.get(position)) is None:
            entry = self._entries[position]
            text = entry.arguments
            if len(text) <= _LONG_CALL:
                result = (
                    self._entries[position + 1].message.text[:_NOTE_CHARS] if position + 1 < len(self._entries) else ""
                )
                text = f"{entry.message.text[-2 * _NOTE_CHARS :]}\n{text}\n{result}"
            self._call_texts[position] = text
        return text

    def _label(self, position: int, fact: str) -> str:
        """The heading of an excerpt: the target of the call, or the role."""
        entry = self._entries[position]
        if entry.calls:
            return entry.calls[0].target or entry.calls[0].tool
        if entry.role == "user" and fact not in self._typed(position):
            return PASTED
        if entry.role != "tool":
            return entry.role
        return self._targets.get(entry.message.tool_call_id or "") or entry.message.name or "tool"

    def _typed(self, position: int) -> str:
        """The text of a message that the user typed."""
        if (words := self._own_words.get(position)) is None:
            words = self._own_words[position] = own_words(self._entries[position].message)
        return words

    def note(self, fact: str) -> str:
        """The context of a path: the line that first mentions it, or the text around the call that first used it."""
        first, position = self._weights.first[fact], self._weights.first_call.get(fact)
        if position is None or first < position:
            piece = self._beside(first, fact)
            if is_understood(piece):
                return piece
        return "" if position is None else self._around_call(position, fact)

    def _beside(self, position: int, fact: str) -> str:
        text = quote(self._entries[position].message.text, fact, near=len(fact) + _NOTE_CHARS)
        before, _, after = text.partition(fact)
        return max(before.strip(), after.strip(" :,"), key=plain_words)[:_NOTE_CHARS]

    def _around_call(self, position: int, fact: str) -> str:
        """The first understandable excerpt around a call, built lazily."""
        for piece in self._pieces_around(position, fact):
            if is_understood(piece):
                return piece
        return self._on_either_side(position, fact)

    def _on_either_side(self, position: int, fact: str) -> str:
        """The text before and after a fact in its call, where neither is understandable alone."""
        text = self._call_text(position)
        if len(self._entries[position].arguments) <= _LONG_CALL and position + 1 < len(self._entries):
            text += self._entries[position + 1].message.text[_NOTE_CHARS : 2 * _NOTE_CHARS]
        at = text.find(fact)
        end = at + len(fact)
        span = shortest_around(text, at, end, reach=2 * _NOTE_CHARS) if at >= 0 else None
        return " … ".join(filter(None, (tidy(text[span[0] : at]), tidy(text[end : span[1]])))) if span else ""

    def _pieces_around(self, position: int, fact: str) -> Iterator[str]:
        entry = self._entries[position]
        at = entry.arguments.find(fact)
        end = at + len(fact)
        if at < _NOTE_CHARS:
            yield ending(entry.message.text, _NOTE_CHARS)
        yield beginning(entry.arguments[end : end + 2 * _NOTE_CHARS], _NOTE_CHARS)
        yield ending(entry.arguments[max(0, at - 2 * _NOTE_CHARS) : at], _NOTE_CHARS)
        if position + 1 < len(self._entries):
            yield beginning(self._entries[position + 1].message.text[:_NOTE_CHARS], _NOTE_CHARS)
        yield ending(entry.message.text, _NOTE_CHARS)
