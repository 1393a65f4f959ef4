"""JSON-RPC messages over standard input and output, one per line.

Standard output belongs to the protocol: whatever else the process or a library prints goes to standard error. A line
that is not a message is answered with an error instead of ending the connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

_log = logging.getLogger(__name__)
MAX_LINE_BYTES = 50_000_000
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600


@contextmanager
def claim_stdio() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Take standard input and output for the protocol.

    Programs that are started inherit an empty input, and an output that leads to standard error.
    """
    sys.stdout.flush()
    saved = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    source, sink = os.fdopen(os.dup(saved[0]), "rb"), os.fdopen(os.dup(saved[1]), "wb")
    try:
        yield source, sink
    finally:
        sys.stdout.flush()
        for number, descriptor in enumerate(saved):
            os.dup2(descriptor, number)
            os.close(descriptor)


class StdioTransport:
    """Sends and receives messages over standard input and output, for `agent-client-protocol` connections.

    A daemon thread reads: a blocked read holds up neither the event loop nor the end of the process.
    """

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._write_lock = asyncio.Lock()
        self._is_broken = False
        # Requests without a response yet: their methods by id.
        self._open_requests: dict[str, str] = {}
        self._has_answered = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="perdure-acp-input", daemon=True).start()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end of the input."""
        while (line := await self._lines.get()) is not None:
            if not line.strip():
                continue
            message = await self._parse(line)
            if message is not None:
                if "method" in message and "id" in message:
                    self._open_requests[str(message["id"])] = message["method"]
                return message
        return None

    async def wait_answered(self, timeout_s: float, *, except_method: str = "") -> None:
        """Wait until every request has its response, except those of `except_method`, or until the timeout expires."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(method != except_method for method in self._open_requests.values()):
                    self._has_answered.clear()
                    await self._has_answered.wait()

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message. Raises ConnectionError once the reader is gone."""
        data = json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"
        async with self._write_lock:
            if self._is_broken:
                raise ConnectionError("the editor has closed the connection")
            try:
                await asyncio.to_thread(self._write, data)
            except (OSError, ValueError):
                self._is_broken = True
                raise ConnectionError("the editor has closed the connection") from None
            finally:
                if "method" not in message:
                    self._open_requests.pop(str(message.get("id")), None)
                    self._has_answered.set()

    async def close(self) -> None:
        """Accept no more messages; those already queued are still written."""
        async with self._write_lock:
            self._is_broken = True

    async def _parse(self, line: bytes) -> dict[str, Any] | None:
        """Return the message in a line; for any other line, send an error response and return None."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            await self._refuse(_PARSE_ERROR, "this line is not JSON")
            return None
        if not isinstance(message, dict):
            await self._refuse(_INVALID_REQUEST, "a message is a JSON object; batches are not supported")
            return None
        if "method" in message and not isinstance(message["method"], str):
            await self._refuse(_INVALID_REQUEST, "the method must be a string", message.get("id"))
            return None
        return message

    async def _refuse(self, code: int, reason: str, request_id: Any = None) -> None:
        _log.warning("a line of the input was refused: %s", reason)
        try:
            await self.send({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": reason}})
        except ConnectionError:
            _log.warning("the refusal could not be sent")

    def _write(self, data: bytes) -> None:
        self._sink.write(data)
        self._sink.flush()

    def _read(self) -> None:
        try:
            while line := self._source.readline(MAX_LINE_BYTES):
                if not line.endswith(b"\n") and len(line) >= MAX_LINE_BYTES:
                    self._skip_line()
                    line = b"(too long)"
                self._put(line)
        except (OSError, ValueError):
            _log.warning("the input could not be read")
        self._put(None)

    def _skip_line(self) -> None:
        while (rest := self._source.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            pass

    def _put(self, line: bytes | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
