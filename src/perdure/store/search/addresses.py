"""Addresses open messages and outputs that are no longer in the context, page by page.

m:57         one message                         m:120-180    a span of messages; m:3-9,12 several
h:501        the messages a handoff covers       output:o_…   a complete tool output
w:3          the messages of the third window
c_…/m:57     any of these in another conversation of the same user
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from perdure.core.datastructures import Interval
from perdure.core.display import split_address
from perdure.core.errors import NotFound
from perdure.core.messages import Entry, ImagePart
from perdure.core.ports import LogItem, LogOutline, Page
from perdure.store.db.database import Transaction
from perdure.store.outputs import OutputStore
from perdure.store.queries import (
    StoreContext,
    conversation_id_of,
    get_conversation,
    get_session,
    lineage_of,
    owned_conversation_id_of,
    read_entries,
    read_handoffs,
    view_of,
)
from perdure.store.records import Conversation, Span, View, view_contains
from perdure.store.search.log_text import LogText, render_entry

_MESSAGES = re.compile(r"m:\d{1,15}(?:-\d{1,15})?(?:,\d{1,15}(?:-\d{1,15})?)*")
_MAX_SPANS = 1_000
_HANDOFF = re.compile(r"h:(\d{1,15})")
_WINDOW = re.compile(r"w:(\d{1,9})")
_OUTPUT = re.compile(r"output:(\S+)")


class Addresses:
    """Resolve addresses to text and messages."""

    def __init__(self, context: StoreContext, outputs: OutputStore) -> None:
        self._context = context
        self._outputs = outputs

    def open(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """Return one page of the text at an address. Raises NotFound."""
        address = address.strip()
        owner, inner = split_address(address)
        if output := _OUTPUT.fullmatch(inner):
            return self._outputs.read(output[1], conversation_id=conversation_id, offset=offset, limit=limit)
        if owner is not None:
            conversation_id = self._of_same_user(owner, conversation_id)
        entries = self.entries(inner, conversation_id)
        text = render_entries(entries)
        start = min(max(0, offset), len(text))
        end = start + max(1, limit)
        images = () if start else tuple(p for e in entries for p in e.message.parts if isinstance(p, ImagePart))
        return Page(address, text[start:end], start, len(text), end if end < len(text) else None, images)

    def expand(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """Return one page of the complete text at an address, with the whole of each stored output in its place.

        Raises NotFound.
        """
        owner, inner = split_address(address)
        if output := _OUTPUT.fullmatch(inner):
            return self._outputs.read(output[1], conversation_id=conversation_id, offset=offset, limit=limit)
        if owner is not None:
            conversation_id = self._of_same_user(owner, conversation_id)
        return self._text(self.entries(inner, conversation_id), conversation_id).page(address.strip(), offset, limit)

    def describe(
        self, address: str | None = None, *, conversation_id: str, cursor: int = 0, limit: int = 100
    ) -> LogOutline:
        """Return an outline of what `expand` shows at an address; without one, of the conversation by its windows.

        Raises NotFound.
        """
        if address is None:
            return self._describe_windows(conversation_id, cursor, limit)
        owner, inner = split_address(address)
        if output := _OUTPUT.fullmatch(inner):
            page = self._outputs.read(output[1], conversation_id=conversation_id, limit=1)
            item = LogItem(page.address, "a complete tool output", 0, page.total_chars)
            return LogOutline(page.address, page.total_chars, (item,), None)
        if owner is not None:
            conversation_id = self._of_same_user(owner, conversation_id)
        text = self._text(self.entries(inner, conversation_id), conversation_id)
        return text.outline(address.strip(), cursor, limit)

    def windows(self, any_id: str) -> tuple[Interval, ...]:
        """Return the log positions of each window of a conversation; the last one is open. Raises NotFound."""
        return self._context.database.read(
            lambda tx: windows_of(tx, get_conversation(tx, conversation_id_of(tx, any_id)))
        )

    def _describe_windows(self, conversation_id: str, cursor: int, limit: int) -> LogOutline:
        windows = self.windows(conversation_id)
        address = f"m:1-{windows[-1][1]}"
        entries = self.entries(address, conversation_id) if windows[-1][1] else []
        text = self._text(entries, conversation_id)
        items = [
            LogItem(f"w:{n}", f"m:{lo}-{hi} {title}".strip(), offset, chars)
            for n, ((lo, hi), (offset, chars, title)) in enumerate(
                zip(windows, text.group(windows), strict=True), start=1
            )
        ]
        start, end = max(0, cursor), max(0, cursor) + max(1, limit)
        following = end if end < len(items) else None
        return LogOutline(address, text.total_chars, tuple(items[start:end]), following)

    def _text(self, entries: Iterable[Entry], conversation_id: str) -> LogText:
        def read_output(output_id: str, offset: int, limit: int) -> str:
            return self._outputs.read(output_id, conversation_id=conversation_id, offset=offset, limit=limit).text

        owners = self._context.database.read(
            lambda tx: [
                owner for owner, _, _ in lineage_of(tx, get_conversation(tx, conversation_id_of(tx, conversation_id)))
            ]
        )
        outputs = {output.id: output for owner in owners for output in self._outputs.list(owner)}
        return LogText(entries, outputs, read_output)

    def _of_same_user(self, any_id: str, conversation_id: str) -> str:
        """Return the conversation of `any_id` if it belongs to the user of `conversation_id`. Raises NotFound."""

        def load(tx: Transaction) -> str:
            user = get_conversation(tx, conversation_id_of(tx, conversation_id)).user
            return owned_conversation_id_of(tx, any_id, user)

        return self._context.database.read(load)

    def entries(self, address: str, any_id: str) -> list[Entry]:
        """Return the messages at an address. Raises NotFound."""

        def load(tx: Transaction) -> list[Entry]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            lineage = lineage_of(tx, conversation)
            if handoff := _HANDOFF.fullmatch(address.strip()):
                stored = read_handoffs(tx, lineage).get(int(handoff[1]))
                if stored is None:
                    raise NotFound(f"{address} is not a handoff of {conversation.id}")
                return read_entries(tx, lineage, stored.covers)
            if window := _WINDOW.fullmatch(address.strip()):
                return read_entries(tx, lineage, [Span(*_nth_window(tx, conversation, int(window[1])))])
            entries = read_entries(tx, lineage, _spans(address))
            if not entries:
                raise NotFound(f"{conversation.id} has no messages {address}; its last is m:{conversation.last_seq}")
            return entries

        return self._context.database.read(load)


def windows_of(tx: Transaction, conversation: Conversation) -> tuple[Interval, ...]:
    """Return the log positions of each window: one begins with each handoff that the newest view builds on."""
    handoffs = read_handoffs(tx, lineage_of(tx, conversation))
    view = view_of(tx, get_session(tx, conversation.tip_session_id), conversation.last_seq)
    starts: list[int] = []
    seq = max((s for s in handoffs if view_contains(view, s)), default=None)
    while seq is not None and seq in handoffs and seq not in starts:
        # An edited handoff takes the place of the one before it in the same window.
        if not handoffs[seq].check.get("edited"):
            starts.append(seq)
        seq = handoffs[seq].previous
    bounds = [1, *reversed(starts), conversation.last_seq + 1]
    return tuple((lo, hi - 1) for lo, hi in pairwise(bounds))


def _nth_window(tx: Transaction, conversation: Conversation, number: int) -> Interval:
    windows = windows_of(tx, conversation)
    if not 1 <= number <= len(windows):
        raise NotFound(f"{conversation.id} has no window w:{number}; its last is w:{len(windows)}")
    return windows[number - 1]


def render_entries(entries: Iterable[Entry]) -> str:
    """Format messages as text, each under a header line with its address, kind and time."""
    return "\n\n".join(map(render_entry, entries))


def _spans(address: str) -> View:
    if _MESSAGES.fullmatch(address.strip()) is None:
        raise NotFound(
            f"{address!r} is not a valid address; examples: m:57, m:120-180, h:501, w:3, output:o_… or c_…/m:57"
        )
    spans = [s.split("-") for s in address.strip().removeprefix("m:").split(",")]
    return tuple(Span(int(s[0]), int(s[-1])) for s in spans[:_MAX_SPANS])
