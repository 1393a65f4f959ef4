"""Show the end of a stored conversation as it looked when it took place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.cli.chat.activity import named_call
from perdure.cli.style import Style, fit_lines, safe
from perdure.commands.format import count
from perdure.core.messages import Entry, Message, TextPart
from perdure.store.records import Span
from perdure.store.store import SessionStore

# Messages read from the log, and lines of one message: enough to know where one was.
_MAX_MESSAGES = 60
_MAX_TURNS = 6
_MAX_LINES = 24


def replay_text(store: SessionStore, session_id: str, *, width: int, ink: Style) -> str:
    """Return the last turns of a conversation, painted for a terminal; "" where nothing was said yet."""
    last = store.conversations.get(session_id).last_seq
    if not last:
        return ""
    entries = _last_turns(store.log.read(session_id, Span(max(1, last - _MAX_MESSAGES + 1), last)))
    parts = [part for entry in entries for part in _parts(entry.message, width, ink)]
    earlier = entries[0].seq - 1 if entries else last
    if earlier > 0:
        note = f"… {earlier:,} earlier {'messages' if earlier > 1 else 'message'}: /expand m:1-{earlier} opens them"
        parts.insert(0, f"{ink.dim(note)}\n")
    return "".join(parts) + "\n"


def _last_turns(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The last turns, from the beginning of the first of them where it was read."""
    begins = [n for n, entry in enumerate(entries) if entry.message.is_real_user]
    return entries[begins[-_MAX_TURNS:][0] :] if begins else entries


def _parts(message: Message, width: int, ink: Style) -> Iterator[str]:
    """Yield what is shown of a message: words and calls; results and notes for the model are left out."""
    if message.kind == "handoff":
        yield f"{ink.dim('· compacted here: /handoff shows what the model reads of it')}\n"
    elif message.is_real_user:
        first, *rest = _shorten(list(fit_lines(safe(_typed(message)).strip().split("\n"), width - 2)))
        yield f"{ink.bold('›')} {first}\n" + "".join(f"  {line}\n" for line in rest)
    elif message.role == "assistant":
        if message.text.strip():
            yield _painted(message.text, width, ink)
        yield from (f"{ink.good('●')} {named_call(call)}\n" for call in message.tool_calls)


def _typed(message: Message) -> str:
    """The first text of a message, and how much was attached to it."""
    parts = message.parts
    text = next((part.text for part in parts if isinstance(part, TextPart)), "")
    return f"{text} [{count(len(parts) - 1, 'attachment')}]" if len(parts) > 1 else text


def _painted(markdown: str, width: int, ink: Style) -> str:
    from perdure.cli.chat.markdown import painted  # rich is slow to import: not before there is something to show

    lines = painted(markdown, width=width, is_color=ink.is_color).rstrip("\n").split("\n")
    return "\n".join(_shorten(lines)) + "\n\n"


def _shorten(lines: list[str]) -> list[str]:
    """The lines, the middle of a long message left out."""
    if len(lines) <= _MAX_LINES + 1:
        return lines
    head, tail = 2 * _MAX_LINES // 3, _MAX_LINES // 3
    return [*lines[:head], f"… {len(lines) - head - tail:,} more lines", *lines[-tail:]]
