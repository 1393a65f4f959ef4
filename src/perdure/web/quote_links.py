"""What a handoff quotes of the person, and the messages it was said in."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence

from perdure.context.facts.scan import scan
from perdure.context.grounding import MARK
from perdure.core.messages import Message
from perdure.web.shapes import FactRow, SectionRow

Mark = tuple[int, int]

# A quoted request: lines set off with ">", or words between quotation marks that are long enough to be somebody's.
_QUOTES = re.compile(
    r"(?m)(?P<block>^>.*(?:\n>.*)*)|“([^”\n]{12,})”|\"([^\"\n]{12,})\"|「([^」\n]{4,})」|『([^』\n]{4,})』|«([^»\n]{12,})»"
)
_LEFT_OUT = re.compile(r"…|\.\.\.|\[[^\]]*\]")
_EDGES = " .,;:!?。、"
# A shorter piece could be anybody's; a sign of Chinese or Japanese says as much as three letters.
_SHORTEST, _SHORTEST_SIGNS = 12, 4
_SHOWN_CHARS = 80
_FEWEST_CHARS = 8
_MOST_SOURCES = 10


def quote_rows(
    sections: Sequence[SectionRow], bodies: Sequence[tuple[int, str, bytes]], findings: Collection[str]
) -> list[FactRow]:
    """Every quote that the person's messages hold, and every one that the check doubted; what else stands in quotation
    marks is the handoff's own affair. A quote is marked by its first words: the facts in it have marks of their own."""
    quotes = [(s, mark, _plain(s.text[slice(*mark)])) for s in sections for mark in _marks(s.text)]
    said = _said(bodies) if quotes else []
    doubted = {_flat(f.partition(": ")[2]) for f in findings if f.startswith("marked in ")}
    rows = []
    for section, mark, quote in quotes:
        sources = _sources(quote, said)
        is_doubted = _flat(quote) in doubted or MARK in section.text[mark[1] : mark[1] + len(MARK) + 3]
        first = _first_words(section.text, mark)
        if (sources or is_doubted) and first[0] < first[1]:
            rows.append(
                FactRow(
                    text=section.text[slice(*first)],
                    section=section.title,
                    marks=[first],
                    sources=sources,
                    is_supported=bool(sources) and not is_doubted,
                )
            )
    return rows


def _marks(text: str) -> Iterator[Mark]:
    for found in _QUOTES.finditer(text):
        yield next(found.span(n) for n in range(1, 7) if found[n] is not None)


def _first_words(text: str, mark: Mark) -> Mark:
    """The beginning of a quote, as far as its first fact and no farther than part of a line."""
    start = mark[0] + len(text[slice(*mark)]) - len(text[slice(*mark)].lstrip("> \n"))
    line = text[start : mark[1]].partition("\n")[0]
    stops = [at for fact in scan(line) if (at := line.find(fact)) >= _FEWEST_CHARS]
    end = min([len(line), *stops])
    if end > _SHOWN_CHARS:
        end = line.rfind(" ", 0, _SHOWN_CHARS) if " " in line[:_SHOWN_CHARS] else _SHOWN_CHARS
    return start, start + len(line[:end].rstrip())


def _plain(quote: str) -> str:
    """Without the marks that set it off."""
    return "\n".join(re.sub(r"^> ?", "", line) for line in quote.splitlines()).strip()


def _said(bodies: Sequence[tuple[int, str, bytes]]) -> list[tuple[int, str]]:
    """What the person said, newest first, spacing aside."""
    return [
        (seq, _flat(Message.from_dict(json.loads(body)).text)) for seq, kind, body in bodies[::-1] if kind == "user"
    ]


def _sources(quote: str, said: Sequence[tuple[int, str]]) -> list[int]:
    """Messages that hold all pieces of a quote; dots may stand for what is between them."""
    pieces = [p for piece in _LEFT_OUT.split(_flat(quote)) if _is_telling(p := piece.strip(_EDGES))]
    if not pieces:
        return []
    return [seq for seq, text in said if all(p in text for p in pieces)][:_MOST_SOURCES]


def _is_telling(piece: str) -> bool:
    return len(piece) >= (_SHORTEST if piece.isascii() else _SHORTEST_SIGNS)


def _flat(text: str) -> str:
    for curly, plain in (("“", '"'), ("”", '"'), ("‘", "'"), ("’", "'")):
        text = text.replace(curly, plain)
    return " ".join(text.split()).lower()
