"""The handoff view: a handoff with its sources, with links from its facts and quotes to messages."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from perdure.context.exact_values import FACT_DELIMITERS, kind_of, scan
from perdure.context.handoff import Handoff, parse_handoff
from perdure.context.summary_check import MARK
from perdure.core.errors import NotFound
from perdure.core.messages import Message
from perdure.store.ledger import COMPACTED, prompt_sizes
from perdure.store.records import Conversation, Span, StoredEvent, StoredHandoff, view_contains
from perdure.web.schemas import CoverRow, FactRow, HandoffView, SectionRow
from perdure.web.scoped_store import ScopedStore

Mark = tuple[int, int]

# A fact that occurs in hundreds of messages is linked to the newest ones.
MOST_SOURCES = 50
# Wording of the handoff itself: without a source it is not listed, rather than listed as unsupported.
_OWN_WORDS = ("name", "dotted", "pair")
_INSIDE = frozenset("_/.-\\")
_CLOSING = "`\"'”」』»* "


# A line end separates pieces as well: what is searched for has none.
_ENDS = FACT_DELIMITERS + b"\n\t"
_TABLE = bytes.maketrans(_ENDS, b" " * len(_ENDS))
_BETWEEN = b"\0"


class Links:
    """Finds the messages that contain a fact of the handoff; earlier handoffs only if no message does.

    Messages are searched as stored, as one text: decoding ten thousand of them would take longer than the search.
    """

    def __init__(self, bodies: Sequence[tuple[int, str, bytes]]) -> None:
        newest_first = bodies[::-1]
        self._seqs = [seq for seq, kind, _ in newest_first if kind != "handoff"]
        self._text = _unescape_json(_BETWEEN.join(body for _, kind, body in newest_first if kind != "handoff"))
        self._handoffs = [(seq, _unescape_json(body)) for seq, kind, body in newest_first if kind == "handoff"]

    def of(self, facts: Collection[str]) -> dict[str, list[int]]:
        """Return, for each fact, the seqs of the messages that contain it, newest first."""
        matches: dict[str, list[int]] = {f: [] for f in facts}
        if self._seqs:
            self._as_pieces({f.encode(): matches[f] for f in facts})
        missing = [f for f in facts if not matches[f]]
        self._as_words(missing, matches)
        for fact in missing:
            needle_bytes = fact.encode()
            matches[fact] = matches[fact] or [seq for seq, body in self._handoffs if needle_bytes in body]
        return matches

    def _as_pieces(self, matches: dict[bytes, list[int]]) -> None:
        """Match facts as whole words or paths, also at the end of a sentence."""
        targets = matches | {fact + b".": seqs for fact, seqs in matches.items()}
        names = frozenset(targets)
        for seq, text in zip(self._seqs, self._text.translate(_TABLE).split(_BETWEEN), strict=True):
            for piece in names.intersection(text.split()):
                seqs = targets[piece]
                if len(seqs) < MOST_SOURCES and (not seqs or seqs[-1] != seq):
                    seqs.append(seq)

    def _as_words(self, missing: Sequence[str], matches: dict[str, list[int]]) -> None:
        """Match the remaining facts inside longer words, ignoring case."""
        whole = self._text.lower() if missing else b""
        ends = [m.start() for m in re.finditer(_BETWEEN, whole)]
        for fact in missing:
            needle, at = _needle(fact).encode(), -1
            while len(matches[fact]) < MOST_SOURCES and (at := whole.find(needle, at + 1)) >= 0:
                message = bisect_left(ends, at)
                matches[fact].append(self._seqs[message])
                # On to the next message: one link to each is enough.
                at = ends[message] if message < len(ends) else len(whole)


def fact_rows(sections: Sequence[SectionRow], links: Links, findings: Collection[str]) -> list[FactRow]:
    """Return every fact of every section, in order; `findings` are facts that the summary check doubted."""
    occurrences = [(s, fact, marks) for s in sections for fact, marks in _facts_of(s.text)]
    sources = links.of({fact for _, fact, _ in occurrences})
    doubted = {f.partition(": ")[2] for f in findings if f.startswith("marked in ")}
    rows = []
    for section, fact, marks in occurrences:
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
    """Return the facts of a text and their positions, in order."""
    matches = [(fact, list(_occurrences(text, fact))) for fact in scan(text)]
    return sorted(((f, m) for f, m in matches if m), key=lambda fm: (fm[1][0], fm[0]))


def _occurrences(text: str, fact: str) -> Iterator[Mark]:
    """Yield the positions of a fact in a text, except inside a longer one."""
    at = text.find(fact)
    while at >= 0:
        end = at + len(fact)
        before, after = text[at - 1 : at], text[end : end + 1]
        if not (_is_word(before) or before in _INSIDE or _is_word(after) or after == "_"):
            yield at, end
        at = text.find(fact, end)


def _is_word(character: str) -> bool:
    """Whether a character continues a fact; other scripts need no space beside one."""
    return character.isascii() and character.isalnum()


def _is_marked(text: str, marks: Sequence[Mark]) -> bool:
    """Whether the summary check marked this occurrence."""
    return any(text[end : end + 4 + len(MARK)].lstrip(_CLOSING).startswith(MARK) for _, end in marks)


def _unescape_json(json: bytes) -> bytes:
    """Undo the JSON escapes that matter for finding facts; each step runs at memory speed."""
    return json.replace(rb"\\", b"\x01").replace(rb"\n", b"\n").replace(rb"\t", b"\t").replace(b"\x01", b"\\")


def _needle(fact: str) -> str:
    """Return the text to search for a fact: of a path its last two parts, as the summary check does."""
    if kind_of(fact) == "path" and "\\" not in fact:
        parts = [p for p in fact.split("/") if p not in ("", ".", "~")]
        if len(parts) > 2:
            return "/".join(parts[-2:]).lower()
    return fact.lower()


# A quoted request: lines prefixed with ">", or a long enough text between quotation marks.
_QUOTES = re.compile(
    r"(?m)(?P<block>^>.*(?:\n>.*)*)|“([^”\n]{12,3000}+)”|\"([^\"\n]{12,})\""
    r"|「([^」\n]{4,3000}+)」|『([^』\n]{4,3000}+)』|«([^»\n]{12,3000}+)»"
)
_LEFT_OUT = re.compile(r"…|\.\.\.|\[[^\]]*\]")
_EDGES = " .,;:!?。、"
# A shorter piece is ambiguous; one Chinese or Japanese character counts as three letters.
_SHORTEST, _SHORTEST_SIGNS = 12, 4
_SHOWN_CHARS = 80
_FEWEST_CHARS = 8
_MOST_SOURCES = 10


def quote_rows(
    sections: Sequence[SectionRow], bodies: Sequence[tuple[int, str, bytes]], findings: Collection[str]
) -> list[FactRow]:
    """Return the quotes of user messages in a handoff, and quotes that the summary check doubted.

    A quote is highlighted by its first words only, since the facts in it have highlights of their own.
    """
    quotes = [(s, mark, _plain(s.text[slice(*mark)])) for s in sections for mark in _marks(s.text)]
    needle_bytes = _user_texts(bodies) if quotes else []
    doubted = {_flat(f.partition(": ")[2]) for f in findings if f.startswith("marked in ")}
    rows = []
    for section, mark, quote in quotes:
        sources = _sources(quote, needle_bytes)
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
    for matches in _QUOTES.finditer(text):
        yield next(matches.span(n) for n in range(1, 7) if matches[n] is not None)


def _first_words(text: str, mark: Mark) -> Mark:
    """Return the beginning of a quote, as far as its first fact and no farther than part of a line."""
    start = mark[0] + len(text[slice(*mark)]) - len(text[slice(*mark)].lstrip("> \n"))
    line = text[start : mark[1]].partition("\n")[0]
    stops = [at for fact in scan(line) if (at := line.find(fact)) >= _FEWEST_CHARS]
    end = min([len(line), *stops])
    if end > _SHOWN_CHARS:
        end = line.rfind(" ", 0, _SHOWN_CHARS) if " " in line[:_SHOWN_CHARS] else _SHOWN_CHARS
    return start, start + len(line[:end].rstrip())


def _plain(quote: str) -> str:
    """Return the quote without its quotation marks."""
    return "\n".join(re.sub(r"^> ?", "", line) for line in quote.splitlines()).strip()


def _user_texts(bodies: Sequence[tuple[int, str, bytes]]) -> list[tuple[int, str]]:
    """User messages, newest first, with normalized whitespace."""
    return [
        (seq, _flat(Message.from_dict(json.loads(body)).text)) for seq, kind, body in bodies[::-1] if kind == "user"
    ]


def _sources(quote: str, needle_bytes: Sequence[tuple[int, str]]) -> list[int]:
    """Return the seqs of the messages that contain all pieces of a quote, which an ellipsis separates."""
    pieces = [p for piece in _LEFT_OUT.split(_flat(quote)) if _is_telling(p := piece.strip(_EDGES))]
    if not pieces:
        return []
    return [seq for seq, text in needle_bytes if all(p in text for p in pieces)][:_MOST_SOURCES]


def _is_telling(piece: str) -> bool:
    return len(piece) >= (_SHORTEST if piece.isascii() else _SHORTEST_SIGNS)


def _flat(text: str) -> str:
    for curly, plain in (("“", '"'), ("”", '"'), ("‘", "'"), ("’", "'")):
        text = text.replace(curly, plain)
    return " ".join(text.split()).lower()


def handoff_view(scope: ScopedStore, conversation: Conversation, seq: int) -> HandoffView:
    """Return everything the web UI shows of one handoff. Raises NotFound."""
    store = scope.store
    handoffs = store.log.handoffs(conversation.id)
    handoff = handoffs.get(seq)
    if handoff is None:
        raise NotFound(f"h:{seq} is no handoff of {conversation.id}")
    entries = store.log.read(conversation.id, Span(seq, seq))
    text = entries[0].message.text if entries else ""
    parsed = parse_handoff(text)
    sections = _sections(text, parsed)
    event = _event_of(handoff, store.ledger.events(handoff.conversation_id, kind="compaction", limit=100_000))
    findings = [str(f) for f in handoff.check.get("findings", ())]
    payload = event.payload if event is not None else {}
    before, after = prompt_sizes(payload)
    # Kept messages are sources, too: a handoff may quote them.
    sources = store.timeline.bodies(conversation.id, Span(1, seq - 1))
    doubts = _chain_findings(handoff, handoffs)
    view = store.log.view(conversation.id)
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
        record=parsed.record if parsed is not None else "",
        index=parsed.index if parsed is not None else "",
        facts=[*quote_rows(sections, sources, doubts), *fact_rows(sections, Links(sources), doubts)],
        covers=[CoverRow(lo=s.lo, hi=s.hi, address=s.address, messages=len(s)) for s in handoff.covers],
        message_count=_message_count(parsed, handoff),
        findings=findings,
        standing=_classify_handoff(seq, handoffs, view),
        can_undo=seq == _newest_standing(handoffs.values(), view),
    )


def _chain_findings(handoff: StoredHandoff, handoffs: Mapping[int, StoredHandoff]) -> set[str]:
    """Findings of a handoff and of those it builds on: repetition does not settle a doubt."""
    matches: set[str] = set()
    one: StoredHandoff | None = handoff
    while one is not None:
        matches.update(str(f) for f in one.check.get("findings", ()))
        one = handoffs.get(one.previous) if one.previous is not None and one.previous < one.seq else None
    return matches


def _sections(text: str, parsed: Handoff | None) -> list[SectionRow]:
    """Return the parsed sections; the text of a plug-in's engine is one section."""
    if parsed is None or not (parsed.sections or parsed.record):
        return [SectionRow(title="Handoff", text=text)]
    return [SectionRow(title=title, text=body) for title, body in parsed.sections.items()]


