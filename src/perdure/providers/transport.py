"""Sends a request and reads the reply, streaming or not; every failure comes back as one `ProviderError`.

`send` builds the body with the endpoint's wire mode, posts it, feeds what arrives to the mode's `Stream` (or hands the
whole body to its `parse`) and returns a `Reply`. It tries again only while no byte of a reply has arrived; what to do
about any other failure is the caller's decision, taken from the verdict. Cancelling the task closes the call at once.

What a service answers is told by its first bytes, not by its headers: some stream when asked not to, some answer a
stream request with one JSON body, and some send a web page with status 200.
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
from perdure.core.events import ReasoningDelta, TextDelta, ToolCallParsed
from perdure.providers.errors.messages import (
    EndpointLabel,
    call_error,
    find_invalid_header,
    invalid_header_error,
    is_html,
    is_refusal,
    is_refusal_status,
    is_worth_retrying,
    network_error,
    not_an_api_error,
    refusal_error,
    was_never_sent,
)
from perdure.providers.http import HttpClient, HttpResponse, HttpxClient, SseReader, push_chunks
from perdure.providers.protocols import mode_module
from perdure.providers.timeouts import Retries, StreamTimer, Timeouts
from perdure.providers.types import Endpoint, ModelRequest, Reply, SseEvent

__all__ = ["Delta", "OnEvent", "Retries", "Timeouts", "Transport"]

Delta = TextDelta | ReasoningDelta | ToolCallParsed
OnEvent = Callable[[Delta], None]

# No reply is longer; what is, is no reply.
MAX_BODY_BYTES = 64 << 20
# After its last event a service closes the body; one that forgets to is not waited for.
_LINGER_S = 0.25
_BLANK = b"\xef\xbb\xbf \t\r\n"
_LAST_EVENTS = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})


class Transport:
    """The way to every service. Construction touches nothing; the first `send` opens a connection."""

    def __init__(
        self,
        *,
        wire: HttpClient | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._wire = wire or HttpxClient()
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._sleep = sleep
        self._random = random

    async def send(self, endpoint: Endpoint, request: ModelRequest, *, on_event: OnEvent | None = None) -> Reply:
        """The model's reply. Raises ProviderError; its `partial_text` is what had been said by then."""
        mode = mode_module(endpoint.api_mode)
        body: bytes = mode.build(request)
        attempt, may_be_billed = 0, False
        while True:
            attempt += 1
            call = _Attempt(endpoint, mode, body=body, is_streaming=request.is_streaming, on_event=on_event)
            try:
                return await call.run(self._wire, self._timeouts)
            except ProviderError as error:
                # A retry that is refused does not undo what an earlier attempt may have cost.
                may_be_billed = error.may_be_billed = may_be_billed or not call.is_unbilled
                wait_s = self._wait_s(call, error.verdict, attempt)
                if wait_s is None:
                    raise
            await self._sleep(wait_s)

    async def aclose(self) -> None:
        await self._wire.aclose()

    def _wait_s(self, call: _Attempt, verdict: ErrorVerdict, attempt: int) -> float | None:
        if call.has_begun or not call.may_retry or not is_retryable(verdict):
            return None
        return self._retries.wait_s(attempt, retry_after_s=verdict.retry_after_s, random=self._random())


