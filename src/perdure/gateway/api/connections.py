"""Limit the size and duration of request headers, before there is a request.

ASGI middleware limits everything that comes later. Headers never reach it while they are incomplete: the parser
buffers them for any client that can connect, so the protocol class counts them itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perdure.gateway.errors import ApiError


class BoundedHttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 protocol with a limit on the bytes, and the time, of incomplete request lines, headers and trailers."""

    max_header_bytes = 65_536
    header_timeout_s = 10.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Bytes received since the parser last completed a header block or a body chunk.
        self._pending_bytes = 0
        self._has_progressed = False
        self._is_in_request = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._has_progressed = False
        super().data_received(data)
        self._pending_bytes = 0 if self._has_progressed else self._pending_bytes + len(data)
        if not self._is_in_request and self._deadline is None and self._is_answered:
            self._arm()
        if self._pending_bytes > self.max_header_bytes:
            self._reject(431, "headers_too_large", f"the headers are over {self.max_header_bytes:,} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._deadline is None:  # another request on a keep-alive connection
            self._arm()

    def on_headers_complete(self) -> None:
        self._has_progressed = self._is_in_request = True
        self._disarm()
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Discard trailers: no code reads them.
        if not self._is_in_request:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._has_progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_progressed = True
        self._is_in_request = False
        self._disarm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_request and self._deadline is None:
            # The response was sent before the whole request arrived: discard the rest, but not indefinitely.
            self._arm()

    @property
    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(self.header_timeout_s, self._time_out)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _time_out(self) -> None:
        self._deadline = None
        if self._pending_bytes:
            seconds = f"{self.header_timeout_s:g} s"
            self._reject(408, "too_slow", f"the headers did not arrive within {seconds}")
        else:
            self.transport.close()

    def _reject(self, status: int, code: str, message: str) -> None:
        """Send an error response unless one is under way, and close the connection."""
        self._disarm()
        if self.transport.is_closing():
            return
        if not self._is_in_request and self._is_answered:
            self.transport.write(ApiError(status, code, message).as_http)
        self.transport.close()


def bounded_protocol(*, max_header_bytes: int, header_timeout_s: float) -> type[asyncio.Protocol]:
    """Return the protocol class with these limits, for uvicorn's `http` setting."""
    limits = {"max_header_bytes": max_header_bytes, "header_timeout_s": header_timeout_s}
    return type("BoundedHttpProtocol", (BoundedHttpProtocol,), limits)
