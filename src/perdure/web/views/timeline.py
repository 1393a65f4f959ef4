"""The timeline of a conversation, page by page: messages, tool calls, images and events."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.context.compaction_input import tokens_of
from perdure.core.display import call_target
from perdure.core.errors import StoreError
from perdure.core.messages import ImagePart, Message, OtherPart, Part, ToolCall, clean
from perdure.store.records import Conversation, Span, StoredEvent, TimelineEntry, TimelinePage, ToolRun
from perdure.tools.runtime import INTERRUPTED
from perdure.web import schemas
from perdure.web.schemas import EventRow, ImageRow, MessageRow, ToolCallRow
from perdure.web.scoped_store import ScopedStore

# Images beyond this many characters per page are named instead of included.
_PAGE_CHARS = 12_000_000
# Other types that claim to be images are not shown.
_PICTURE = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/=\s]*\Z")


class ImageRoom:
    """Remaining byte budget for the images of one page."""

    def __init__(self, chars: int = _PAGE_CHARS) -> None:
        self._chars = chars

    def takes(self, url: str) -> bool:
        if len(url) > self._chars:
            return False
        self._chars -= len(url)
        return True


def image_rows(message: Message, room: ImageRoom) -> list[ImageRow]:
    """Return every image of a message, in its order."""
    if isinstance(message.content, str):
        return []
    return [_row(url, room) for part in message.parts if (url := _url_of(part)) is not None]


def _row(url: str, room: ImageRoom) -> ImageRow:
    is_inline = url.startswith("data:")
    source = f"an image of {max(1, len(url) * 3 // 4 // 1024):,} KB" if is_inline else url
    is_shown = _PICTURE.match(url) is not None and room.takes(url)
    return ImageRow(data_url=url if is_shown else None, source=source)


def _url_of(part: Part) -> str | None:
    """Return the address of an image part, in the format of any provider."""
    if isinstance(part, ImagePart):
        return part.url
    if not isinstance(part, OtherPart):
        return None
    raw = part.raw
    if raw.get("type") == "input_image" and isinstance(raw.get("image_url"), str):
        return str(raw["image_url"])
    source = raw.get("source")
    if raw.get("type") == "image" and isinstance(source, Mapping):
        if isinstance(source.get("url"), str):
            return str(source["url"])
        return f"data:{source.get('media_type', '')};base64,{source.get('data', '')}"
    return None


_TARGET_CHARS = 200
_ARGUMENT_CHARS = 2_000
_MOST_ITEMS = 100
_DEEPEST = 8
# The marker of a stored output in a tool result: at the start of the result, behind
# at most one line of the tool's own (`[exit 0]`). Anywhere else it is ordinary text.
_STORED_OUTPUT = re.compile(
    r"(\[[^\n]{0,200}\]\n)?<persisted-output>\nThe output is ([\d,]{1,20}) characters [^\n]{0,200}? kept at "
    r"output:(\w{1,60})[^\n]{0,300}\n[^\n]{0,300}\n\n"
)
_STORED_OUTPUT_END = "\n</persisted-output>"
_EXIT = re.compile(r"\[exit (\d{1,3})\](?:\n|\Z)")


@dataclass(frozen=True, slots=True)
class KeptOutput:
    id: str
    chars: int
    # Both ends of the output, without the directions meant for the model.
    preview: str


def tool_call_row(call: ToolCall) -> ToolCallRow:
    call = call.dispatched
    parsed = call.parsed_arguments()
    arguments = call.arguments if parsed is None else parsed
    preview_args = truncate_value(arguments)
    return ToolCallRow(
        id=call.id,
        name=call.name,
        target=call_target(call, max_chars=_TARGET_CHARS),
        arguments=preview_args,
        is_cut=preview_args != arguments,
        is_for_client=call.is_for_client,
    )


def kept_output(text: str) -> KeptOutput | None:
    """Return the stored output that a shortened result refers to; None if the result is complete."""
    match = _STORED_OUTPUT.match(text)
    if match is None:
        return None
    preview = (match[1] or "") + text[match.end() :].removesuffix(_STORED_OUTPUT_END)
    return KeptOutput(match[3], int(match[2].replace(",", "")), preview)


def guess_run(message: Message) -> ToolRun:
    """Derive how a call ended from the text of its result, for conversations stored before this was recorded."""
    text = message.text
    if text.startswith(INTERRUPTED):
        return ToolRun(state="interrupted")
    if message.name in (None, "terminal") and (match := _EXIT.match(text)):
        code = int(match[1])
        return ToolRun(state="failed" if code else "completed", exit_code=code)
    return ToolRun(state="failed" if text.startswith("Error: ") else "completed")


def truncate_value(value: Any, depth: int = 0) -> Any:
    """Return a JSON-like value with long texts and lists truncated."""
    if isinstance(value, str):
        # JSON can escape a lone surrogate, which cannot be encoded.
        return clean(value) if len(value) <= _ARGUMENT_CHARS else f"{clean(value[:_ARGUMENT_CHARS])}…"
    if depth >= _DEEPEST and isinstance(value, Mapping | list):
        return "…"
    if isinstance(value, Mapping):
        items = list(value.items())[:_MOST_ITEMS]
        return {clean(str(k)[:_ARGUMENT_CHARS]): truncate_value(v, depth + 1) for k, v in items}
    if isinstance(value, list):
        return [truncate_value(v, depth + 1) for v in value[:_MOST_ITEMS]]
    return value


# Longer texts are truncated; /open returns all of them.
TEXT_CHARS = 8_000
# Answers are rendered as Markdown, which a cut would break: nearly all of them fit.
ANSWER_CHARS = 40_000
FOLDED_CHARS = 2_000
_SHOWN_CHARS = {"tool": FOLDED_CHARS, "handoff": TEXT_CHARS, "assistant": ANSWER_CHARS}
_SHOWN_EVENTS = frozenset(
    {"compaction", "spill", "model_switch", "recovery", "notice", "partial_reply", "undo"}
    | {"turn_failed", "turn_stopped", "model_refused"}
)
# How far beyond its ends a page searches for the call of a result, and for the results of a call.
_MOST_RESULTS = 500
_STEP = 50


@dataclass(frozen=True, slots=True)
class TimelineCursor:
    """Position of a page: before, after or around a message, or at the end."""

    before: int | None = None
    after: int | None = None
    around: int | None = None

    def __post_init__(self) -> None:
        if sum(at is not None for at in (self.before, self.after, self.around)) > 1:
            raise StoreError("give one of before, after and around, not several")


def timeline_page(
    scope: ScopedStore, conversation: Conversation, cursor: TimelineCursor, *, limit: int = 100
) -> schemas.TimelineResponse:
    """Return a page of the timeline, oldest first."""
    page = _stretch(scope, conversation, cursor, limit)
    if cursor.before is None:  # a client paging backwards has them already
        page = _with_results(scope, page)
    entries = page.entries
    return schemas.TimelineResponse(
        messages=_Rows(scope, conversation, entries).all(),
        events=_events(scope, conversation, entries),
        first_seq=entries[0].seq if entries else None,
        last_seq=entries[-1].seq if entries else None,
        has_before=entries[0].seq > 1 if entries else cursor.after is not None and conversation.last_seq > 0,
        has_after=page.has_newer if entries else cursor.after is None and conversation.last_seq > 0,
    )


def _stretch(scope: ScopedStore, conversation: Conversation, cursor: TimelineCursor, limit: int) -> TimelinePage:
    timeline = scope.store.timeline
    if cursor.after is not None:
        return timeline.after(conversation.id, cursor.after, limit=limit)
    before = cursor.before
    if cursor.around is not None:
        # The message is centred; near either end the page is still full.
        before = max(limit, cursor.around + limit // 2) + 1
    return timeline.page(conversation.id, before_seq=before, limit=limit)


def _with_results(scope: ScopedStore, page: TimelinePage) -> TimelinePage:
    """Extend a page beyond its limit by the results of its last tool calls, so that no page ends between the two."""
    entries = list(page.entries)
    limit = len(entries) + _MOST_RESULTS
    while entries and len(entries) < limit and _may_have_results(entries[-1]):
        following = scope.store.timeline.after(page.conversation_id, entries[-1].seq, limit=_STEP).entries
        results = list(itertools.takewhile(lambda t: t.entry.message.role == "tool", following))
        entries += results
        if len(results) < len(following) or not following:
            break
    return replace(page, entries=tuple(entries))


def _may_have_results(entry: TimelineEntry) -> bool:
    return bool(entry.entry.message.tool_calls) or entry.entry.message.role == "tool"


def _before(
    scope: ScopedStore, conversation: Conversation, entries: Sequence[TimelineEntry]
) -> Sequence[TimelineEntry]:
    """Return the entries from the call of a page's first result up to the page; empty if the page starts otherwise."""
    earlier: list[TimelineEntry] = []
    first = entries[0] if entries else None
    while first is not None and first.entry.message.role == "tool" and len(earlier) < _MOST_RESULTS:
        page = scope.store.timeline.page(conversation.id, before_seq=first.seq, limit=_STEP).entries
        earlier = [*page, *earlier]
        first = next((t for t in reversed(page) if t.entry.message.role != "tool"), page[0] if page else None)
    return earlier


