"""Entries of compacted stretches: their messages without secrets, and a cache of what was computed of them.

Messages are redacted before they are shortened, or half a secret would remain. The cache stays within a byte bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from perdure.core.messages import Entry, Message, TextPart
from perdure.core.ports import LogReader
from perdure.redaction import are_clean, redact

_MAX_BYTES = 32_000_000
# An entry without its text, and what is computed of a short one.
_ENTRY_BYTES = 2_000


class EntryCache:
    """Reads positions of one log; entries read before are returned with their memoized values."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._entries: dict[int, Entry] = {}
        self._max_bytes = max_bytes
        self.used_bytes = 0

    def read(self, log: LogReader, lo: int, hi: int) -> Sequence[Entry]:
        """Return the entries with lo <= seq <= hi, in order; only those not cached are read from the log."""
        missing = [seq for seq in range(lo, hi + 1) if seq not in self._entries]
        if not missing:
            return [self._entries[seq] for seq in range(lo, hi + 1)]
        read = {e.seq: e for e in log.read(missing[0], missing[-1])}
        entries = [self._entries.get(seq) or read.get(seq) for seq in range(lo, hi + 1)]
        present = [e for e in entries if e is not None]
        self.add(present)
        return present

    def add(self, entries: Iterable[Entry]) -> None:
        """Keep entries; those kept longest are dropped first where they exceed the bound."""
        for entry in entries:
            if entry.seq not in self._entries:
                self._entries[entry.seq] = entry
                self.used_bytes += _size(entry)
        while self.used_bytes > self._max_bytes and self._entries:
            oldest = self._entries.pop(next(iter(self._entries)))
            self.used_bytes -= _size(oldest)

    def clear(self) -> None:
        self._entries.clear()
        self.used_bytes = 0


def _size(entry: Entry) -> int:
    """Bytes of the text and of what is computed of it, roughly."""
    return _ENTRY_BYTES + 2 * (entry.get_memo("chars") or entry.memo("chars", count_chars))


def count_chars(message: Message) -> int:
    """Characters of a message and of the arguments of its calls, at least 1."""
    return 1 + len(message.text) + sum(len(c.arguments) for c in message.tool_calls)


_KEY = "redacted"
# Characters to scan for secrets in one batch.
_BATCH_CHARS = 100_000


def redact_entry(entry: Entry) -> Message:
    """Return the message of an entry without its secrets; cached with the entry."""
    message: Message | None = entry.get_memo(_KEY)
    return message or entry.memo(_KEY, redact_message)


def is_redacted(entry: Entry) -> bool:
    return entry.get_memo(_KEY) is not None


def are_redacted(entries: Iterable[Entry]) -> list[bool]:
    return [message is not None for message in Entry.get_memos(entries, _KEY)]


def redact_part(entry: Entry, text: str) -> str:
    """Return a part of an entry's text without its secrets: as it is where the entry is known to have none."""
    return text if entry.get_memo(_KEY) is entry.message else redact(text)


def is_changed(entry: Entry) -> bool:
    """Whether secrets were redacted in an entry."""
    message: Message | None = entry.get_memo(_KEY)
    return message is not None and message is not entry.message


def redact_entries(entries: Iterable[Entry]) -> None:
    """Redact and cache many entries in batches: secrets are rare, so that most batches are clean."""
    # Equal texts, such as short results, are scanned once.
    clean: set[str] = set()
    for group in _batches([e for e in entries if e.get_memo(_KEY) is None]):
        texts = dict.fromkeys(t for e in group for t in _texts(e.message) if t not in clean)
        is_clean = len(group) > 1 and are_clean(texts)
        for entry in group:
            entry.memo(_KEY, _same if is_clean else redact_message)
        if is_clean:
            clean.update(texts)


def redact_message(message: Message) -> Message:
    """Return the message without its secrets; the same object where it has none."""
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
