"""The ledger: a stretch of messages' facts weighed, and the weightiest quoted from their sources within a budget."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from perdure.context.facts.kinds import PLACES, kind_of
from perdure.context.facts.page import FactLines, Page, Piece
from perdure.context.facts.quotes import ENOUGH_WORDS, beginning, ending, plain_words, quote, shortest_quote
from perdure.context.facts.rank import Weights, weigh
from perdure.context.facts.reading import MessageFacts
from perdure.context.facts.scan import scan
from perdure.models.tokens import estimate_text

# What a token of quoted pieces comes to in characters; where the messages themselves have fewer (CJK), as many as they.
_CHARS_PER_TOKEN = 3.75
_DENSE = 2.5
_SAMPLE_CHARS = 200
# A piece takes some sixty characters, so a budget has room for so many; twice as many are weighed against each other.
_CHARS_PER_CANDIDATE = 20
_LEAST_CANDIDATES, _MOST_CANDIDATES = 100, 900
# What can still be read beside the handoff is worth so much less in it.
_SHOWN = 0.12
# Until there is room to spare.
_SPARE_CHARS = 12_000
_NOTE_CHARS = 90
# A piece is quoted as short as it can be understood, or at the length of a line where that tells of more facts.
_LINE_CHARS, _MOST_CHARS = 110, 150
_ENOUGH_PIECES = 2
_LONG_CALL = 400
# How far back a result's call may lie: calls made side by side have all their results behind them.
_FURTHEST_CALL = 64


class Ledger:
    """Facts weighed over a stretch of messages."""

    def __init__(self, entries: Sequence[MessageFacts]) -> None:
        self._entries = entries
        self._weights: Weights = weigh(entries)

    @classmethod
    def collect(cls, entries: Iterable[MessageFacts]) -> Ledger:
        """The ledger of messages in their order; a previous handoff is one of them."""
        return cls(list(entries))

    def lines_for(
        self,
        *,
        budget_chars: int | None = None,
        budget_tokens: int | None = None,
        already: str = "",
        shown: str = "",
    ) -> FactLines:
        """The weightiest facts that do not stand in `already`, quoted from their sources, within the budget.

        What stands in `shown`, the kept messages, is repeated only where there is room to spare: they too will go.
        """
        room = min((b for b in (budget_chars, self._chars(budget_tokens)) if b is not None), default=1 << 16)
        if room <= 0:
            return FactLines()
        known, seen = scan(already), scan(shown)
        less = min(1.0, _SHOWN * max(1.0, room / _SPARE_CHARS))
        named = self._named(known)
        more = max(1.0, room / _SPARE_CHARS)
        chances = (
            (-c * (less if f in seen else 1.0) * (more if f in named else 1.0), f)
            for f, c in self._weights.chance.items()
            if f not in known
        )
        likely = heapq.nsmallest(min(_MOST_CANDIDATES, _LEAST_CANDIDATES + room // _CHARS_PER_CANDIDATE), chances)
        page = Page({f: -c for c, f in likely}, room=room, already=already, note=self.note)
        return page.fill(self.pieces(fact) for _, fact in likely)

    def _named(self, known: frozenset[str]) -> frozenset[str]:
        """Places never opened whose bare name is told: what was told of it is to be done there."""
        names = {f.rpartition("/")[2] for f in known if kind_of(f) in PLACES}
        opened = self._weights.brief.last
        return frozenset(
            f for f in self._weights.chance if "/" in f and f.rpartition("/")[2] in names and f not in opened
        )

    def _chars(self, tokens: int | None) -> int | None:
        """What a budget in tokens comes to in characters of these messages: four in English, one or two in CJK."""
        if tokens is None:
            return None
        sample = "".join(e.message.text[:_SAMPLE_CHARS] for e in self._entries[-40:])
        per_token = len(sample) / max(1, estimate_text(sample))
        return int(tokens * (per_token if sample and per_token < _DENSE else _CHARS_PER_TOKEN))

    def pieces(self, fact: str) -> list[Piece]:
        """The ways to show a fact, from the sources it last stood in."""
        seen = self._weights
        if fact in seen.brief.last and kind_of(fact) in PLACES:
            return [Piece.heading(fact, (seen.calls.last[fact], 0))]
        found: list[Piece] = []
        for source in (seen.assistant, seen.calls, seen.user, seen.results):
            if len(found) > _ENOUGH_PIECES or (place := source.last.get(fact)) is None:
                continue
            text = self._call_text(place) if source is seen.calls else self._entries[place].message.text
            at = (place, text.find(fact))
            label = self._label(place)
            if short := shortest_quote(text, fact):
                found.append(Piece.short(fact, label, short, at))
            if (line := quote(text, fact, near=_LINE_CHARS, most=_MOST_CHARS)) and line != short:
                found.append(Piece.line(fact, label, line, at))
        if found and kind_of(fact) not in PLACES:
            found.append(Piece.bare(fact, found[-1].label, found[-1].at))
        return found

    def _call_text(self, place: int) -> str:
        """A call as it stood in the conversation: what was said before it, its arguments, how its result begins."""
        entry = self._entries[place]
        if len(entry.arguments) > _LONG_CALL:
            return entry.arguments
        result = self._entries[place + 1].message.text[:_NOTE_CHARS] if place + 1 < len(self._entries) else ""
        return f"{entry.message.text[-2 * _NOTE_CHARS :]}\n{entry.arguments}\n{result}"

    def note(self, fact: str) -> str:
        """How a path came up: the line that first named it, or the words around the call that first used it."""
        first, place = self._weights.first[fact], self._weights.first_call.get(fact)
        if place is None or first < place:
            piece = self._beside(first, fact)
            if plain_words(piece) >= ENOUGH_WORDS:
                return piece
        return "" if place is None else self._around_call(place, fact)

    def _beside(self, place: int, fact: str) -> str:
        text = quote(self._entries[place].message.text, fact, near=len(fact) + _NOTE_CHARS)
        before, _, after = text.partition(fact)
        return max(before.strip(), after.strip(" :,"), key=plain_words)[:_NOTE_CHARS]

    def _around_call(self, place: int, fact: str) -> str:
        """The first of the pieces around a call that is understood; each is made only when the ones before are not."""
        for piece in self._pieces_around(place, fact):
            if plain_words(piece) >= ENOUGH_WORDS:
                return piece
        return ""

    def _pieces_around(self, place: int, fact: str) -> Iterator[str]:
        entry = self._entries[place]
        at = entry.arguments.find(fact)
        end = at + len(fact)
        if at < _NOTE_CHARS:
            yield ending(entry.message.text, _NOTE_CHARS)
        yield beginning(entry.arguments[end : end + 2 * _NOTE_CHARS], _NOTE_CHARS)
        yield ending(entry.arguments[max(0, at - 2 * _NOTE_CHARS) : at], _NOTE_CHARS)
        if place + 1 < len(self._entries):
            yield beginning(self._entries[place + 1].message.text[:_NOTE_CHARS], _NOTE_CHARS)
        yield ending(entry.message.text, _NOTE_CHARS)

    def _label(self, place: int) -> str:
        """The heading a piece goes under: what the call was about, or who spoke."""
        entry = self._entries[place]
        if entry.calls:
            return entry.calls[0].target or entry.calls[0].tool
        if entry.role != "tool":
            return entry.role
        for back in range(place - 1, max(-1, place - _FURTHEST_CALL), -1):
            for call in self._entries[back].calls:
                if call.call_id == entry.message.tool_call_id:
                    return call.target or call.tool
        return entry.message.name or "tool"