class _Rows:
    """Converts the messages of one page to rows, with their tool calls."""

    def __init__(self, scope: ScopedStore, conversation: Conversation, entries: Sequence[TimelineEntry]) -> None:
        self._entries = entries
        self._images = ImageRoom()
        # By the result's seq: some services count their calls afresh in every reply, so ids alone are not enough.
        self._callers = _callers([*_before(scope, conversation, entries), *entries])
        has_tools = any(t.entry.message.role == "tool" for t in entries)
        self._runs: Mapping[tuple[int, str], ToolRun] = (
            scope.store.timeline.tool_runs(conversation.id, _span(entries)) if has_tools else {}
        )

    def all(self) -> list[MessageRow]:
        return [self._row(t) for t in self._entries]

    def _row(self, entries: TimelineEntry) -> MessageRow:
        message = entries.entry.message
        caller, run = self._callers.get(entries.seq), self._run_of(entries)
        stored = kept_output(message.text) if message.role == "tool" else None
        text = message.text if stored is None else stored.preview
        most = _SHOWN_CHARS.get(message.kind, TEXT_CHARS)
        return MessageRow(
            seq=entries.seq,
            session_id=entries.session_id,
            kind=message.kind,
            role=message.role,
            text=text[:most],
            is_cut=len(text) > most,
            chars=len(text),
            tokens=tokens_of(entries.entry),
            reasoning=(message.reasoning or "")[:TEXT_CHARS],
            images=image_rows(message, self._images),
            tool_calls=[tool_call_row(c) for c in message.tool_calls],
            refused_by=message.refused_by,
            cut_off=message.cut_off,
            tool_call_id=message.tool_call_id,
            tool_name=message.name or (caller.name if caller is not None else None) if run is not None else None,
            call_seq=caller.entries.seq if caller is not None else None,
            state=run.state if run is not None else None,
            exit_code=run.exit_code if run is not None else None,
            seconds=self._seconds_of(entries, run),
            output_id=stored.id if stored is not None else None,
            output_chars=stored.chars if stored is not None else None,
            created_at=entries.entry.created_at_ms,
        )

    def _run_of(self, entries: TimelineEntry) -> ToolRun | None:
        """Return how a result's call ended: as recorded, else derived from its text; None for other messages."""
        message = entries.entry.message
        if message.role != "tool":
            return None
        recorded = self._runs.get((entries.entry.created_at_ms, message.tool_call_id or ""), ToolRun())
        if message.tool_state is not None:
            return replace(recorded, state=message.tool_state)
        guessed = guess_run(message)
        return recorded if recorded.state is not None else replace(guessed, seconds=recorded.seconds)

    def _seconds_of(self, entries: TimelineEntry, run: ToolRun | None) -> float | None:
        """Return the measured time; else, for the only call of a reply, the time from reply to result."""
        # The time of a refused call is that of the user's decision.
        if run is None or run.state == "refused":
            return None
        if run.seconds is not None:
            return run.seconds
        caller = self._callers.get(entries.seq)
        if caller is None or len(caller.entries.entry.message.tool_calls) > 1:
            return None
        return max(0, entries.entry.created_at_ms - caller.entries.entry.created_at_ms) / 1_000


