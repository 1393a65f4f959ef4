"""In-memory output store, and one whose disk is full, for tests of the port."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence

from perdure.core.errors import NotFound
from perdure.core.ports import OutputSink, Page, StoredOutput


class MemoryOutputs:
    """The Outputs port over a dict."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[StoredOutput, str]] = {}

    def begin(self, conversation_id: str, tool_call_id: str) -> OutputSink:
        return _Sink(self, conversation_id, tool_call_id)

    def read(self, output_id: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        if output_id not in self.stored:
            raise NotFound(f"no output {output_id!r}")
        output, text = self.stored[output_id]
        end = offset + limit
        return Page(output.address, text[offset:end], offset, len(text), end if end < len(text) else None)

    def pieces(self, output_id: str, *, conversation_id: str) -> Iterator[str]:
        text = self.read(output_id, conversation_id=conversation_id, limit=sys.maxsize).text
        return (text[i : i + 7] for i in range(0, len(text), 7))

    def list(self, conversation_id: str) -> Sequence[StoredOutput]:
        return [output for output, _ in self.stored.values() if output.conversation_id == conversation_id]


class _Sink:
    def __init__(self, outputs: MemoryOutputs, conversation_id: str, tool_call_id: str) -> None:
        self._outputs, self._conversation_id, self._tool_call_id = outputs, conversation_id, tool_call_id
        self._pieces: list[str] = []

    def write(self, text: str) -> None:
        self._pieces.append(text)

    def close(self) -> StoredOutput:
        text = "".join(self._pieces)
        name = f"o{len(self._outputs.stored) + 1}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        output = StoredOutput(name, self._conversation_id, self._tool_call_id, len(text), digest, "memory")
        self._outputs.stored[name] = (output, text)
        return output

    def abort(self) -> None:
        self._pieces.clear()


class FullDisk(MemoryOutputs):
    """Every write fails the way a full disk does."""

    def begin(self, conversation_id: str, tool_call_id: str) -> OutputSink:
        raise OSError(28, "No space left on device")
