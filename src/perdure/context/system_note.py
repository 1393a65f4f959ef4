"""The note that a system message of a plain message list gets once turns were compacted (D6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure import prompts
from perdure.core.messages import Message


def compaction_note() -> str:
    """The words of the note."""
    return prompts.load("compaction_note_plain").strip()


def with_compaction_note(messages: Sequence[Mapping[str, Any]], front: int) -> list[Mapping[str, Any]]:
    """The list with the note behind the last of its `front` leading system messages, once; without any, as it is.

    The text before the note keeps its bytes, so that a cached prefix stays one; a list of parts gets one more part.
    """
    if not front:
        return list(messages)
    return [*messages[: front - 1], _append_note(messages[front - 1]), *messages[front:]]


def needs_note(message: Message) -> bool:
    """Whether a system message has not got the note yet."""
    return compaction_note() not in message.text


def _append_note(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    note, content = compaction_note(), raw.get("content")
    if not needs_note(Message.from_dict(raw)):
        return raw
    if isinstance(content, list | tuple):
        return {**raw, "content": [*content, {"type": "text", "text": note}]}
    return {**raw, "content": f"{content}\n\n{note}" if content else note}