@dataclass(frozen=True, slots=True)
class _Caller:
    """The tool call that a result belongs to: its name, and the message that made it."""

    name: str
    entries: TimelineEntry


def _callers(entries: Sequence[TimelineEntry]) -> dict[int, _Caller]:
    """Return, for each result, the newest call before it with the same id."""
    calls: dict[str, _Caller] = {}
    match: dict[int, _Caller] = {}
    for one in entries:
        message = one.entry.message
        calls.update((c.id, _Caller(c.dispatched.name, one)) for c in message.tool_calls)
        if message.role == "tool" and message.tool_call_id in calls:
            match[one.seq] = calls[message.tool_call_id]
    return match


def _events(scope: ScopedStore, conversation: Conversation, entries: Sequence[TimelineEntry]) -> list[EventRow]:
    placed = scope.store.timeline.events_between(conversation.id, _span(entries)) if entries else []
    return [_event_row(seq, event) for seq, event in placed if event.kind in _SHOWN_EVENTS]


def _event_row(seq: int, event: StoredEvent) -> EventRow:
    return EventRow(
        id=event.id,
        kind=event.kind.removesuffix("_reply"),
        after_seq=seq,
        session_id=event.session_id,
        created_at=event.created_at_ms,
        payload=truncate_value(dict(event.payload)),
    )


def _span(entries: Sequence[TimelineEntry]) -> Span:
    return Span(entries[0].seq, entries[-1].seq)
