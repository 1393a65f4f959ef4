"""The note appended to the system message of a plain message list after a compaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure import prompts
from perdure.core.messages import Message


def compaction_note() -> str:
    """The text of the note."""
    return prompts.load("compaction_note_plain").strip()


def with_compaction_note(messages: Sequence[Mapping[str, Any]], front: int) -> list[Mapping[str, Any]]:
    """Append the note to the last of the `front` leading system messages, once; without any, change nothing.

    The text before the note is unchanged, so that the cached prefix stays valid; a list of parts gets one more part.
    """
    if not front:
        return list(messages)
    return [*messages[: front - 1], _append_note(messages[front - 1]), *messages[front:]]


def needs_note(message: Message) -> bool:
    """Whether a system message lacks the note."""
    return compaction_note() not in message.text


def _append_note(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    note, content = compaction_note(), raw.get("content")
    if not needs_note(Message.from_dict(raw)):
        return raw
    if isinstance(content, list | tuple):
        return {**raw, "content": [*content, {"type": "text", "text": note}]}
    return {**raw, "content": f"{content}\n\n{note}" if content else note}
