"""The timeline: one story across a conversation's chain of sessions, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perdure.context.history import tokens_of
from perdure.core.errors import StoreError
from perdure.core.messages import Message
from perdure.store.records import Conversation, Span, StoredEvent, TimelinePage, Told
from perdure.web import shapes
from perdure.web.images import ImageRoom, image_rows
from perdure.web.shapes import EventRow, MessageRow
from perdure.web.sight import Sight
from perdure.web.tool_calls import kept_output, tool_call_row, within

# Most of what is longer is never read; /open has all of it.
TEXT_CHARS = 8_000
FOLDED_CHARS = 2_000
_SHOWN_EVENTS = ("compaction", "spill", "model_switch", "recovery", "notice", "partial_reply", "undo")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the story a page lies: before, after or around a message, or, with none of them, at its end."""

    before: int | None = None
    after: int | None = None
    around: int | None = None

    def __post_init__(self) -> None:
        if sum(at is not None for at in (self.before, self.after, self.around)) > 1:
            raise StoreError("give one of before, after and around, not several")


def timeline_page(sight: Sight, conversation: Conversation, place: Place, *, limit: int = 100) -> shapes.TimelinePage:
    """A page of the story, oldest first."""
    page = _stretch(sight, conversation, place, limit)
    told = page.told
    return shapes.TimelinePage(
        messages=_Rows(sight, conversation, told).all(),
        events=_events(sight, conversation, told),
        first_seq=told[0].seq if told else None,
        last_seq=told[-1].seq if told else None,
        has_before=told[0].seq > 1 if told else place.after is not None and conversation.last_seq > 0,
        has_after=page.has_newer if told else place.after is None and conversation.last_seq > 0,
    )


def _stretch(sight: Sight, conversation: Conversation, place: Place, limit: int) -> TimelinePage:
    timeline = sight.store.timeline
    if place.after is not None:
        return timeline.after(conversation.id, place.after, limit=limit)
    before = place.before
    if place.around is not None:
        # It stands in the middle; near either end the page is full all the same.
        before = max(limit, place.around + limit // 2) + 1
    return timeline.page(conversation.id, before_seq=before, limit=limit)


class _Rows:
    """The messages of one page, with what is known of their tool calls."""

    def __init__(self, sight: Sight, conversation: Conversation, told: Sequence[Told]) -> None:
        self._told = told
        self._images = ImageRoom()
        self._callers = {c.id: (c.name, t) for t in told for c in t.entry.message.tool_calls}
        has_tools = any(t.entry.message.role == "tool" for t in told)
        self._seconds: Mapping[tuple[int, str], float] = (
            sight.store.moments.tool_seconds(conversation.id, _span(told)) if has_tools else {}
        )

    def all(self) -> list[MessageRow]:
        return [self._row(t) for t in self._told]

    def _row(self, told: Told) -> MessageRow:
        message = told.entry.message
        text = message.text
        most = FOLDED_CHARS if message.kind in ("tool", "handoff") else TEXT_CHARS
        kept = kept_output(text) if message.role == "tool" else None
        return MessageRow(
            seq=told.seq,
            session_id=told.session_id,
            kind=message.kind,
            role=message.role,
            text=text[:most],
            is_cut=len(text) > most,
            chars=len(text),
            tokens=tokens_of(told.entry),
            reasoning=(message.reasoning or "")[:TEXT_CHARS],
            images=image_rows(message, self._images),
            tool_calls=[tool_call_row(c) for c in message.tool_calls],
            tool_call_id=message.tool_call_id,
            tool_name=self._tool_name(message),
            seconds=self._seconds_of(told),
            output_id=kept.id if kept is not None else None,
            output_chars=kept.chars if kept is not None else None,
            created_at=told.entry.created_at_ms,
        )

    def _tool_name(self, message: Message) -> str | None:
        if message.role != "tool":
            return None
        caller = self._callers.get(message.tool_call_id or "")
        return message.name or (caller[0] if caller is not None else None)

    def _seconds_of(self, told: Told) -> float | None:
        """As it was measured; else, for a call that was alone in its reply, the time from reply to result."""
        message, at = told.entry.message, told.entry.created_at_ms
        if message.role != "tool":
            return None
        measured = self._seconds.get((at, message.tool_call_id or ""))
        if measured is not None:
            return measured
        caller = self._callers.get(message.tool_call_id or "")
        if caller is None or len(caller[1].entry.message.tool_calls) > 1:
            return None
        return max(0, at - caller[1].entry.created_at_ms) / 1_000


def _events(sight: Sight, conversation: Conversation, told: Sequence[Told]) -> list[EventRow]:
    placed = sight.store.moments.events(conversation.id, _span(told)) if told else []
    return [_event_row(seq, event) for seq, event in placed if event.kind in _SHOWN_EVENTS]


def _event_row(seq: int, event: StoredEvent) -> EventRow:
    return EventRow(
        kind=event.kind.removesuffix("_reply"),
        after_seq=seq,
        session_id=event.session_id,
        created_at=event.created_at_ms,
        payload=within(dict(event.payload)),
    )


def _span(told: Sequence[Told]) -> Span:
    return Span(told[0].seq, told[-1].seq)
