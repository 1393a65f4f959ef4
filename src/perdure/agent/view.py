"""How messages are sent where that differs from what the log holds: spilled results, reasoning and images that stay
behind."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.agent.images import without_images
from perdure.agent.unread import SpilledResults
from perdure.core.messages import Entry, Message
from perdure.providers.reasoning import ReasoningRule, has_reasoning, shorten_reasoning


class SentForms:
    """Derives each entry's sent form, and hands out the same entry for the same form, so that its sizes and bytes are
    computed once."""

    def __init__(self, spilled: SpilledResults, rule: ReasoningRule) -> None:
        self.spilled = spilled
        self._rule = rule
        # By seq, whether its tool loop is still open, and whether it is shortened.
        self._forms: dict[tuple[int, bool, bool], Entry] = {}
        # Up to this seq reasoning is shortened: it did not fit the window.
        self._short_up_to = -1
        # How many of its first images a message is sent without, by seq.
        self.left_out_images: dict[int, int] = {}

    def apply(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries as they are sent."""
        start = loop_start(entries)
        return [self.of(e, is_current=i >= start) for i, e in enumerate(entries)]

    def of(self, entry: Entry, *, is_current: bool) -> Entry:
        form = self._reasoned(entry, is_current=is_current)
        return without_images(form, self.left_out_images.get(entry.seq, 0)) if self.left_out_images else form

    def _reasoned(self, entry: Entry, *, is_current: bool) -> Entry:
        """The form of the message with the reasoning that goes with it, all of its images in place."""
        message = entry.message
        if message.role == "tool":
            return self.spilled.of(entry)
        if message.role != "assistant" or not has_reasoning(message):
            return entry
        is_current, is_short = is_current and bool(message.tool_calls), entry.seq <= self._short_up_to
        key = (entry.seq, is_current, is_short)
        form = self._forms.get(key)
        if form is None:
            sent = self._rule.sent(message, is_current=is_current)
            sent = shorten_reasoning(sent) if is_short else sent
            form = self._forms[key] = entry if sent is message else Entry(entry.seq, sent, entry.created_at_ms)
        return form

    def shorten_reasoning(self, up_to_seq: int) -> None:
        """Of the reasoning that is sent, only the ends from now on, up to the message `up_to_seq`."""
        self._short_up_to = up_to_seq


def loop_start(entries: Sequence[Entry]) -> int:
    """Where the current tool loop begins: behind the newest request or answer."""
    for i in range(len(entries) - 1, -1, -1):
        if ends_loop(entries[i].message):
            return i + 1
    return 0


def ends_loop(message: Message) -> bool:
    return message.is_request or (message.role == "assistant" and not message.tool_calls)
