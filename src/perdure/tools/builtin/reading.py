"""`read_file`: any text, by lines, a page at a time, however large; stored outputs too.

Lines are counted from 1. A page ends after `limit` lines or `page_chars` characters (fewer in a small window),
whichever comes first, and says how to read on. A line longer than a page is read in columns, so that nothing is ever
out of reach.
"""

from __future__ import annotations

import codecs
import mimetypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

from perdure.core.errors import NotFound, ToolError
from perdure.core.ports import Outputs
from perdure.tools.tool import Tool, ToolContext, ToolReply, tool_from_function
from perdure.tools.workspace import Workspace

_CHUNK = 1 << 16
_LISTED = 200


class FileReader:
    """Reads files of a workspace, and outputs by their address; without a workspace, outputs alone."""

    def __init__(
        self,
        workspace: Workspace | None,
        *,
        outputs: Outputs | None = None,
        page_chars: int = 50_000,
        max_chars: Callable[[], int] | None = None,
    ) -> None:
        self._workspace = workspace
        self._outputs = outputs
        self._page_chars = page_chars
        # What the present window allows one result.
        self._max_chars = max_chars

    def tool(self) -> Tool:
        return tool_from_function(
            self.read_file,
            name="read_file",
            toolset="files",
            is_read_only=True,
            max_result_chars=0,
            read_path_parameter="path",
        )

    def read_file(
        self,
        context: ToolContext,
        path: Annotated[str, "a file, a folder, or output:<id> for a stored tool output"],
        offset: Annotated[int, "first line to show, counted from 1"] = 1,
        limit: Annotated[int, "most lines to show"] = 500,
        column: Annotated[int, "first character of that first line, for very long lines"] = 1,
    ) -> ToolReply:
        """Reads a text file with line numbers, a page at a time. Also lists a folder."""
        offset, limit, column = max(1, offset), max(1, limit), max(1, column)
        if path.startswith("output:"):
            name, pieces = path, self._output_pieces(path.removeprefix("output:"), context)
        else:
            if self._workspace is None:
                raise ToolError("there are no files here; only output:<id> can be read")
            found = self._workspace.existing(path)
            if found.is_dir():
                return ToolReply(_listing(found, self._workspace.shown(found)))
            name, pieces = self._workspace.shown(found), _file_pieces(found)
        page_chars = self._page_chars if self._max_chars is None else min(self._page_chars, self._max_chars())
        page = _PageBuffer(page_chars, offset=offset, limit=limit, column=column)
        try:
            for line in _lines(pieces, keep_from=offset, max_chars=page_chars + column):
                if not page.take(*line):
                    break
        except OSError as error:
            raise ToolError(f"{name} cannot be read: {error.strerror}") from None
        return ToolReply(page.text(name), source=page.source(name))

    def _output_pieces(self, output_id: str, context: ToolContext) -> Iterator[str]:
        if self._outputs is None:
            raise ToolError("no outputs are stored here")
        try:
            yield from self._outputs.pieces(output_id, conversation_id=context.conversation_id)
        except NotFound as error:
            raise ToolError(str(error)) from None


class _PageBuffer:
    """Gathers numbered lines until the page is full."""

    def __init__(self, max_chars: int, *, offset: int, limit: int, column: int) -> None:
        self._room = max_chars
        self._offset, self._limit, self._column = offset, limit, column
        self._shown: list[str] = []
        self._last = 0
        self._next: str | None = None

    def take(self, number: int, line: str, length: int) -> bool:
        """Adds a line; False once the page is full. `line` may be only the beginning of one of `length` characters."""
        self._last = number
        if number < self._offset:
            return True
        if len(self._shown) >= self._limit or (self._shown and len(line) + 8 > self._room):
            self._next = f"offset={number}"
            self._last = number - 1
            return False
        start = self._column - 1 if number == self._offset else 0
        piece = line[start : start + self._room]
        self._shown.append(f"{number:>6}|{piece}")
        self._room -= len(piece) + 8
        if start + len(piece) < length:
            self._next = f"offset={number}, column={start + len(piece) + 1}"
            return False
        return True

    def text(self, name: str) -> str:
        if not self._shown:
            if self._last == 0:
                return f"{name} is empty"
            raise ToolError(f"{name} has {self._last:,} lines; offset {self._offset:,} is behind its end")
        more = f"\n[more: read on with {self._next}]" if self._next else f"\n[end of {name}]"
        return "\n".join(self._shown) + more

    def source(self, name: str) -> str:
        return f"{name} (lines {self._offset}-{max(self._last, self._offset)})"


def _lines(pieces: Iterator[str], *, keep_from: int, max_chars: int) -> Iterator[tuple[int, str, int]]:
    """(number, text, true length) of each line; of one longer than `max_chars` only its beginning is held in memory."""
    number, kept, length = 1, [""], 0
    held = 0
    for piece in pieces:
        parts = piece.split("\n")
        for i, part in enumerate(parts):
            if i:
                yield number, "".join(kept).removesuffix("\r"), length
                number, kept, length, held = number + 1, [], 0, 0
            length += len(part)
            if number >= keep_from and held < max_chars:
                kept.append(part[: max_chars - held])
                held += len(kept[-1])
    if length:
        yield number, "".join(kept), length


def _file_pieces(path: Path) -> Iterator[str]:
    """The text of a file in pieces. Raises ToolError for what is no text."""
    if not path.is_file():
        raise ToolError(f"{path} is neither a file nor a folder")
    with path.open("rb") as file:
        start = file.read(_CHUNK)
        encoding = _encoding(path, start)
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        yield decoder.decode(start)
        while chunk := file.read(_CHUNK):
            yield decoder.decode(chunk)
        yield decoder.decode(b"", True)


def _encoding(path: Path, start: bytes) -> str:
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in start:
        kind = mimetypes.guess_type(path.name)[0] or "unknown type"
        raise ToolError(
            f"{path} is a binary file ({kind}, {path.stat().st_size:,} bytes); use the terminal to look at it"
        )
    return "utf-8-sig" if start.startswith(codecs.BOM_UTF8) else "utf-8"


def _listing(folder: Path, name: str) -> str:
    entries = sorted(folder.iterdir(), key=lambda p: (not p.is_dir(), p.name))
    lines = [f"{p.name}/" if p.is_dir() else f"{p.name} ({_size(p)})" for p in entries[:_LISTED]]
    more = f"\n[… {len(entries) - _LISTED:,} more]" if len(entries) > _LISTED else ""
    return f"{name}/ has {len(entries):,} entries:\n" + "\n".join(lines) + more


def _size(path: Path) -> str:
    try:
        return f"{path.stat().st_size:,} bytes"
    except OSError:
        return "unreadable"
