"""Conversation titles: derived from the first message, or set with `/title`."""

from __future__ import annotations

import re

from perdure.commands.command import Command, CommandContext, CommandResult
from perdure.core.errors import NotFound
from perdure.redaction import redact

_MAX_CHARS = 48
# A title comes from the start; a secret that begins there is found whole.
_LOOKED_AT_CHARS = 8_000
_MARKS = re.compile(r"[`*#>|]+")


def title_of(text: str) -> str:
    """Derive a title from the first non-empty line, without secrets and Markdown, cut between words."""
    for line in redact(text[:_LOOKED_AT_CHARS]).splitlines():
        words = " ".join(_MARKS.sub("", line[:1_000]).split())
        if any(c.isalnum() for c in words):
            return _shorten(words)
    return ""


def _shorten(words: str) -> str:
    if len(words) <= _MAX_CHARS:
        return words.rstrip(" .,:;")
    head = words[: _MAX_CHARS - 1]
    whole = head.rpartition(" ")[0] if " " in head[_MAX_CHARS // 2 :] else head
    return f"{whole.rstrip(' .,:;')}…"


def run(surface: CommandContext, argument: str) -> CommandResult:
    session_id = surface.agent.session_id
    if session_id is None:
        raise NotFound("Nothing has been said yet.")
    if not argument:
        return CommandResult(surface.store.conversations.get(session_id).title or "This conversation has no title yet.")
    title = redact(argument)
    surface.store.conversations.set_title(session_id, title)
    return CommandResult(f"Titled “{title}”.")


TITLE = Command("title", "/title [words]", "show this conversation's title, or give it another", run)
