"""Facts of a handoff and the messages that hold them, linked both ways in one pass over the sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from perdure.context.facts.kinds import kind_of
from perdure.context.facts.scan import scan
from perdure.context.grounding import MARK
from perdure.core.messages import Entry
from perdure.web.marks import Mark, for_browser
from perdure.web.shapes import FactRow, SectionRow

# A fact that stands in hundreds of messages is linked to the newest of them.
MOST_SOURCES = 50
# What a handoff may say in its own words: with no source it is no fact, not an unsupported one.
_OWN_WORDS = ("name", "dotted", "pair")
_INSIDE = frozenset("_/.-\\")
_CLOSING = "`\"'”」』»* "


class Links:
    """Which messages hold which facts: what was really said, or, where nothing said does, an earlier handoff."""

    def __init__(self, sources: Iterable[Entry]) -> None:
        newest_first = sorted(sources, key=lambda e: -e.seq)
        self._sources = [e for e in newest_first if e.message.kind != "handoff"]
        self._handoffs = [e for e in newest_first if e.message.kind == "handoff"]

    def of(self, facts: Collection[str]) -> dict[str, list[int]]:
        """For each fact the messages that hold it, newest first."""
        found: dict[str, list[int]] = {f: [] for f in facts}
        texts = [_text_of(e) for e in self._sources]
        wanted = frozenset(facts)
        for entry, text in zip(self._sources, texts, strict=True):
            for fact in wanted & scan(text):
                if len(found[fact]) < MOST_SOURCES:
                    found[fact].append(entry.seq)
        self._look_closer([f for f in facts if not found[f]], texts, found)
        for fact in facts:
            found[fact] = found[fact] or [e.seq for e in self._handoffs if fact in e.message.text]
        return found

    def _look_closer(self, missing: Sequence[str], texts: Sequence[str], found: dict[str, list[int]]) -> None:
        """What no message has as a fact of its own may stand inside a longer one, or in another case."""
        whole = "\n".join(texts).lower() if missing else ""
        for fact in missing:
            needle = _needle(fact)
            if needle in whole:
                held = (e.seq for e, text in zip(self._sources, texts, strict=True) if needle in text.lower())
                found[fact] = list(islice(held, MOST_SOURCES))


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
                marks=for_browser(section.text, marks),
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


def _text_of(entry: Entry) -> str:
    message = entry.message
    if not message.tool_calls:
        return message.text
    return "\n".join((message.text, *(f"{c.name} {c.arguments}" for c in message.tool_calls)))


def _needle(fact: str) -> str:
    """A path is known again by its last two parts, as the check itself does."""
    if kind_of(fact) == "path":
        parts = [p for p in fact.replace("\\", "/").split("/") if p not in ("", ".", "~")]
        if len(parts) > 2:
            return "/".join(parts[-2:]).lower()
    return fact.lower()