class _Attempt:
    """One attempt: what was sent, and how far the answer has come."""

    def __init__(
        self, endpoint: Endpoint, mode: ModuleType, *, body: bytes, is_streaming: bool, on_event: OnEvent | None
    ) -> None:
        self.endpoint = endpoint
        self.mode = mode
        self.body = body
        self.is_streaming = is_streaming
        self.on_event = on_event
        self.place = EndpointLabel.of(endpoint)
        # A byte of a reply has arrived: from here on, nothing is tried again.
        self.has_begun = False
        self.may_retry = True
        # The service refused the request, or never got it.
        self.is_unbilled = False
        # Set once a stream has begun.
        self._stream_timer: StreamTimer | None = None
        self._size = 0
        self._said: list[str] = []
        self._losses: tuple[type[BaseException], ...] = ()

    @property
    def partial_text(self) -> str:
        return "".join(self._said)

    async def run(self, wire: HttpClient, timeouts: Timeouts) -> Reply:
        first_s = timeouts.first_token_s if self.is_streaming else timeouts.reply_s
        self._losses = wire.failures()
        headers = {"content-type": "application/json", **self.mode.headers(self.endpoint)}
        if (name := find_invalid_header(headers)) is not None:
            self.is_unbilled = True
            raise invalid_header_error(self.place, name)
        try:
            started_s = asyncio.get_running_loop().time()
            async with asyncio.timeout(first_s) as timer:
                async with wire.post(
                    self.endpoint, self.mode.PATH, headers=headers, body=self.body, connect_s=timeouts.connect_s
                ) as response:
                    return await self._read(response, timer, StreamTimer(timer, timeouts, started_s=started_s))
        except TimeoutError as late:
            if not timer.expired():
                raise network_error(self.place, late, partial=self.partial_text) from late
            raise self._too_late(first_s) from late
        except self._losses as lost:
            self.may_retry = is_worth_retrying(lost)
            self.is_unbilled = not self.has_begun and was_never_sent(lost)
            raise network_error(self.place, lost, partial=self.partial_text) from lost
        except ProviderError as said:
            if said.where:
                raise
            self.is_unbilled = not self._said and is_refusal(said.verdict)
            raise refusal_error(self.place, said.verdict, partial=self.partial_text or said.partial_text) from said

    def _too_late(self, first_s: float) -> ProviderError:
        self.may_retry = False
        line = f"no reply within {first_s:g} s: the service is slow or stuck. Try again, or choose another model."
        if self._stream_timer is not None:
            line = self._stream_timer.timeout_message()
        return call_error(self.place, "transport", line, partial=self.partial_text)

    async def _read(self, response: HttpResponse, timer: asyncio.Timeout, stream_timer: StreamTimer) -> Reply:
        status = response.status_code
        if status >= 400:
            error = self._error(status, await _joined(b"", response.aiter_bytes()), response)
            # A refusal is free whatever its status: llama.cpp answers a prompt that is too long with 500.
            self.is_unbilled = is_refusal_status(status) or is_refusal(error.verdict)
            raise error
        if 300 <= status < 400:
            self.may_retry, self.is_unbilled = False, True
            goal = response.headers.get("location", "elsewhere")
            line = f"moved to {goal} ({status}): set `model.base_url` to the new address."
            raise call_error(self.place, "transport", line, status=status)
        return await self._reply(response, timer, stream_timer)

    def _error(self, status: int, body: bytes, response: HttpResponse) -> ProviderError:
        text = body.decode("utf-8", "replace")
        # Imported late: the tables of error patterns are slow to compile, and most calls succeed.
        from perdure.providers.errors.classify import classify_error

        verdict = classify_error(status, text, headers=dict(response.headers), request_tokens=len(self.body) // 4)
        if verdict.kind == "unknown" and is_html(body):
            return not_an_api_error(self.place, status, body)
        return refusal_error(self.place, verdict)

    async def _reply(self, response: HttpResponse, timer: asyncio.Timeout, stream_timer: StreamTimer) -> Reply:
        pieces = response.aiter_bytes()
        head = b""
        async for head in pieces:
            # Some services send blank lines while they think: those say nothing about what is coming.
            if head := head.lstrip(_BLANK):
                break
        self.has_begun = bool(head)
        if head[:1] in (b"{", b"["):
            return self._whole_reply(await _joined(head, pieces))
        if not head or is_html(head):
            raise not_an_api_error(self.place, response.status_code, await _joined(head, pieces))
        self._stream_timer = stream_timer
        return await self._streamed_reply(head, response, pieces, timer, stream_timer)

    def _whole_reply(self, body: bytes) -> Reply:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            line = "the reply broke off in the middle, or is no JSON; nothing was kept of it, try again."
            raise call_error(self.place, "transport", line) from error
        reply: Reply = self.mode.parse(value if isinstance(value, dict) else {})
        message = reply.message
        self._tell([ReasoningDelta(message.reasoning)] if message.reasoning else [])
        self._tell([TextDelta(message.text)] if message.text else [])
        self._tell([ToolCallParsed(call) for call in message.tool_calls])
        return reply

    async def _streamed_reply(
        self,
        head: bytes,
        response: HttpResponse,
        pieces: AsyncIterator[bytes],
        timer: asyncio.Timeout,
        stream_timer: StreamTimer,
    ) -> Reply:
        reader, stream = SseReader(), self.mode.make_stream()

        def take(piece: bytes) -> bool:
            before = stream.progress
            events = reader.feed(piece)
            self._hear(events, stream)
            self._size += len(piece)
            if self._size > MAX_BODY_BYTES:
                raise not_an_api_error(self.place, 200, head, partial=self.partial_text)
            if events and _is_last(events[-1]):
                return True
            if stream.progress > before:
                stream_timer.on_progress()
            else:  # pings, empty deltas, usage figures, part of an event: no sign that the model still writes
                stream_timer.on_keep_alive()
            return False

        if take(head) or await push_chunks(response, pieces, take):
            timer.reschedule(None)
            await _drain(pieces, (TimeoutError, *self._losses))
        else:
            self._hear(reader.finish(), stream)
        reply: Reply = stream.finish()
        return reply

    def _hear(self, events: Sequence[SseEvent], stream: Any) -> None:
        """Tells what a piece of a stream says; words that came together are told together."""
        if len(events) == 1:
            self._tell(stream.feed(events[0]))
            return
        deltas: list[Delta] = []
        try:
            for event in events:
                deltas += stream.feed(event)
        finally:  # also what was said before a failure
            self._tell(_words_joined(deltas))

    def _tell(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            if type(delta) is TextDelta:
                self._said.append(delta.text)
            if self.on_event is not None:
                self.on_event(delta)


def _words_joined(deltas: Sequence[Delta]) -> list[Delta]:
    joined: list[Delta] = []
    for delta in deltas:
        if joined and type(delta) is TextDelta and type(last := joined[-1]) is TextDelta:
            joined[-1] = TextDelta(last.text + delta.text)
        else:
            joined.append(delta)
    return joined


def _is_last(event: SseEvent) -> bool:
    return event.name in _LAST_EVENTS or event.data == "[DONE]"


async def _drain(pieces: AsyncIterator[bytes], losses: tuple[type[BaseException], ...]) -> None:
    """Reads to the body's end, so that the connection can be used again; the reply is whole already."""
    try:
        async with asyncio.timeout(_LINGER_S):
            async for _ in pieces:
                pass
    except losses:
        return


async def _joined(head: bytes, pieces: AsyncIterator[bytes]) -> bytes:
    """The whole body, or as much of it as any reply could have."""
    body, size = [head], len(head)
    async for piece in pieces:
        body.append(piece)
        size += len(piece)
        if size > MAX_BODY_BYTES:
            break
    return b"".join(body)
