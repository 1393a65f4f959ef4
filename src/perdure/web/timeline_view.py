"""The timeline: one story across a conversation's chain of sessions, a page at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.context.history import tokens_of
from perdure.core.messages import ImagePart, Message, ToolCall
from perdure.store.records import Conversation, Span, StoredEvent, TimelinePage, Told
from perdure.web import shapes
from perdure.web.shapes import EventRow, ImageRow, MessageRow, ToolCallRow
from perdure.web.sight import Sight

# Most of what is longer is never read; /open has all of it.
TEXT_CHARS = 8_000
FOLDED_CHARS = 2_000
# Images beyond this are named, not carried: a page of screenshots must not weigh hundreds of megabytes.
_IMAGE_CHARS = 12_000_000
_TARGET_CHARS = 200
# The argument that says most about a call, the best first.
_TELLING = ("command", "path", "pattern", "query", "url", "question", "task", "action", "target")
_KEPT = re.compile(r"\A<persisted-output>\nThe output is ([\d,]+) characters.*?kept at output:(\w+)", re.DOTALL)
# Pictures only: whatever else calls itself an image is not shown as one.
_PICTURE = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/=\s]*\Z")
_SHOWN_EVENTS = ("compaction", "spill", "model_switch", "recovery", "notice", "partial_reply")


def timeline_page(
    sight: Sight,
    conversation: Conversation,
    *,
    before: int | None = None,
    after: int | None = None,
    around: int | None = None,
    limit: int = 100,
) -> shapes.TimelinePage:
    """The newest messages, those before or after one, or those around one; oldest first."""
    page = _stretch(sight, conversation, before=before, after=after, around=around, limit=limit)
    told = page.told
    first, last = (told[0].seq, told[-1].seq) if told else (None, None)
    names = {c.id: c.name for t in told for c in t.entry.message.tool_calls}
    room = _Room(_IMAGE_CHARS)
    return shapes.TimelinePage(
        messages=[_message_row(t, names, room) for t in told],
        events=_events(sight, conversation, told),
        first_seq=first,
        last_seq=last,
        has_before=page.before_seq is not None,
        has_after=page.has_newer,
    )


def target_of(call: ToolCall) -> str:
    """The one argument worth reading at a glance, on one line."""
    given = call.parsed_arguments() or {}
    telling = [v for k in _TELLING if isinstance(v := given.get(k), str) and v.strip()]
    shown = " ".join(telling[0].split()) if telling else ""
    return shown if len(shown) <= _TARGET_CHARS else f"{shown[: _TARGET_CHARS - 1]}…"


class _Room:
    """What is left for images on one page."""

    def __init__(self, chars: int) -> None:
        self.chars = chars

    def takes(self, url: str) -> bool:
        self.chars -= len(url)
        return self.chars >= 0


def _stretch(
    sight: Sight,
    conversation: Conversation,
    *,
    before: int | None,
    after: int | None,
    around: int | None,
    limit: int,
) -> TimelinePage:
    timeline = sight.store.timeline
    if after is not None:
        return timeline.after(conversation.id, after, limit=limit)
    if around is not None:
        # The newest page that has it in its middle; near either end the page is still full.
        before = max(limit, around + limit // 2) + 1
    return timeline.page(conversation.id, before_seq=before, limit=limit)


def _message_row(told: Told, names: Mapping[str, str], room: _Room) -> MessageRow:
    message = told.entry.message
    text = message.text
    most = FOLDED_CHARS if message.kind in ("tool", "handoff") else TEXT_CHARS
    kept = _KEPT.match(text) if message.kind == "tool" else None
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
        images=[_image_row(p, room) for p in message.parts if isinstance(p, ImagePart)],
        tool_calls=[
            ToolCallRow(id=c.id, name=c.name, target=target_of(c), arguments=_arguments(c)) for c in message.tool_calls
        ],
        tool_call_id=message.tool_call_id,
        tool_name=_tool_name(message, names),
        seconds=None,
        output_id=kept[2] if kept else None,
        output_chars=int(kept[1].replace(",", "")) if kept else None,
        created_at=told.entry.created_at_ms,
    )


def _tool_name(message: Message, names: Mapping[str, str]) -> str | None:
    if message.role != "tool":
        return None
    return message.name or names.get(message.tool_call_id or "")


def _arguments(call: ToolCall) -> Any:
    parsed = call.parsed_arguments()
    return call.arguments[:TEXT_CHARS] if parsed is None else parsed


def _image_row(part: ImagePart, room: _Room) -> ImageRow:
    is_shown = _PICTURE.match(part.url) is not None and room.takes(part.url)
    source = part.url if not part.url.startswith("data:") else f"an image of {len(part.url) * 3 // 4 // 1024:,} KB"
    return ImageRow(data_url=part.url if is_shown else None, source=source)


def _events(sight: Sight, conversation: Conversation, told: Sequence[Told]) -> list[EventRow]:
    if not told:
        return []
    placed = sight.store.moments.events(conversation.id, Span(told[0].seq, told[-1].seq))
    return [_event_row(seq, event) for seq, event in placed if event.kind in _SHOWN_EVENTS]


def _event_row(seq: int, event: StoredEvent) -> EventRow:
    return EventRow(
        kind=event.kind.removesuffix("_reply"),
        after_seq=seq,
        session_id=event.session_id,
        created_at=event.created_at_ms,
        payload=dict(event.payload),
    )
