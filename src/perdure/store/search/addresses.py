"""Addresses: whatever left the view can be opened by one, page by page, however large.

m:57         one message            m:120-180    an interval
h:501        what a handoff stands for           output:o_…   a tool output kept whole
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from perdure.core.errors import NotFound
from perdure.core.messages import Entry
from perdure.core.ports import Page
from perdure.store.context import StoreContext
from perdure.store.db.database import Transaction
from perdure.store.outputs import OutputStore
from perdure.store.queries import conversation_id_of, get_conversation, lineage_of, read_entries, read_handoffs
from perdure.store.records import Span
from perdure.store.spans import View

_MESSAGES = re.compile(r"m:(\d{1,15})(?:-(\d{1,15}))?")
_HANDOFF = re.compile(r"h:(\d{1,15})")
_OUTPUT = re.compile(r"output:(\S+)")


class Addresses:
    """Opens what an address stands for."""

    def __init__(self, context: StoreContext, outputs: OutputStore) -> None:
        self._context = context
        self._outputs = outputs

    def open(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """One page of it. A message longer than a page goes on in the next. Raises NotFound."""
        address = address.strip()
        if output := _OUTPUT.fullmatch(address):
            return self._outputs.read(output[1], conversation_id=conversation_id, offset=offset, limit=limit)
        text = render_entries(self.entries(address, conversation_id))
        start = min(max(0, offset), len(text))
        end = start + max(1, limit)
        return Page(address, text[start:end], start, len(text), end if end < len(text) else None)

    def entries(self, address: str, any_id: str) -> list[Entry]:
        """The messages an address stands for, as values."""

        def load(tx: Transaction) -> list[Entry]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            lineage = lineage_of(tx, conversation)
            if handoff := _HANDOFF.fullmatch(address.strip()):
                known = read_handoffs(tx, lineage).get(int(handoff[1]))
                if known is None:
                    raise NotFound(f"{address} is no handoff of {conversation.id}")
                return read_entries(tx, lineage, known.covers)
            found = read_entries(tx, lineage, _spans(address))
            if not found:
                raise NotFound(f"{conversation.id} has no messages {address}; its last is m:{conversation.last_seq}")
            return found

        return self._context.database.read(load)


def render_entries(entries: Iterable[Entry]) -> str:
    """Messages as a person or a model reads them, each under a line that says which it is."""
    return "\n\n".join(_rendered(e) for e in entries)


def _rendered(entry: Entry) -> str:
    message = entry.message
    moment = datetime.fromtimestamp(entry.created_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = f" · answers {message.tool_call_id}" if message.tool_call_id else ""
    lines = [f"[m:{entry.seq} · {message.kind} · {moment}{about}]"]
    if message.text:
        lines.append(message.text)
    lines += [f"→ {call.name}({call.arguments}) [{call.id}]" for call in message.tool_calls]
    return "\n".join(lines)


def _spans(address: str) -> View:
    match = _MESSAGES.fullmatch(address.strip())
    if match is None:
        raise NotFound(f"{address!r} is no address; they look like m:57, m:120-180, h:501 or output:o_…")
    lo = int(match[1])
    return (Span(lo, int(match[2] or lo)),)
