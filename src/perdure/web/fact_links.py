"""Facts of a handoff and the messages that hold them, linked both ways in one pass over the sources."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence

from perdure.context.facts.kinds import kind_of
from perdure.context.facts.scan import scan
from perdure.context.grounding import MARK
from perdure.web.shapes import FactRow, SectionRow

Mark = tuple[int, int]

# A fact that stands in hundreds of messages is linked to the newest of them.
MOST_SOURCES = 50
# What a handoff may say in its own words: with no source it is no fact, not an unsupported one.
_OWN_WORDS = ("name", "dotted", "pair")
_INSIDE = frozenset("_/.-\\")
_CLOSING = "`\"'”」』»* "


# What never stands inside a path, an identifier or a number, so that each of them is a piece of its own.
_ENDS = b"\"'`<>()[]{},;:=|*#!?&%$^\\\n\t"
_TABLE = bytes.maketrans(_ENDS, b" " * len(_ENDS))
_BETWEEN = b"\0"


class Links:
    """Which messages hold which facts: what was really said, or, where nothing said does, an earlier handoff.

    Messages are looked through as they are stored, all in one text: making ten thousand of them into values would take
    longer than everything that is done here.
    """

    def __init__(self, bodies: Sequence[tuple[int, str, bytes]]) -> None:
        newest_first = bodies[::-1]
        self._seqs = [seq for seq, kind, _ in newest_first if kind != "handoff"]
        self._text = _unescaped(_BETWEEN.join(body for _, kind, body in newest_first if kind != "handoff"))
        self._handoffs = [(seq, _unescaped(body)) for seq, kind, body in newest_first if kind == "handoff"]

    def of(self, facts: Collection[str]) -> dict[str, list[int]]:
        """For each fact the messages that hold it, newest first."""
        found: dict[str, list[int]] = {f: [] for f in facts}
        if self._seqs:
            self._as_pieces({f.encode(): found[f] for f in facts})
        missing = [f for f in facts if not found[f]]
        self._as_words(missing, found)
        for fact in missing:
            said = fact.encode()
            found[fact] = found[fact] or [seq for seq, body in self._handoffs if said in body]
        return found

    def _as_pieces(self, found: dict[bytes, list[int]]) -> None:
        """What stands by itself, at the end of a sentence or not."""
        wanted = found | {fact + b".": seqs for fact, seqs in found.items()}
        names = frozenset(wanted)
        for seq, text in zip(self._seqs, self._text.translate(_TABLE).split(_BETWEEN), strict=True):
            for piece in names.intersection(text.split()):
                seqs = wanted[piece]
                if len(seqs) < MOST_SOURCES and (not seqs or seqs[-1] != seq):
                    seqs.append(seq)

    def _as_words(self, missing: Sequence[str], found: dict[str, list[int]]) -> None:
        """What stands nowhere by itself may stand inside something longer, or in another case."""
        whole = self._text.lower() if missing else b""
        ends = [m.start() for m in re.finditer(_BETWEEN, whole)]
        for fact in missing:
            needle, at = _needle(fact).encode(), -1
            while len(found[fact]) < MOST_SOURCES and (at := whole.find(needle, at + 1)) >= 0:
                message = bisect_left(ends, at)
                found[fact].append(self._seqs[message])
                # On to the next message: one link to each is enough.
                at = ends[message] if message < len(ends) else len(whole)


def fact_rows(sections: Sequence[SectionRow], links: Links, findings: Collection[str]) -> list[FactRow]:
    """Every fact of every section, in the order of the text. `findings` are what the checks wrote down, this handoff's
    and those of the handoffs it stands on."""
    places = [(s, fact, marks) for s in sections for fact, marks in _facts_of(s.text)]
    sources = links.of({fact for _, fact, _ in places})
    doubted = {f.partition(": ")[2] for f in findings if f.startswith("marked in ")}
    rows = []
    for section, fact, marks in places:
        is_doubted = fact in doubted or _is_marked(section.text, marks)
        if not sources[fact] and not is_doubted and kind_of(fact) in _OWN_WORDS:
            continue
        rows.append(
            FactRow(
                text=fact,
                section=section.title,
                marks=marks,
                sources=sources[fact],
                is_supported=bool(sources[fact]) and not is_doubted,
            )
        )
    return rows


def _facts_of(text: str) -> list[tuple[str, list[Mark]]]:
    """The facts of a text and where they stand in it, in its order."""
    found = [(fact, list(_occurrences(text, fact))) for fact in scan(text)]
    return sorted(((f, m) for f, m in found if m), key=lambda fm: (fm[1][0], fm[0]))


def _occurrences(text: str, fact: str) -> Iterator[Mark]:
    """Where a fact stands by itself, and not inside a longer one."""
    at = text.find(fact)
    while at >= 0:
        end = at + len(fact)
        before, after = text[at - 1 : at], text[end : end + 1]
        if not (_is_word(before) or before in _INSIDE or _is_word(after) or after == "_"):
            yield at, end
        at = text.find(fact, end)


def _is_word(character: str) -> bool:
    """Whether a character carries a fact on; words of other scripts stand beside one without a space."""
    return character.isascii() and character.isalnum()


def _is_marked(text: str, marks: Sequence[Mark]) -> bool:
    """The check marked it where it stands."""
    return any(text[end : end + 4 + len(MARK)].lstrip(_CLOSING).startswith(MARK) for _, end in marks)


def _unescaped(json: bytes) -> bytes:
    """Stored JSON as the text it was, near enough to look for facts in it. Each step runs at memory speed."""
    return json.replace(rb"\\", b"\x01").replace(rb"\n", b"\n").replace(rb"\t", b"\t").replace(b"\x01", b"\\")


def _needle(fact: str) -> str:
    """A path is known again by its last two parts, as the check itself does."""
    if kind_of(fact) == "path" and "\\" not in fact:
        parts = [p for p in fact.split("/") if p not in ("", ".", "~")]
        if len(parts) > 2:
            return "/".join(parts[-2:]).lower()
    return fact.lower()
