"""Send a request and read the response, streamed or not; every failure is raised as one `ProviderError`.

`send` builds the body with the endpoint's mode module, posts it, feeds the response to the mode's stream parser (or the
whole body to its `parse`) and returns a `Reply`. It retries only while no byte of a response has arrived; recovery from
any other failure is the caller's decision, based on the verdict. Cancelling the task closes the connection at once.

The kind of a response is detected from its first bytes, not from its headers: some services stream when they should
not, some answer a stream request with one JSON body, and some return an HTML page with status 200.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from perdure.core.error_policy import is_retryable
from perdure.core.errors import ErrorVerdict, ProviderError
from perdure.core.event_queue import coalesce
from perdure.core.events import ReasoningDelta, RefusalDelta, RetryScheduled, TextDelta, ToolCallParsed
from perdure.providers.errors.messages import (
    EndpointLabel,
    call_error,
    invalid_header_error,
    is_refusal,
    is_refusal_status,
    is_worth_retrying,
    network_error,
    not_an_api_error,
    refusal_error,
    was_never_sent,
)
from perdure.providers.http import (
    HttpClient,
    HttpResponse,
    HttpxClient,
    Retries,
    SseReader,
    StreamTimer,
    Timeouts,
    find_invalid_header,
    is_html,
    push_chunks,
)
from perdure.providers.registry import is_own_host, missing_key, mode_module
from perdure.providers.sdk_client import SdkTransport
from perdure.providers.types import Delta, Endpoint, ModelRequest, Reply, RequestEvent, SseEvent

__all__ = ["Delta", "OnEvent", "Retries", "Timeouts", "Transport"]

OnEvent = Callable[[RequestEvent], None]

# Limit for a response body: no model reply is longer.
MAX_BODY_BYTES = 64 << 20
# How long to wait for the end of the body after the last event, so that the connection can be reused.
_LINGER_S = 0.25
_BLANK = b"\xef\xbb\xbf \t\r\n"
_LAST_EVENTS = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})


class Transport:
    """Sender of requests to any provider. The first `send` opens a connection; construction does no I/O."""

    def __init__(
        self,
        *,
        client: HttpClient | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._client = client or HttpxClient()
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._sleep = sleep
        self._random = random

    async def send(self, endpoint: Endpoint, request: ModelRequest, *, on_event: OnEvent | None = None) -> Reply:
        """Return the model's reply. Raises ProviderError; its `partial_text` is the text received so far."""
        problem = missing_key(endpoint) if is_own_host(endpoint) else None
        # An official client handed in by the caller has a key of its own.
        if problem is not None and not isinstance(self._client, SdkTransport):
            raise ProviderError(ErrorVerdict("auth", problem, remedy=""), may_be_billed=False)
        mode = mode_module(endpoint.api_mode)
        body: bytes = mode.build(request)
        attempt, may_be_billed = 0, False
        while True:
            attempt += 1
            call = _Attempt(endpoint, mode, body=body, is_streaming=request.is_streaming, on_event=on_event)
            try:
                return await call.run(self._client, self._timeouts)
            except ProviderError as error:
                # A refused retry does not undo the cost of an earlier attempt.
                may_be_billed = error.may_be_billed = may_be_billed or not call.is_unbilled
                wait_s = self._retry_delay_s(call, error.verdict, attempt)
                if wait_s is None:
                    raise
                if on_event is not None:
                    on_event(RetryScheduled(error.verdict, wait_s, attempt + 1))
            await self._sleep(wait_s)

    async def aclose(self) -> None:
        await self._client.aclose()

    def _retry_delay_s(self, call: _Attempt, verdict: ErrorVerdict, attempt: int) -> float | None:
        if call.has_begun or not call.may_retry or not is_retryable(verdict):
            return None
        return self._retries.wait_s(attempt, retry_after_s=verdict.retry_after_s, random=self._random())


