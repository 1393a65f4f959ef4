"""Results the model asked for and has not read: kept whole while they fit, spilled where they do not (C4b).

Spilling is a decision of the view. The log keeps every result whole; what is sent in its place is stored beside the
conversation, so that the same bytes are sent with every call and after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from perdure.core.messages import Entry, Message, TextPart, ToolCall
from perdure.core.ports import KeyValue, StoredOutput
from perdure.tools.budgets import OutputLimiter, ToolOutcome
from perdure.tools.registry import ToolRegistry
from perdure.tools.tool import ToolReply

_KEY = "spilled_results"
# Older ones were compacted away long ago.
_MOST_KEPT = 200
_PERSISTED = "<persisted-output>"


class SpilledResults:
    """What stands in the view for results that did not fit, by the seq of the message."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state
        stored = state.get(_KEY)
        self._texts: dict[int, str] = {int(k): v for k, v in stored.items()} if isinstance(stored, dict) else {}
        # The same entry each time: what was computed of it is kept with it.
        self._entries: dict[int, Entry] = {}

    def add(self, texts: Mapping[int, str]) -> None:
        """Persisted when this returns, before anything is sent with it."""
        newest = sorted({**self._texts, **texts}.items())[-_MOST_KEPT:]
        self._texts = dict(newest)
        self._entries = {seq: e for seq, e in self._entries.items() if seq not in texts}
        self._state.set(_KEY, {str(seq): text for seq, text in newest})

    def of(self, entry: Entry) -> Entry:
        """The result as it is sent; the entry itself where it was not spilled."""
        text = self._texts.get(entry.seq)
        if text is None:
            return entry
        shown = self._entries.get(entry.seq)
        if shown is None:
            shown = self._entries[entry.seq] = Entry(entry.seq, with_text(entry.message, text), entry.created_at_ms)
        return shown


def with_text(message: Message, text: str) -> Message:
    """The result with another text; pictures behind it stay."""
    if isinstance(message.content, tuple):
        pictures = tuple(p for p in message.parts if not isinstance(p, TextPart))
        return message.with_content((TextPart(text), *pictures))
    return message.with_content(text)


def spill_results(
    entries: Sequence[Entry],
    *,
    budgets: OutputLimiter,
    registry: ToolRegistry,
    conversation_id: str,
    is_enough: Callable[[Mapping[int, str]], bool],
) -> tuple[dict[int, str], list[tuple[ToolCall, StoredOutput]]]:
    """Spills results of the group `entries` (a calling message first) in the order of H2 until `is_enough`.

    Returns the texts to send instead, by seq, and where the whole outputs went.
    """
    calls = {call_id: call for call in entries[0].message.tool_calls for call_id in call.ids}
    # A preview already has its whole output elsewhere.
    results = [e for e in entries if e.message.role == "tool" and not e.message.text.startswith(_PERSISTED)]
    outcomes = [_outcome(e.message, calls.get(e.message.tool_call_id or ""), registry) for e in results]

    def changed(now: Sequence[ToolOutcome]) -> dict[int, str]:
        pairs = zip(results, outcomes, now, strict=True)
        return {e.seq: new.reply.text for e, old, new in pairs if new.reply.text != old.reply.text}

    done = budgets.spill(outcomes, conversation_id, is_enough=lambda now: is_enough(changed(now)))
    stored = [
        (calls[new.call_id], new.spilled)
        for old, new in zip(outcomes, done, strict=True)
        if new.spilled is not None and new.spilled is not old.spilled and new.call_id in calls
    ]
    return changed(done), stored


def _outcome(message: Message, call: ToolCall | None, registry: ToolRegistry) -> ToolOutcome:
    name = message.name or (call.name if call is not None else "")
    tool = registry.find(name) if name in registry else None
    is_reader = tool is not None and tool.max_result_chars == 0
    source = _source(call) if is_reader and call is not None else None
    return ToolOutcome(tool, message.tool_call_id or "", ToolReply(message.text, source=source))


def _source(call: ToolCall) -> str | None:
    """What a reading call read, from its arguments."""
    try:
        given = json.loads(call.arguments or "{}")
    except ValueError:
        return None
    path = given.get("path") if isinstance(given, dict) else None
    if not isinstance(path, str):
        return None
    offset = given.get("offset")
    return f"{path} (from line {offset})" if isinstance(offset, int) and offset > 1 else path
