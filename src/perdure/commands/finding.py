"""`/search words` and `/expand [address]`: finds what was said, and opens what a handoff stands for."""

from __future__ import annotations

from datetime import UTC, datetime

from perdure.commands.command import Command, Said, Surface

_PAGE_CHARS = 6_000


def search(surface: Surface, argument: str) -> Said:
    if not argument:
        return Said('/search takes words, a "phrase", or a prefix*', "error")
    hits = surface.store.search(argument, scope={"user": surface.user_key} if surface.user_key else None, limit=15)
    if not hits:
        return Said(f"Nothing found for {argument!r}.")
    lines = []
    for h in hits:
        when = datetime.fromtimestamp(h.created_at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M")
        lines.append(f"{h.address:<10} {h.role:<9} {when}  {h.conversation_id} {h.title}\n    {h.snippet}")
    return Said("\n".join([*lines, "", "Open one with /expand ADDRESS, its conversation with /resume ID."]))


def expand(surface: Surface, argument: str) -> Said:
    """What an address stands for; without one, what the newest handoff stands for."""
    session_id = surface.agent.session_id
    if session_id is None:
        return Said("Nothing has been said yet.", "error")
    address, _, offset = argument.partition(" ")
    if not address:
        handoffs = surface.store.log.handoffs(session_id)
        if not handoffs:
            return Said("This conversation has no handoff yet: everything is still in view.")
        address = max(handoffs.values(), key=lambda h: h.seq).address
    start = int(offset) if offset.strip().isdigit() else 0
    page = surface.store.open(address, conversation_id=session_id, offset=start, limit=_PAGE_CHARS)
    if page.next_offset is None:
        return Said(page.text)
    how = f"/expand {address} {page.next_offset} reads on"
    return Said(f"{page.text}\n[{page.next_offset:,} of {page.total_chars:,} characters; {how}]")


SEARCH = Command("search", "/search words", "find what was said, in every conversation", search)
EXPAND = Command("expand", "/expand [address]", "open what a handoff or an address stands for", expand)
