"""The complete text of logged messages, whose every character has an offset; and an outline of it.

The text of a message is its header, content and calls; the preview of a stored output is followed by the whole
output. A page at any offset is read without building the text before it, so one call opens any part of a long log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate

from perdure.core.display import cut_off_label
from perdure.core.messages import Entry
from perdure.core.ports import LogItem, LogOutline, Page, StoredOutput

_OUTPUT_ID = re.compile(r"output:(o_\w{1,80})")
_SEPARATOR = "\n\n"
_PREVIEW_CHARS = 80

# Reads a part of an output: its id, the first character and the number of characters.
ReadOutput = Callable[[str, int, int], str]


def render_entry(entry: Entry) -> str:
    """Format a message as text under a header line with its address, kind and time."""
    message = entry.message
    moment = datetime.fromtimestamp(entry.created_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    reference = f" · answers {message.tool_call_id}" if message.tool_call_id else ""
    lines = [f"[m:{entry.seq} · {message.kind} · {moment}{reference}]"]
    if message.text:
        lines.append(message.text)
    if label := cut_off_label(message):
        lines.append(f"[{label}]")
    lines += [f"→ {call.name}({call.arguments}) [{call.id}]" for call in message.tool_calls]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _MessageText:
    """The text of one message, and the stored output that follows it."""

    entry: Entry
    rendered: str
    output: StoredOutput | None

    @property
    def chars(self) -> int:
        return len(self.rendered) + (self.output.chars if self.output is not None else 0)

    def read(self, start: int, limit: int, read_output: ReadOutput) -> str:
        own = self.rendered[start : start + limit]
        rest = limit - len(own)
        if self.output is None or rest <= 0:
            return own
        return own + read_output(self.output.id, max(0, start - len(self.rendered)), rest)


class LogText:
    """The text of messages in order, read in parts."""

    def __init__(self, entries: Iterable[Entry], outputs: Mapping[str, StoredOutput], read_output: ReadOutput) -> None:
        self._texts = [_text_of(entry, outputs) for entry in entries]
        self._read_output = read_output
        # Where each message begins; the last figure is the end of the text.
        self._offsets = [0, *accumulate(t.chars + len(_SEPARATOR) for t in self._texts)]

    @property
    def total_chars(self) -> int:
        return max(0, self._offsets[-1] - len(_SEPARATOR))

    def page(self, address: str, offset: int, limit: int) -> Page:
        """Return the characters from an offset on."""
        start = min(max(0, offset), self.total_chars)
        end = min(start + max(1, limit), self.total_chars)
        text = "".join(self._parts(start, end))
        return Page(address, text, start, self.total_chars, end if end < self.total_chars else None)

    def outline(self, address: str, cursor: int, limit: int) -> LogOutline:
        """Return the messages with their offsets, from the one at `cursor` on."""
        chosen = range(max(0, cursor), min(len(self._texts), max(0, cursor) + max(1, limit)))
        items = tuple(self._item(n) for n in chosen)
        following = chosen.stop if items and chosen.stop < len(self._texts) else None
        return LogOutline(address, self.total_chars, items, following)

    def group(self, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
        """Yield offset, length and the first request of the messages in each span."""
        for lo, hi in spans:
            inside = [n for n, t in enumerate(self._texts) if lo <= t.entry.seq <= hi]
            if not inside:
                yield self.total_chars, 0, ""
                continue
            request = next((self._texts[n].entry for n in inside if self._texts[n].entry.message.is_request), None)
            end = self._offsets[inside[-1] + 1] - len(_SEPARATOR)
            yield self._offsets[inside[0]], end - self._offsets[inside[0]], _preview(request)

    def _item(self, n: int) -> LogItem:
        text = self._texts[n]
        message = text.entry.message
        calls = "".join(f" → {call.name}" for call in message.tool_calls[:4])
        stored = f" [{text.output.address}, {text.output.chars:,} characters]" if text.output is not None else ""
        what = f"{message.kind}: {_preview(text.entry)}{calls}{stored}"
        return LogItem(f"m:{text.entry.seq}", what, self._offsets[n], text.chars)

    def _parts(self, start: int, end: int) -> Iterator[str]:
        for n, text in enumerate(self._texts):
            first = self._offsets[n]
            if first >= end:
                return
            body_end = first + text.chars
            if start < body_end:
                yield text.read(max(0, start - first), min(end, body_end) - max(start, first), self._read_output)
            gap = _SEPARATOR if n + 1 < len(self._texts) else ""
            yield gap[max(0, start - body_end) : max(0, end - body_end)]


def _text_of(entry: Entry, outputs: Mapping[str, StoredOutput]) -> _MessageText:
    rendered, message = render_entry(entry), entry.message
    if message.role != "tool" or not outputs:
        return _MessageText(entry, rendered, None)
    candidates = (outputs.get(match[1]) for match in _OUTPUT_ID.finditer(message.text))
    # A result may name any output in its text; its own is the one that was stored for the same call.
    own = next((o for o in candidates if o is not None and o.tool_call_id == message.tool_call_id), None)
    if own is None:
        return _MessageText(entry, rendered, None)
    return _MessageText(entry, f"{rendered}\n[{own.address}, all {own.chars:,} characters]\n", own)


def _preview(entry: Entry | None) -> str:
    words = " ".join(entry.message.text[: 4 * _PREVIEW_CHARS].split()) if entry is not None else ""
    return words if len(words) <= _PREVIEW_CHARS else f"{words[:_PREVIEW_CHARS]}…"
