"""What another process did with the conversation at hand, in words for the person who goes on with it here."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.agent.session import LiveSession
from perdure.core.messages import Message
from perdure.store.records import Conversation, Span
from perdure.store.store import SessionStore

_SAID = ("user", "assistant", "tool")
_SHOWN, _SHOWN_CHARS = 2, 160


def gone_on(live: LiveSession, store: SessionStore) -> str | None:
    """What the session at hand does not know of: one line, and the last words of it; None where it knows all."""
    conversation = store.conversations.get(live.id)
    known = live.newest_seq
    since = store.log.read(live.id, Span(known + 1, conversation.last_seq)) if conversation.last_seq > known else []
    said = [entry.message for entry in since if entry.message.kind in _SAID]
    if not said and conversation.tip_session_id == live.id:
        return None
    return "\n".join((_line(said, conversation, live, store), *_last_words(said)))


def _line(said: Sequence[Message], conversation: Conversation, live: LiveSession, store: SessionStore) -> str:
    what = []
    if said:
        what.append(f"{len(said)} message{'s were' if len(said) > 1 else ' was'} added")
    if conversation.tip_session_id != live.id:
        is_undone = store.conversations.session(conversation.tip_session_id).began_by == "undo"
        what.append("a compaction was taken back" if is_undone else "it was compacted")
    return f"This conversation went on elsewhere: {', and '.join(what)}. It goes on from there."


def _last_words(said: Sequence[Message]) -> list[str]:
    spoken = [m for m in said if m.kind != "tool" and m.text.strip()][-_SHOWN:]
    return [f"  {'you' if m.role == 'user' else 'it '}: {_short(m.text)}" for m in spoken]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]}…"
