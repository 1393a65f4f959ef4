"""What an address of a conversation stands for, a page at a time: messages, what a handoff covers, a tool's output."""

from __future__ import annotations

from perdure.store.records import Conversation
from perdure.web.shapes import OpenedPage
from perdure.web.sight import Sight


def opened_page(sight: Sight, conversation: Conversation, address: str, *, offset: int, limit: int) -> OpenedPage:
    """Raises NotFound for what this conversation does not have."""
    page = sight.store.open(address, conversation_id=conversation.id, offset=offset, limit=limit)
    return OpenedPage(
        address=page.address,
        text=page.text,
        offset=page.offset,
        total_chars=page.total_chars,
        next_offset=page.next_offset,
    )
