"""Entries of compacted stretches with what was computed of them, kept in memory within a byte bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.core.messages import Entry, Message
from perdure.core.ports import LogReader

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
        """The entries with lo <= seq <= hi, in order; only those not at hand are read from the log."""
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
    return _ENTRY_BYTES + 2 * (entry.memoized("chars") or entry.memo("chars", count_chars))


def count_chars(message: Message) -> int:
    """Characters of a message and of the arguments of its calls, at least 1."""
    return 1 + len(message.text) + sum(len(c.arguments) for c in message.tool_calls)
