"""Server-sent events, read as they arrive: bytes in, events out.

A chunk may end anywhere, even inside a character or between the two bytes of a CRLF; whole lines are cut from bytes
and decoded afterwards, so a split character is never seen. What is incomplete is kept as a list of pieces and joined
once, when its end arrives: a stream of one-byte chunks costs no more than its length.
"""

from __future__ import annotations

import re

from perdure.providers.exchange import SseEvent

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class SseReader:
    """Turns the chunks of one response body into events. Never raises: bytes that are no UTF-8 become U+FFFD."""

    __slots__ = ("_data", "_is_after_cr", "_is_first", "_name", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._name = ""
        self._data: list[str] = []
        self._is_first = True
        self._is_after_cr = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events this chunk completes."""
        if self._is_after_cr and chunk:
            # The line ended at the CR already; an LF behind it is the other half of the same line end.
            chunk = chunk.removeprefix(b"\n")
            self._is_after_cr = False
        has_cr = b"\r" in chunk
        if not has_cr and b"\n" not in chunk:
            if chunk:
                self._pieces.append(chunk)
            return []
        self._is_after_cr = chunk.endswith(b"\r")
        if self._pieces:
            chunk = b"".join((*self._pieces, chunk))
            self._pieces.clear()
        lines = _LINE_END.split(chunk) if has_cr else chunk.split(b"\n")
        if last := lines.pop():
            self._pieces.append(last)
        events: list[SseEvent] = []
        for line in lines:
            self._take(line, events)
        return events

    @property
    def is_within_event(self) -> bool:
        """Part of an event has arrived: neither nothing nor the part of a comment."""
        return bool(self._data) or bool(self._pieces and not self._pieces[0].startswith(b":"))

    def finish(self) -> list[SseEvent]:
        """What the end of the body completes: a last event whose blank line never came is still an event."""
        events: list[SseEvent] = []
        self._take(b"".join(self._pieces), events)
        self._pieces.clear()
        self._take(b"", events)
        return events

    def _take(self, line: bytes, events: list[SseEvent]) -> None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(SseEvent(self._name, "\n".join(self._data)))
                self._data = []
            self._name = ""
        elif line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value.decode("utf-8", "replace"))
        elif line.startswith(b"event:"):
            self._name = line[6:].removeprefix(b" ").decode("utf-8", "replace")
        elif line == b"data":
            self._data.append("")
        # Comments (": ping"), ids and retry hints carry nothing a model said.
