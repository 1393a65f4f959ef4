"""Select the facts a handoff keeps, within its budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import truediv

from perdure.context.facts.extraction import PLACES, kind_of, parts_in, scan
from perdure.context.facts.quoting import beginning, is_understood, tidy
from perdure.context.facts.ranking import Places, Weights, weigh
from perdure.context.facts.reading import MessageFacts
from perdure.context.facts.sources import FactSources, Piece
from perdure.models.tokens import estimate_text
from perdure.redaction import redact

_LABEL_CHARS = 40
_PER_LINE = len("- \n")
# Separator between two excerpts of one line.
BETWEEN_PIECES = " … "
_PER_PIECE = len(BETWEEN_PIECES)
_PER_NAME = len(", ")
_STOPS, _COLONS = (".", "!", "?", "。", "！", "？"), ":： "
# Average cost of a fact beyond its own length: some words, a share of a heading. Tuned on held-out sessions, among
# values from 15 to 50.
_AROUND = 30
# Weight of a fact without enough words around it.
_BARE = 0.7
# With more room than this, names are quoted instead of listed.
_SCARCE_CHARS = 12_000
_BARE_WITH_ROOM = 0.6
# Room freed by merging is refilled if it is at least this large.
_LEAST_REFILL = 60
_MOST_REFILLS = 3
_MOST_REFUSED = 40


@dataclass(frozen=True, slots=True)
class FactLines:
    """Lines for the sections Critical Context and Relevant Files."""

    critical: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join((*self.files, *self.critical))

    def redacted(self) -> FactLines:
        """Redact the lines: adjacent excerpts may form a secret that none of them is."""
        return FactLines(_redacted(self.critical), _redacted(self.files))


def _redacted(lines: tuple[str, ...]) -> tuple[str, ...]:
    # One batch: a scan for secrets costs about the same for one line as for fifty.
    return tuple(redact("\n".join(lines)).split("\n")) if lines else ()


@dataclass(slots=True)
class _Group:
    """A heading and the chosen excerpts under it."""

    heading: str
    is_place: bool
    # The fact in the heading itself, if any.
    fact: str | None
    pieces: list[Piece] = field(default_factory=list)
    # Cached line, and its inputs.
    _line: str = ""
    _made_of: tuple[Piece, ...] | None = None

    @property
    def line(self) -> str:
        made_of = tuple(self.pieces)
        if made_of != self._made_of:
            self._made_of, self._line = made_of, self._render()
        return self._line

    def _render(self) -> str:
        """Render excerpts in source order, overlapping ones merged; then the listed names."""
        pieces = sorted(self.pieces, key=lambda p: (p.position, p.span))
        quoted = BETWEEN_PIECES.join(dict.fromkeys(_merged([p for p in pieces if p.text and not p.is_listed])))
        names = ", ".join(dict.fromkeys(p.fact for p in pieces if p.is_listed and p.fact not in self.heading))
        body = " · ".join(filter(None, (quoted, names)))
        # No colon after a heading that ends with a full stop.
        between = " … " if self.heading.endswith(_STOPS) else ": "
        return f"- {self.heading}{between}{body}" if body else f"- {self.heading}"


class FactSelector:
    """Greedy knapsack: selects facts by probability per character, each with its best excerpt."""

    def __init__(
        self,
        chance: Mapping[str, float],
        *,
        room: int,
        already: str,
        pieces: Callable[[str], Sequence[Piece]],
        note: Callable[[str], str],
    ) -> None:
        self._chance = chance
        self._open = dict(chance)
        self._total = self._room = room
        self._bare = _BARE if room <= _SCARCE_CHARS else _BARE_WITH_ROOM
        # Facts in a row that were rejected by price or room.
        self._refused = 0
        self._pieces = pieces
        self._note = note
        self._order: list[str] = []
        self._offered: dict[str, Sequence[Piece]] = {}
        self._half_shown: set[str] = set()
        self._chosen: list[tuple[_Group, str]] = []
        self._groups: dict[str, _Group] = {}
        self._already = chance.keys() & parts_in(already)

    def fill(self) -> FactLines:
        """Select facts and return the lines; a fact visible in a chosen excerpt needs none of its own."""
        density = {f: c / (len(f) + _AROUND) for f, c in self._chance.items()}
        self._order = sorted(density, key=density.__getitem__, reverse=True)
        self._take_worthy(self._price(density))
        return self.refit(self._total)

    def refit(self, total: int) -> FactLines:
        """Adjust a filled selection to another length: drop the last choices, or add skipped ones."""
        self._total = total
        self._settle()
        while self._room < 0 and self._chosen:
            self._give_up()
        for _ in range(_MOST_REFILLS):
            self._clear_up()
            if self._room < _LEAST_REFILL or not self._take_fitting():
                break
            self._settle()
        return self._lines()

    def _price(self, density: Mapping[str, float]) -> float:
        """The price per character: the density of the last fact that would fit alone."""
        room = self._room
        for fact in self._order:
            room -= len(fact) + _AROUND
            if room < 0:
                return density[fact] * min(1.0, _SCARCE_CHARS / self._room)
        return 0.0

    def _take_worthy(self, price: float) -> None:
        """Choose for each fact the excerpt with the largest gain over its price; skip facts without one."""
        for pieces in self._fitting():
            best, most = None, 0.0
            for piece in pieces:
                gain, cost = self._worth(piece)
                if (net := gain - price * cost) >= most:
                    best, most = piece, net
            if best is not None:
                self._take(best)
            else:
                self._refused += 1

    def _take_fitting(self) -> bool:
        """Choose skipped facts by gain per character; return whether any was chosen."""
        before = self._room
        for pieces in self._fitting():
            self._take(max(pieces, key=lambda p: truediv(*self._worth(p))))
        return self._room < before

    def _fitting(self) -> Iterator[Sequence[Piece]]:
        """Yield the excerpts of each fact not yet visible, while some still fit."""
        self._refused = 0
        for fact in self._order:
            if self._refused > _MOST_REFUSED:
                return
            if fact not in self._open or len(fact) > self._room:
                continue
            if (pieces := self._offered.get(fact)) is None:
                pieces = self._offered[fact] = self._pieces(fact)
            if pieces:
                yield pieces

    def _settle(self) -> None:
        """Add the room freed by merging."""
        self._room = self._total - sum(len(g.line) + 1 for g in self._groups.values() if g.pieces)

    def _give_up(self) -> None:
        """Undo the last choices until the lines fit."""
        while self._room < 0 and self._chosen:
            group, fact = self._chosen.pop()
            piece = next(p for p in reversed(group.pieces) if p.fact == fact)
            group.pieces.remove(piece)
            self._room += self._cost(piece)
        self._settle()

    def _clear_up(self) -> None:
        """With spare room, replace listed names by quotes, likeliest first."""
        listed = [(g, p) for g in self._groups.values() for p in g.pieces if p.is_listed]
        for group, piece in sorted(listed, key=lambda item: -self._chance[item[1].fact]):
            quotes = [p for p in self._offered[piece.fact] if p.is_clear and p.label == piece.label]
            if not quotes or piece.fact in group.heading:
                continue
            clear = min(quotes, key=lambda p: len(p.text))
            more = len(clear.text) + _PER_PIECE - len(piece.text) - _PER_NAME
            if more <= self._room:
                group.pieces[group.pieces.index(piece)] = clear
                self._room -= more

    def _group(self, label: str) -> _Group:
        if (group := self._groups.get(label)) is None:
            is_place = kind_of(label) in PLACES and len(label.split()) == 1
            fact = label if is_place and label in self._open else None
            if fact is not None:
                note = self._note(fact)
                heading = f"{fact} — {note.rstrip(_COLONS)}" if note else fact
            else:
                heading = label.rstrip("/").rpartition("/")[2] if is_place else beginning(label, _LABEL_CHARS)
            group = self._groups[label] = _Group(heading, is_place, fact)
        return group

    def _cost(self, piece: Piece) -> int:
        return self._worth(piece)[1]

    def _worth(self, piece: Piece) -> tuple[float, int]:
        """The current gain of an excerpt, and its cost in characters."""
        chance = self._open
        gain = sum([chance[f] for f in piece.facts if f in chance])
        group = self._group(piece.label)
        if not piece.is_listed:
            cost = len(piece.text) + _PER_PIECE if piece.text else 0
            is_clear = piece.is_clear
        elif piece.fact in group.heading:
            cost = 0
            is_clear = is_understood(group.heading)
        else:
            cost = len(piece.text) + _PER_NAME
            is_clear = False
        if not is_clear:
            gain *= self._bare
        if not group.pieces:
            cost += len(group.heading) + _PER_LINE
            if group.fact in chance and group.fact not in piece.facts:
                gain += chance[group.fact]
        return gain, max(1, cost)

    def _take(self, piece: Piece) -> None:
        if piece.fact in self._already:
            del self._open[piece.fact]
            return
        if (cost := self._cost(piece)) > self._room:
            self._refused += 1
            return
        self._refused = 0
        self._room -= cost
        group = self._group(piece.label)
        visible = piece.text if group.pieces else f"{group.heading}\n{piece.text}"
        group.pieces.append(piece)
        self._chosen.append((group, piece.fact))
        for fact in self._open.keys() & {*scan(visible), piece.fact}:
            del self._open[fact]
        if "/" in visible:
            # A path also shows its folders and file name, but without context.
            for fact in self._open.keys() & parts_in(visible) - self._half_shown:
                self._half_shown.add(fact)
                self._open[fact] *= 1 - self._bare

    def _lines(self) -> FactLines:
        files: list[str] = []
        critical: list[str] = []
        # Opened files first: their lines explain their context.
        for group in sorted((g for g in self._groups.values() if g.pieces), key=lambda g: (g.fact is None, g.heading)):
            (files if group.is_place and "://" not in group.heading else critical).append(group.line)
        return FactLines(tuple(critical), tuple(files))


def _merged(pieces: Iterable[Piece]) -> Iterator[str]:
    """Yield the texts of excerpts in order; overlapping ones are merged."""
    source, lo, hi = "", 0, -1
    for piece in pieces:
        if piece.source is source and piece.span[0] <= hi + _PER_PIECE:
            hi = max(hi, piece.span[1])
            continue
        if hi >= 0:
            yield tidy(source[lo:hi])
        source, (lo, hi) = piece.source, piece.span
    if hi >= 0:
        yield tidy(source[lo:hi])


# Characters per token of excerpts; fewer where the messages have fewer (CJK).
_CHARS_PER_TOKEN = 3.75
_DENSE = 2.5
_SAMPLE_CHARS = 200
# A token budget is approached from below, to this tolerance or for this many iterations.
_AIM, _CLOSE = 0.995, 0.98
_MOST_MEASURED = 3
# An excerpt takes about sixty characters; twice as many candidates as fit are considered.
_CHARS_PER_CANDIDATE = 20
_LEAST_CANDIDATES, _MOST_CANDIDATES = 100, 1800
# Facts visible in kept messages are skipped below _SPARE_CHARS and down-weighted above it.
_SPARE_CHARS = 12_000
_SHOWN = 0.12


class FactLedger:
    """Ranked facts of a range of messages."""

    def __init__(self, entries: Sequence[MessageFacts], *, errors: Places = (), decisions: Places = ()) -> None:
        self._entries = entries
        self._weights: Weights = weigh(entries, errors=errors, decisions=decisions)

    @classmethod
    def collect(cls, entries: Iterable[MessageFacts], *, errors: Places = (), decisions: Places = ()) -> FactLedger:
        """Build the ledger of messages in order, a previous handoff included."""
        return cls(list(entries), errors=errors, decisions=decisions)

    def lines_for(
        self,
        *,
        budget_chars: int | None = None,
        budget_tokens: int | None = None,
        already: str = "",
        visible: frozenset[str] = frozenset(),
    ) -> FactLines:
        """Quote the likeliest facts that are not in `already`, within the budget.

        Facts in `visible` (those of kept messages) are repeated only with spare room, for later compactions.
        """
        room = min((b for b in (budget_chars, self._chars(budget_tokens)) if b is not None), default=1 << 16)
        if room <= 0:
            return FactLines()
        present = scan(already)
        less = min(1.0, _SHOWN * room / _SPARE_CHARS) if room > _SPARE_CHARS else 0.0
        named = self._named(present)
        more = max(1.0, room / _SPARE_CHARS)
        chances = {
            f: c * (less if f in visible else 1.0) * (more if f in named else 1.0)
            for f, c in self._weights.chance.items()
            if f not in present and (less or f not in visible)
        }
        candidates = _likeliest(chances, min(_MOST_CANDIDATES, _LEAST_CANDIDATES + room // _CHARS_PER_CANDIDATE))
        sources = FactSources(self._entries, self._weights, candidates)
        page = FactSelector(candidates, room=room, already=already, pieces=sources.pieces, note=sources.note)
        lines = page.fill()
        if budget_tokens is not None:
            # Paths have fewer characters per token than prose: adjust to the actual count.
            for _ in range(_MOST_MEASURED):
                used = estimate_text(lines.text)
                if not lines.text or _CLOSE * budget_tokens <= used <= budget_tokens:
                    break
                most = int(len(lines.text) * budget_tokens / used * _AIM)
                lines = page.refit(most if budget_chars is None else min(most, budget_chars))
        return lines.redacted()

    def _named(self, present: frozenset[str]) -> frozenset[str]:
        """Paths never opened whose file name occurs in `present`."""
        names = {f.rpartition("/")[2] for f in present if kind_of(f) in PLACES}
        used = self._weights.brief.last
        return frozenset(
            f for f in self._weights.chance if "/" in f and f.rpartition("/")[2] in names and f not in used
        )

    def _chars(self, tokens: int | None) -> int | None:
        """Convert a token budget to characters of these messages: four per token in English, one or two in CJK."""
        if tokens is None:
            return None
        sample = "".join(e.message.text[:_SAMPLE_CHARS] for e in self._entries[-40:])
        per_token = len(sample) / max(1, estimate_text(sample))
        return int(tokens * (per_token if sample and per_token < _DENSE else _CHARS_PER_TOKEN))


def _likeliest(chances: Mapping[str, float], most: int) -> dict[str, float]:
    """The likeliest facts in order; ties are broken by name, for determinism."""
    # Finding the cut-off among bare numbers is several times faster than sorting every fact.
    least = sorted(chances.values(), reverse=True)[most - 1] if len(chances) > most else 0.0
    ranked = sorted((-c, f) for f, c in chances.items() if c >= least)
    return {f: -c for c, f in ranked[:most]}
