"""Messages without secrets, cached per entry: redacted before they are shortened, or half a secret would remain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from perdure.core.messages import Entry, Message, TextPart
from perdure.redaction import are_clean, redact

_KEY = "redacted"
# Characters to scan for secrets in one batch.
_BATCH_CHARS = 100_000


def redacted(entry: Entry) -> Message:
    """The cached message of an entry without its secrets."""
    message: Message | None = entry.memoized(_KEY)
    return message or entry.memo(_KEY, redact_message)


def redact_entries(entries: Iterable[Entry]) -> None:
    """Redact and cache many entries in batches: secrets are rare, so that most batches are clean."""
    for group in _batches([e for e in entries if e.memoized(_KEY) is None]):
        is_clean = len(group) > 1 and are_clean(t for e in group for t in _texts(e.message))
        for entry in group:
            entry.memo(_KEY, _same if is_clean else redact_message)


def redact_message(message: Message) -> Message:
    """The message without its secrets; the same object where it has none."""
    content = message.content
    if isinstance(content, str):
        content = redact(content)
    elif content is not None:
        content = tuple(replace(p, text=redact(p.text)) if isinstance(p, TextPart) else p for p in content)
    arguments = [redact(c.arguments) for c in message.tool_calls]
    if content == message.content and arguments == [c.arguments for c in message.tool_calls]:
        return message
    calls = tuple(replace(c, arguments=a) for c, a in zip(message.tool_calls, arguments, strict=True))
    return replace(message, content=content, tool_calls=calls)


def _same(message: Message) -> Message:
    return message


def _batches(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    group: list[Entry] = []
    chars = 0
    for entry in entries:
        group.append(entry)
        chars += sum(map(len, _texts(entry.message)))
        if chars >= _BATCH_CHARS:
            yield group
            group, chars = [], 0
    if group:
        yield group


def _texts(message: Message) -> list[str]:
    content = message.content
    parts = [content] if isinstance(content, str) else [p.text for p in content or () if isinstance(p, TextPart)]
    return parts + [c.arguments for c in message.tool_calls]
