"""Addresses open messages and outputs that are no longer in the context, page by page.

m:57         one message                         m:120-180    a span of messages; m:3-9,12 several
h:501        the messages a handoff covers       output:o_…   a complete tool output
c_…/m:57     any of these in another conversation of the same user
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from perdure.core.display import split_address
from perdure.core.errors import NotFound
from perdure.core.messages import Entry
from perdure.core.ports import Page
from perdure.store.db.database import Transaction
from perdure.store.outputs import OutputStore
from perdure.store.queries import (
    StoreContext,
    conversation_id_of,
    get_conversation,
    lineage_of,
    owned_conversation_id_of,
    read_entries,
    read_handoffs,
)
from perdure.store.records import Span, View

_MESSAGES = re.compile(r"m:\d{1,15}(?:-\d{1,15})?(?:,\d{1,15}(?:-\d{1,15})?)*")
_MAX_SPANS = 1_000
_HANDOFF = re.compile(r"h:(\d{1,15})")
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
        text = render_entries(self.entries(inner, conversation_id))
        start = min(max(0, offset), len(text))
        end = start + max(1, limit)
        return Page(address, text[start:end], start, len(text), end if end < len(text) else None)

    def _of_same_user(self, any_id: str, conversation_id: str) -> str:
        """Return the conversation of `any_id` if it belongs to the user of `conversation_id`. Raises NotFound."""

        def load(tx: Transaction) -> str:
            user_key = get_conversation(tx, conversation_id_of(tx, conversation_id)).user_key
            return owned_conversation_id_of(tx, any_id, user_key)

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
            entries = read_entries(tx, lineage, _spans(address))
            if not entries:
                raise NotFound(f"{conversation.id} has no messages {address}; its last is m:{conversation.last_seq}")
            return entries

        return self._context.database.read(load)


def render_entries(entries: Iterable[Entry]) -> str:
    """Format messages as text, each under a header line with its address, kind and time."""
    return "\n\n".join(_render(e) for e in entries)


def _render(entry: Entry) -> str:
    message = entry.message
    moment = datetime.fromtimestamp(entry.created_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    reference = f" · answers {message.tool_call_id}" if message.tool_call_id else ""
    lines = [f"[m:{entry.seq} · {message.kind} · {moment}{reference}]"]
    if message.text:
        lines.append(message.text)
    lines += [f"→ {call.name}({call.arguments}) [{call.id}]" for call in message.tool_calls]
    return "\n".join(lines)


def _spans(address: str) -> View:
    if _MESSAGES.fullmatch(address.strip()) is None:
        raise NotFound(f"{address!r} is not a valid address; examples: m:57, m:120-180, h:501, output:o_… or c_…/m:57")
    spans = [s.split("-") for s in address.strip().removeprefix("m:").split(",")]
    return tuple(Span(int(s[0]), int(s[-1])) for s in spans[:_MAX_SPANS])
