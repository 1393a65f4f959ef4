"""The ledger: a stretch of messages' facts weighed, and the weightiest quoted from their sources within a budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perdure.context.facts.kinds import PLACES, kind_of
from perdure.context.facts.page import FactLines, FactSelector
from perdure.context.facts.rank import Places, Weights, weigh
from perdure.context.facts.reading import MessageFacts
from perdure.context.facts.scan import scan
from perdure.context.facts.sources import FactSources
from perdure.models.tokens import estimate_text

# What a token of quoted pieces comes to in characters; where the messages themselves have fewer (CJK), as many as they.
_CHARS_PER_TOKEN = 3.75
_DENSE = 2.5
_SAMPLE_CHARS = 200
# A budget in tokens is aimed at from just below, and met within so much or after so many looks.
_AIM, _CLOSE = 0.995, 0.98
_MOST_MEASURED = 3
# A piece takes some sixty characters, so a budget has room for so many; twice as many are weighed against each other.
_CHARS_PER_CANDIDATE = 20
_LEAST_CANDIDATES, _MOST_CANDIDATES = 100, 1800
# What can still be read beside the handoff has no place in it until there is room to spare, and then so much less.
_SPARE_CHARS = 12_000
_SHOWN = 0.12


class FactLedger:
    """Facts weighed over a stretch of messages."""

    def __init__(self, entries: Sequence[MessageFacts], *, errors: Places = (), decisions: Places = ()) -> None:
        self._entries = entries
        self._weights: Weights = weigh(entries, errors=errors, decisions=decisions)

    @classmethod
    def collect(cls, entries: Iterable[MessageFacts], *, errors: Places = (), decisions: Places = ()) -> FactLedger:
        """The ledger of messages in their order; a previous handoff is one of them."""
        return cls(list(entries), errors=errors, decisions=decisions)

    def lines_for(
        self,
        *,
        budget_chars: int | None = None,
        budget_tokens: int | None = None,
        already: str = "",
        shown: frozenset[str] = frozenset(),
    ) -> FactLines:
        """The weightiest facts that do not stand in `already`, quoted from their sources, within the budget.

        Those in `shown`, which kept messages have, are repeated only where there is room to spare: they too will go.
        """
        room = min((b for b in (budget_chars, self._chars(budget_tokens)) if b is not None), default=1 << 16)
        if room <= 0:
            return FactLines()
        known = scan(already)
        less = min(1.0, _SHOWN * room / _SPARE_CHARS) if room > _SPARE_CHARS else 0.0
        named = self._named(known)
        more = max(1.0, room / _SPARE_CHARS)
        chances = {
            f: c * (less if f in shown else 1.0) * (more if f in named else 1.0)
            for f, c in self._weights.chance.items()
            if f not in known and (less or f not in shown)
        }
        wanted = _likeliest(chances, min(_MOST_CANDIDATES, _LEAST_CANDIDATES + room // _CHARS_PER_CANDIDATE))
        sources = FactSources(self._entries, self._weights, wanted)
        page = FactSelector(wanted, room=room, already=already, pieces=sources.pieces, note=sources.note)
        lines = page.fill()
        if budget_tokens is not None:
            # A line of paths has fewer characters a token than one of prose: what it really came to decides.
            for _ in range(_MOST_MEASURED):
                used = estimate_text(lines.text)
                if not lines.text or _CLOSE * budget_tokens <= used <= budget_tokens:
                    break
                most = int(len(lines.text) * budget_tokens / used * _AIM)
                lines = page.fitted(most if budget_chars is None else min(most, budget_chars))
        return lines.redacted()

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


def _likeliest(chances: Mapping[str, float], most: int) -> dict[str, float]:
    """The likeliest facts, in that order; equal ones by name, so that equal input gives equal lines."""
    # Sorting bare figures to find the least that counts is several times faster than sorting every fact.
    least = sorted(chances.values(), reverse=True)[most - 1] if len(chances) > most else 0.0
    ranked = sorted((-c, f) for f, c in chances.items() if c >= least)
    return {f: -c for c, f in ranked[:most]}
