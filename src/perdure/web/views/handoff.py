"""A handoff beside its sources, with links from facts and quotes to messages."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from perdure.context.facts.extraction import kind_of, scan
from perdure.context.grounding import MARK
from perdure.context.handoff import parse_handoff
from perdure.core.errors import NotFound
from perdure.core.messages import Entry, Message
from perdure.store.ledger import COMPACTED, prompt_sizes
from perdure.store.records import Conversation, Span, StoredEvent, StoredHandoff
from perdure.store.spans import view_contains
from perdure.web.access import Sight
from perdure.web.schemas import CoverRow, FactRow, HandoffView, SectionRow

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


def handoff_view(sight: Sight, conversation: Conversation, seq: int) -> HandoffView:
    """Everything known of one handoff. Raises NotFound."""
    store = sight.store
    handoffs = store.log.handoffs(conversation.id)
    handoff = handoffs.get(seq)
    if handoff is None:
        raise NotFound(f"h:{seq} is no handoff of {conversation.id}")
    sections = _sections(store.log.read(conversation.id, Span(seq, seq)))
    event = _event_of(handoff, store.ledger.events(handoff.conversation_id, kind="compaction", limit=100_000))
    findings = [str(f) for f in handoff.check.get("findings", ())]
    payload = event.payload if event is not None else {}
    before, after = prompt_sizes(payload)
    # Not only what it stands for: it quotes what was kept beside it too, and that is no less a source.
    sources = store.timeline.bodies(conversation.id, Span(1, seq - 1))
    doubts = _chain_findings(handoff, handoffs)
    return HandoffView(
        seq=seq,
        session_id=handoff.session_id,
        created_at=handoff.created_at_ms,
        model=handoff.model,
        focus=handoff.focus,
        cost_usd=handoff.cost_usd,
        is_digest=not handoff.model,
        previous=handoff.previous,
        before_tokens=before,
        after_tokens=after,
        reason=str(payload.get("reason", "")),
        sections=sections,
        facts=[*quote_rows(sections, sources, doubts), *fact_rows(sections, Links(sources), doubts)],
        covers=[CoverRow(lo=s.lo, hi=s.hi, address=s.address, messages=len(s)) for s in handoff.covers],
        findings=findings,
        can_undo=seq == _newest_standing(handoffs.values(), store.log.view(conversation.id)),
    )


def _chain_findings(handoff: StoredHandoff, handoffs: Mapping[int, StoredHandoff]) -> set[str]:
    """What the checks found in a handoff and in those it carries on: a doubt is not laid by being repeated."""
    found: set[str] = set()
    one: StoredHandoff | None = handoff
    while one is not None:
        found.update(str(f) for f in one.check.get("findings", ()))
        one = handoffs.get(one.previous) if one.previous is not None and one.previous < one.seq else None
    return found


def _sections(entries: Sequence[Entry]) -> list[SectionRow]:
    """As parsed; what is no handoff of ours (an engine may write its own) is one section."""
    text = entries[0].message.text if entries else ""
    parsed = parse_handoff(text)
    if parsed is None or not parsed.sections:
        return [SectionRow(title="StoredHandoff", text=text)]
    return [SectionRow(title=title, text=body) for title, body in parsed.sections.items()]


def _event_of(handoff: StoredHandoff, events: Sequence[StoredEvent]) -> StoredEvent | None:
    """The compaction that wrote it: told in the session it began."""
    made = [e for e in events if e.session_id == handoff.session_id and e.payload.get("outcome") in COMPACTED]
    return made[0] if made else None


def _newest_standing(handoffs: Iterable[StoredHandoff], view: Sequence[Span]) -> int | None:
    """The handoff that an undo would take back."""
    return max((h.seq for h in handoffs if view_contains(view, h.seq)), default=None)
