"""Facts of a handoff and the messages that hold them, linked both ways in one pass over the sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from perdure.context.facts.kinds import kind_of
from perdure.context.facts.scan import scan
from perdure.context.grounding import MARK
from perdure.core.messages import Entry
from perdure.web.shapes import FactRow, SectionRow

# A fact that stands in hundreds of messages is linked to the newest of them.
MOST_SOURCES = 50
# What a handoff may say in its own words: with no source it is no fact, not an unsupported one.
_OWN_WORDS = ("name", "dotted", "pair")
_INSIDE = "_/.-\\"


class Links:
    """Which messages hold which facts."""

    def __init__(self, sources: Iterable[Entry]) -> None:
        self._sources = sorted(sources, key=lambda e: -e.seq)

    def of(self, facts: Collection[str]) -> dict[str, list[int]]:
        """For each fact the messages that hold it, newest first."""
        found: dict[str, list[int]] = {f: [] for f in facts}
        wanted = frozenset(facts)
        texts: list[str] = []
        for entry in self._sources:
            text = _text_of(entry)
            texts.append(text)
            for fact in wanted & scan(text):
                if len(found[fact]) < MOST_SOURCES:
                    found[fact].append(entry.seq)
        self._look_closer([f for f in facts if not found[f]], texts, found)
        return found

    def _look_closer(self, missing: Sequence[str], texts: Sequence[str], found: dict[str, list[int]]) -> None:
        """What no message has as a fact of its own may stand inside a longer one, or in another case."""
        if not missing:
            return
        whole = "\n".join(texts).lower()
        for fact in missing:
            needle = _needle(fact)
            if needle in whole:
                held = (e.seq for e, text in zip(self._sources, texts, strict=True) if needle in text.lower())
                found[fact] = [seq for _, seq in zip(range(MOST_SOURCES), held, strict=False)]


def fact_rows(sections: Sequence[SectionRow], links: Links, findings: Sequence[str]) -> list[FactRow]:
    """Every fact of every section, in the order of the text."""
    places = [(s, fact, marks) for s in sections for fact, marks in _facts_of(s.text)]
    sources = links.of({fact for _, fact, _ in places})
    rows = []
    for section, fact, marks in places:
        is_doubted = _is_doubted(section, fact, marks, findings)
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


def _facts_of(text: str) -> list[tuple[str, list[tuple[int, int]]]]:
    """The facts of a text and where they stand in it, in its order."""
    found = [(fact, list(_occurrences(text, fact))) for fact in scan(text)]
    return sorted(((f, m) for f, m in found if m), key=lambda fm: (fm[1][0], fm[0]))


def _occurrences(text: str, fact: str) -> Iterator[tuple[int, int]]:
    """Where a fact stands by itself, and not inside a longer one."""
    at = text.find(fact)
    while at >= 0:
        end = at + len(fact)
        before, after = text[at - 1 : at], text[end : end + 1]
        is_inside = before.isalnum() or (before != "" and before in _INSIDE) or after.isalnum() or after == "_"
        if not is_inside:
            yield at, end
        at = text.find(fact, end)


def _is_doubted(section: SectionRow, fact: str, marks: Sequence[tuple[int, int]], findings: Sequence[str]) -> bool:
    """The check marked it: in place, or in what it wrote down."""
    in_place = any(section.text[end : end + 4 + len(MARK)].lstrip("`\"'”」』»* ").startswith(MARK) for _, end in marks)
    return in_place or f"marked in {section.title}: {fact}" in findings


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
