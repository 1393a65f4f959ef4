"""Lines of facts being filled within a budget: each piece once, under the file, command or speaker it is from."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from perdure.context.facts.kinds import PLACES, kind_of
from perdure.context.facts.quotes import ENOUGH_WORDS, beginning, plain_words
from perdure.context.facts.scan import scan
from perdure.redaction import redact

_LABEL_CHARS = 40
# No fact is shorter than this.
_CORE = 4
_PER_LINE = len("- \n")
_PER_PIECE = len(" … ")
_PER_NAME = len(", ")
# A fact without enough words around it can be found but hardly understood.
_BARE = 0.7
# Room beyond this need not be saved by listing names: it goes to quotes.
_SCARCE_CHARS = 12_000
_BARE_WITH_ROOM = 0.6


@dataclass(frozen=True, slots=True)
class FactLines:
    """Lines for Critical Context and for Relevant Files."""

    critical: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join((*self.files, *self.critical))


@dataclass(frozen=True, slots=True)
class Piece:
    """One way to show a fact: a piece of a source (none where the label says it all), and what it goes under."""

    fact: str
    label: str
    text: str
    at: tuple[int, int]
    facts: frozenset[str]
    is_clear: bool

    @property
    def is_listed(self) -> bool:
        return self.text == self.fact

    @classmethod
    def heading(cls, fact: str, at: tuple[int, int]) -> Piece:
        """A place that is shown by its own heading."""
        return cls(fact, fact, "", at, frozenset((fact,)), True)

    @classmethod
    def short(cls, fact: str, label: str, text: str, at: tuple[int, int]) -> Piece:
        """Just long enough to be understood, so that it is chosen for its own fact alone."""
        return cls(fact, label, text, at, frozenset((fact,)), True)

    @classmethod
    def line(cls, fact: str, label: str, text: str, at: tuple[int, int]) -> Piece:
        """Long enough to tell of other facts too."""
        return cls(fact, label, text, at, scan(text) | {fact}, plain_words(text) >= ENOUGH_WORDS)

    @classmethod
    def bare(cls, fact: str, label: str, at: tuple[int, int]) -> Piece:
        """The fact by itself, to be listed under what it stood in."""
        return cls(fact, label, fact, at, frozenset((fact,)), False)


@dataclass(slots=True)
class _Group:
    """A heading, and the pieces under it once it is chosen."""

    heading: str
    is_place: bool
    facts: frozenset[str]
    pieces: list[Piece]


class Page:
    """Takes the facts that are likeliest for what they cost, each in the piece that is worth its length."""

    def __init__(self, chance: Mapping[str, float], *, room: int, already: str, note: Callable[[str], str]) -> None:
        self._chance = chance
        self._open = dict(chance)
        self._room = room
        self._bare = _BARE if room <= _SCARCE_CHARS else _BARE_WITH_ROOM
        self._already = already
        self._note = note
        self._groups: dict[str, _Group] = {}
        # Facts by a few characters from their middle, so that what stands in a text is found without trying every one.
        self._by_core: dict[str, list[str]] = {}
        for fact in chance:
            at = (len(fact) - _CORE) // 2
            self._by_core.setdefault(fact[at : at + _CORE], []).append(fact)

    def fill(self, choices: Iterable[Sequence[Piece]]) -> FactLines:
        """The lines, given for each fact the pieces that would show it."""
        offered = [pieces for pieces in choices if pieces]
        price = self._price(offered)
        heap = [(-max(map(self._worth, pieces)), n) for n, pieces in enumerate(offered)]
        heapq.heapify(heap)
        while heap and self._room > 0:
            _, number = heapq.heappop(heap)
            pieces = offered[number]
            if pieces[0].fact not in self._open:
                continue
            worth = max(map(self._worth, pieces))
            # Worth sinks as facts are shown elsewhere; one that lost some waits for its new turn.
            if heap and worth < -heap[0][0] - 1e-12:
                heapq.heappush(heap, (-worth, number))
            else:
                self._take(max(pieces, key=lambda p: self._gain(p) - price * self._cost(p)))
        self._clear_up(offered)
        return self._lines()

    def _clear_up(self, offered: Iterable[Sequence[Piece]]) -> None:
        """With room to spare, names that are merely listed are quoted after all, the likeliest first."""
        quotes = {pieces[0].fact: [p for p in pieces if p.is_clear] for pieces in offered}
        listed = [(g, p) for g in self._groups.values() for p in g.pieces if p.is_listed and quotes.get(p.fact)]
        for group, piece in sorted(listed, key=lambda found: -self._chance[found[1].fact]):
            clear = min(quotes[piece.fact], key=lambda p: len(p.text))
            more = len(clear.text) + _PER_PIECE - len(piece.text) - _PER_NAME
            if clear.label == piece.label and more <= self._room:
                group.pieces[group.pieces.index(piece)] = clear
                self._room -= more

    def _price(self, offered: Iterable[Sequence[Piece]]) -> float:
        """What a character is worth: the worth of the last fact that would fit if each were shown by itself."""
        costs = [(self._open[pieces[0].fact], min(map(self._cost, pieces[-1:]))) for pieces in offered]
        room = self._room
        for worth, cost in sorted(((chance / cost, cost) for chance, cost in costs), reverse=True):
            room -= cost
            if room < 0:
                return worth * min(1.0, _SCARCE_CHARS / self._room)
        return 0.0

    def _group(self, label: str) -> _Group:
        if label not in self._groups:
            is_place = kind_of(label) in PLACES and len(label.split()) == 1
            if is_place and label in self._open:
                note = self._note(label)
                heading = f"{label} — {note}" if note else label
            else:
                heading = label.rstrip("/").rpartition("/")[2] if is_place else beginning(label, _LABEL_CHARS)
            self._groups[label] = _Group(heading, is_place, scan(heading), [])
        return self._groups[label]

    def _cost(self, piece: Piece) -> int:
        group = self._group(piece.label)
        cost = 0 if group.pieces else len(group.heading) + _PER_LINE
        if piece.text:
            cost += len(piece.text) + (_PER_NAME if piece.is_listed else _PER_PIECE)
        return max(1, cost)

    def _gain(self, piece: Piece) -> float:
        group = self._group(piece.label)
        chance = self._open.get
        gain = sum(chance(f, 0.0) for f in piece.facts)
        if not piece.is_clear:
            gain *= self._bare
        return gain if group.pieces else gain + sum(chance(f, 0.0) for f in group.facts - piece.facts)

    def _worth(self, piece: Piece) -> float:
        return self._gain(piece) / self._cost(piece)

    def _take(self, piece: Piece) -> None:
        if piece.fact in self._already:
            del self._open[piece.fact]
            return
        if (cost := self._cost(piece)) > self._room:
            return
        self._room -= cost
        group = self._group(piece.label)
        shown = piece.text if group.pieces else f"{group.heading}\n{piece.text}"
        group.pieces.append(piece)
        covered = scan(shown) | piece.facts
        if "/" in shown:
            # A path shows its folders and its name as well.
            covered |= self._standing_in(shown)
        for fact in covered & self._open.keys():
            del self._open[fact]

    def _standing_in(self, text: str) -> set[str]:
        cores = {text[i : i + _CORE] for i in range(len(text) - _CORE + 1)}
        return {f for c in cores & self._by_core.keys() for f in self._by_core[c] if f in self._open and f in text}

    def _lines(self) -> FactLines:
        files: list[str] = []
        critical: list[str] = []
        for group in sorted((g for g in self._groups.values() if g.pieces), key=lambda g: g.heading):
            pieces = sorted(group.pieces, key=lambda p: p.at)
            quoted = " … ".join(dict.fromkeys(p.text for p in pieces if p.text and not p.is_listed))
            names = ", ".join(dict.fromkeys(p.fact for p in pieces if p.is_listed))
            line = "- " + ": ".join(filter(None, (group.heading, " · ".join(filter(None, (quoted, names))))))
            (files if group.is_place and "://" not in group.heading else critical).append(line)
        return FactLines(_redacted(critical), _redacted(files))


def _redacted(lines: list[str]) -> tuple[str, ...]:
    # All at once: a scan for secrets costs about the same for one line as for fifty.
    return tuple(redact("\n".join(lines)).split("\n")) if lines else ()
