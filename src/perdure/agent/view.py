"""How messages are sent where that differs from what the log holds: spilled results, reasoning that stays behind."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.agent.unread import SpilledResults
from perdure.core.messages import Entry, Message
from perdure.providers.reasoning import ReasoningRule, has_reasoning


class SentForms:
    """Derives each entry's sent form, and hands out the same entry for the same form, so that its sizes and bytes are
    computed once."""

    def __init__(self, spilled: SpilledResults, rule: ReasoningRule) -> None:
        self.spilled = spilled
        self._rule = rule
        # By seq: the form in an open tool loop, and the one after it.
        self._open: dict[int, Entry] = {}
        self._closed: dict[int, Entry] = {}
        # Up to this seq, reasoning is dropped even in the open loop: it did not fit the window.
        self._dropped_up_to = -1

    def apply(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries as they are sent."""
        start = loop_start(entries)
        return [self.of(e, is_current=i >= start) for i, e in enumerate(entries)]

    def of(self, entry: Entry, *, is_current: bool) -> Entry:
        message = entry.message
        if message.role == "tool":
            return self.spilled.of(entry)
        if message.role != "assistant" or not has_reasoning(message):
            return entry
        is_current = is_current and bool(message.tool_calls) and entry.seq > self._dropped_up_to
        forms = self._open if is_current else self._closed
        form = forms.get(entry.seq)
        if form is None:
            sent = self._rule.sent(message, is_current=is_current)
            form = entry if sent is message else Entry(entry.seq, sent, entry.created_at_ms)
            forms[entry.seq] = form
        return form

    def drop_reasoning(self, up_to_seq: int) -> None:
        """No reasoning of finished steps up to `up_to_seq` is sent any more, but what a service signed."""
        self._dropped_up_to = up_to_seq


def loop_start(entries: Sequence[Entry]) -> int:
    """Where the current tool loop begins: behind the newest request or answer."""
    for i in range(len(entries) - 1, -1, -1):
        if ends_loop(entries[i].message):
            return i + 1
    return 0


def ends_loop(message: Message) -> bool:
    return message.is_request or (message.role == "assistant" and not message.tool_calls)