def _event_of(handoff: StoredHandoff, events: Sequence[StoredEvent]) -> StoredEvent | None:
    """Return the compaction event that created a handoff, recorded in the session it began."""
    compactions = [e for e in events if e.session_id == handoff.session_id and e.payload.get("outcome") in COMPACTED]
    return compactions[0] if compactions else None


def _message_count(parsed: Handoff | None, handoff: StoredHandoff) -> int:
    """Return how many messages a handoff replaces, as its own text states; by its spans if the text has no count."""
    count = parsed.message_count if parsed is not None else 0
    return count or sum(map(len, handoff.covers))


def _classify_handoff(
    seq: int, handoffs: Mapping[int, StoredHandoff], view: Sequence[Span]
) -> Literal["current", "replaced", "undone"]:
    """Return whether a handoff is in the current view, was replaced by a later one, or was undone."""
    if view_contains(view, seq):
        return "current"
    later = _newest_standing(handoffs.values(), view)
    for _ in handoffs:  # a damaged handoff may claim to have replaced itself
        if later is None:
            break
        replaced = handoffs[later].replaced
        if view_contains(replaced, seq):
            return "replaced"
        later = _newest_standing(handoffs.values(), replaced)
    return "undone"


def _newest_standing(handoffs: Iterable[StoredHandoff], view: Sequence[Span]) -> int | None:
    """Return the handoff that an undo would remove."""
    return max((h.seq for h in handoffs if view_contains(view, h.seq)), default=None)