class _Attempt:
    """An attempt to send a request, and the state of its response."""

    def __init__(
        self, endpoint: Endpoint, mode: ModuleType, *, body: bytes, is_streaming: bool, on_event: OnEvent | None
    ) -> None:
        self.endpoint = endpoint
        self.mode = mode
        self.body = body
        self.is_streaming = is_streaming
        self.on_event = on_event
        # A byte of the response has arrived: no retry from here on.
        self.has_begun = False
        self.may_retry = True
        # The service refused the request or never received it.
        self.is_unbilled = False
        # Set when the response turns out to be a stream.
        self._stream_timer: StreamTimer | None = None
        self._size = 0
        self._texts: list[str] = []
        self._network_errors: tuple[type[BaseException], ...] = ()

    @property
    def label(self) -> EndpointLabel:
        """The endpoint as error messages name it."""
        return EndpointLabel.of(self.endpoint)

    @property
    def partial_text(self) -> str:
        return "".join(self._texts)

    async def run(self, client: HttpClient, timeouts: Timeouts) -> Reply:
        first_s = timeouts.first_token_s if self.is_streaming else timeouts.reply_s
        self._network_errors = client.failures()
        headers = self.mode.headers(self.endpoint)
        if (name := find_invalid_header(headers)) is not None:
            self.is_unbilled = True
            raise invalid_header_error(self.label, name)
        try:
            started_s = asyncio.get_running_loop().time()
            async with asyncio.timeout(first_s) as timer:
                async with client.post(
                    self.endpoint, self.mode.PATH, headers=headers, body=self.body, connect_s=timeouts.connect_s
                ) as response:
                    return await self._read(response, timer, StreamTimer(timer, timeouts, started_s=started_s))
        except TimeoutError as error:
            if not timer.expired():
                raise network_error(self.label, error, partial=self.partial_text) from error
            raise self._timeout_error(first_s) from error
        except self._network_errors as error:
            self.may_retry = is_worth_retrying(error)
            self.is_unbilled = not self.has_begun and was_never_sent(error)
            raise network_error(self.label, error, partial=self.partial_text) from error
        except ProviderError as error:
            if error.where:
                raise
            self.is_unbilled = not self._texts and is_refusal(error.verdict)
            raise refusal_error(self.label, error.verdict, partial=self.partial_text or error.partial_text) from error

    def _timeout_error(self, first_s: float) -> ProviderError:
        self.may_retry = False
        line = f"no reply within {first_s:g} s: the service is slow or stuck. Try again, or choose another model."
        if self._stream_timer is not None:
            line = self._stream_timer.timeout_message()
        return call_error(self.label, "transport", line, partial=self.partial_text)

    async def _read(self, response: HttpResponse, timer: asyncio.Timeout, stream_timer: StreamTimer) -> Reply:
        status = response.status_code
        if status >= 400:
            error = self._status_error(status, await _read_body(b"", response.aiter_bytes()), response)
            # A refusal is free whatever its status: llama.cpp answers a prompt that is too long with 500.
            self.is_unbilled = is_refusal_status(status) or is_refusal(error.verdict)
            raise error
        if 300 <= status < 400:
            self.may_retry, self.is_unbilled = False, True
            location = response.headers.get("location", "elsewhere")
            line = f"moved to {location} ({status}): set `model.base_url` to the new address."
            raise call_error(self.label, "transport", line, status=status)
        return await self._reply(response, timer, stream_timer)

    def _status_error(self, status: int, body: bytes, response: HttpResponse) -> ProviderError:
        text = body.decode("utf-8", "replace")
        # Imported late: the tables of error patterns are slow to compile, and most calls succeed.
        from perdure.providers.errors.classify import classify_error

        verdict = classify_error(status, text, headers=dict(response.headers), request_tokens=len(self.body) // 4)
        if verdict.kind == "unknown" and is_html(body):
            return not_an_api_error(self.label, status, body)
        return refusal_error(self.label, verdict)

    async def _reply(self, response: HttpResponse, timer: asyncio.Timeout, stream_timer: StreamTimer) -> Reply:
        pieces = response.aiter_bytes()
        head = b""
        async for head in pieces:
            # Some services send blank lines while the model thinks; they do not distinguish a stream from a body.
            if head := head.lstrip(_BLANK):
                break
        self.has_begun = bool(head)
        if head[:1] in (b"{", b"["):
            return self._parse_body(await _read_body(head, pieces))
        if not head or is_html(head):
            raise not_an_api_error(self.label, response.status_code, await _read_body(head, pieces))
        self._stream_timer = stream_timer
        return await self._read_stream(head, response, pieces, timer, stream_timer)

    def _parse_body(self, body: bytes) -> Reply:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            line = "the reply was cut off or is not valid JSON; it was discarded, try again."
            raise call_error(self.label, "transport", line) from error
        reply: Reply = self.mode.parse(value if isinstance(value, dict) else {})
        message = reply.message
        self._emit([ReasoningDelta(message.reasoning)] if message.reasoning else [])
        text_delta = RefusalDelta if reply.finish == "refusal" else TextDelta
        self._emit([text_delta(message.text)] if message.text else [])
        self._emit([ToolCallParsed(call) for call in message.tool_calls])
        return reply

    async def _read_stream(
        self,
        head: bytes,
        response: HttpResponse,
        pieces: AsyncIterator[bytes],
        timer: asyncio.Timeout,
        stream_timer: StreamTimer,
    ) -> Reply:
        reader, stream = SseReader(), self.mode.make_stream()

        def consume(piece: bytes) -> bool:
            before = stream.progress
            events = reader.feed(piece)
            self._feed(events, stream)
            self._size += len(piece)
            if self._size > MAX_BODY_BYTES:
                raise not_an_api_error(self.label, 200, head, partial=self.partial_text)
            if events and _is_last(events[-1]):
                return True
            if stream.progress > before:
                stream_timer.on_progress()
            else:  # pings, empty deltas, usage figures, part of an event: no sign that the model is still generating
                stream_timer.on_keep_alive()
            return False

        if consume(head) or await push_chunks(response, pieces, consume):
            timer.reschedule(None)
            await _drain(pieces, (TimeoutError, *self._network_errors))
        else:
            self._feed(reader.finish(), stream)
        reply: Reply = stream.finish()
        return reply

    def _feed(self, events: Sequence[SseEvent], stream: Any) -> None:
        """Parse the events of one chunk and emit their deltas, adjacent ones merged."""
        if len(events) == 1:
            self._emit(stream.feed(events[0]))
            return
        deltas: list[Delta] = []
        try:
            for event in events:
                deltas += stream.feed(event)
        finally:  # also the text received before a failure
            self._emit(coalesce(deltas))

    def _emit(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, TextDelta):
                self._texts.append(delta.text)
            if self.on_event is not None:
                self.on_event(delta)


def _is_last(event: SseEvent) -> bool:
    return event.name in _LAST_EVENTS or event.data == "[DONE]"


async def _drain(pieces: AsyncIterator[bytes], network_errors: tuple[type[BaseException], ...]) -> None:
    """Read to the end of the body, so that the connection can be reused; the reply is complete already."""
    try:
        async with asyncio.timeout(_LINGER_S):
            async for _ in pieces:
                pass
    except network_errors:
        return


async def _read_body(head: bytes, pieces: AsyncIterator[bytes]) -> bytes:
    """Read the rest of the body, up to MAX_BODY_BYTES."""
    body, size = [head], len(head)
    async for piece in pieces:
        body.append(piece)
        size += len(piece)
        if size > MAX_BODY_BYTES:
            break
    return b"".join(body)
