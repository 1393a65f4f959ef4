"""Output of any size in little memory: whole while it is small, else streamed to a sink, both its ends kept."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable

from perdure.core.errors import StoreError
from perdure.core.ports import OutputSink, StoredOutput
from perdure.tools.budgets import persisted_block
from perdure.tools.tool import ToolReply

_FLUSH_CHARS = 1 << 18
# Colours, cursor moves and titles.
_SCREEN_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_=>78])")


def without_screen_codes(text: str) -> str:
    """The text as a screen would show it: no colours, and of a progress bar its last state."""
    if "\x1b" in text:
        text = _SCREEN_CODE.sub("", text)
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.replace("\r\n", "\n").split("\n"))
    return text


def _last_state(line: str) -> str:
    """What stands in a line that was written over, piece upon piece."""
    return next((p for p in reversed(line.split("\r")) if p), "") if "\r" in line else line


class Capture:
    """Takes bytes as they come, gives a reply at the end. Not thread-safe: one reader feeds it."""

    def __init__(
        self,
        open_sink: Callable[[], OutputSink] | None,
        *,
        max_chars: int,
        head_chars: int = 1_000,
        tail_chars: int = 500,
    ) -> None:
        self._open_sink = open_sink
        self._max_chars, self._head_chars, self._tail_chars = max_chars, head_chars, tail_chars
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held: list[str] = []
        self._held_chars = 0
        self._total_chars = 0
        self._head = ""
        self._tail = ""
        self._sink: OutputSink | None = None
        self._trouble = ""

    def feed(self, data: bytes, *, is_last: bool = False) -> None:
        text = self._decoder.decode(data, is_last)
        if not text:
            return
        self._total_chars += len(text)
        if len(self._head) < self._head_chars:
            self._head += text[: self._head_chars - len(self._head)]
        self._tail = (self._tail + text[-self._tail_chars :])[-self._tail_chars :]
        self._held.append(text)
        self._held_chars += len(text)
        if self._total_chars > self._max_chars and (self._sink is None or self._held_chars >= _FLUSH_CHARS):
            self._spill()

    def reply(self, head_line: str, *, is_error: bool) -> ToolReply:
        """The whole text behind `head_line`, or the block that stands for it where it was too large."""
        self.feed(b"", is_last=True)
        if self._total_chars <= self._max_chars:
            text = without_screen_codes("".join(self._held))
            return ToolReply(f"{head_line}\n{text}".rstrip("\n"), is_error=is_error)
        stored = self._closed()
        self._head, self._tail = without_screen_codes(self._head), without_screen_codes(self._tail)
        if stored is not None:
            return ToolReply(
                f"{head_line}\n{persisted_block(stored, self._head, self._tail)}", is_error=is_error, stored=stored
            )
        left_out = self._total_chars - len(self._head) - len(self._tail)
        marker = f"[… {left_out:,} characters left out, {self._trouble or 'there is no place to keep them'} …]"
        return ToolReply(f"{head_line}\n{self._head}\n{marker}\n{self._tail}", is_error=is_error)

    def abort(self) -> None:
        """Leaves nothing stored."""
        if self._sink is not None:
            self._sink.abort()
            self._sink = None

    def _spill(self) -> None:
        try:
            if self._sink is None and self._open_sink is not None and not self._trouble:
                self._sink = self._open_sink()
            if self._sink is not None:
                self._sink.write("".join(self._held))
        except (OSError, StoreError) as error:
            self._trouble = f"they could not be saved: {error}"
            self.abort()
        self._held.clear()
        self._held_chars = 0

    def _closed(self) -> StoredOutput | None:
        self._spill()
        if self._sink is None:
            return None
        try:
            return self._sink.close()
        except (OSError, StoreError) as error:
            self._trouble = f"they could not be saved: {error}"
            return None
