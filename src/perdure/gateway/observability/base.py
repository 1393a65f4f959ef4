"""Observers of requests and turns. They receive statistics and cannot change anything.

`RequestLogMiddleware` is the outermost middleware: it assigns the request id, records the response, and turns an
unexpected error into a response. `TurnObserver` adds up the events of each turn, so that observers need not.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.core.events import (
    CallFinished,
    CallStarted,
    CompactionFinished,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    TurnFinished,
    TurnStarted,
)
from perdure.core.ports import Clock
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import AnyUser
from perdure.gateway.errors import to_api_error
from perdure.gateway.events.serialize import is_final
from perdure.gateway.events.types import ChatKey, CommandAnswered, GatewayEvent

_log = logging.getLogger(__name__)
_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
_DELTAS = (TextDelta, ReasoningDelta)
# Evict turns whose final event never came.
_MAX_TURNS = 10_000


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request and its response; `route` is the pattern, since a path may contain user input."""

    request_id: str
    kind: str
    method: str
    route: str
    status: int
    seconds: float
    user: AnyUser | None
    address: str
    sent_bytes: int
    # The code of an API error, if the request was rejected.
    code: str | None = None


@dataclass(slots=True)
class TurnStats:
    """The statistics of a running turn."""

    turn_id: str
    chat: ChatKey
    began_s: float
    session_id: str = ""
    calls: int = 0
    tools: int = 0
    compactions: int = 0
    usage: CanonicalUsage = field(default_factory=CanonicalUsage)
    cost_usd: float | None = None
    first_text_s: float | None = None
    seconds: float = 0.0


class Observer(Protocol):
    """Receives the record of each request and the events of each turn, except text and reasoning deltas.

    Must not block; its exceptions are logged and ignored.
    """

    def on_request(self, record: RequestRecord) -> None: ...

    def on_event(self, stats: TurnStats, event: GatewayEvent) -> None:
        """Handle an event; `stats` includes it already, and is updated in place by later events."""
        ...


class TurnObserver:
    """Updates the statistics of every turn, and passes them to the observers with each event except deltas."""

    def __init__(self, observers: Sequence[Observer], clock: Clock) -> None:
        self._observers = tuple(observers)
        self._clock = clock
        self._running: OrderedDict[str, TurnStats] = OrderedDict()

    def on_event(self, chat: ChatKey, turn_id: str, event: GatewayEvent) -> None:
        """Count an event, and notify the observers unless it is a delta. Called on the event loop."""
        stats = self._running.get(turn_id)
        if stats is None:
            stats = self._running[turn_id] = TurnStats(turn_id, chat, self._clock.monotonic_s())
            if len(self._running) > _MAX_TURNS:
                self._running.popitem(last=False)
        if isinstance(event, _DELTAS):  # by far the most frequent, and only the first one counts
            if stats.first_text_s is None:
                stats.first_text_s = self._clock.monotonic_s() - stats.began_s
            return
        self._add(stats, event)
        for observer in self._observers:
            try:
                observer.on_event(stats, event)
            except Exception:  # an observer may be third-party code: the turn must survive it
                _log.exception("an observer failed on %s", type(event).__name__)
        if is_final(event):
            self._running.pop(turn_id, None)

    def _add(self, stats: TurnStats, event: GatewayEvent) -> None:
        match event:
            case TurnStarted(session_id=session_id):
                stats.session_id = session_id
            case CallStarted():
                stats.calls += 1
            case CallFinished(usage=usage, cost_usd=cost):
                stats.usage += usage
                stats.cost_usd = stats.cost_usd if cost is None else (stats.cost_usd or 0.0) + cost
            case ToolFinished():
                stats.tools += 1
            case CompactionFinished(outcome="compacted" | "digest"):
                stats.compactions += 1
            case TurnFinished() | CommandAnswered():
                stats.seconds = self._clock.monotonic_s() - stats.began_s


class RequestLogMiddleware:
    """Assign request ids, record responses and handle unexpected errors."""

    def __init__(self, app: ASGIApp, *, observers: Sequence[Observer], clock: Clock) -> None:
        self._app = app
        self._observers = tuple(observers)
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        response = _ResponseState(_request_id(scope), self._clock.monotonic_s())

        async def observed_send(message: Message) -> None:
            response.observe(message)
            await send(message)

        try:
            await self._app(scope, receive, observed_send)
        except ClientDisconnect:
            response.status = response.status or 499  # the client disconnected: there is no response to send
        except Exception as error:  # process edge: the client gets a response, the log a traceback
            api_error = to_api_error(error)
            if api_error.status >= 500:
                _log.exception("request %s failed", response.request_id)
            if response.status is not None:
                raise  # the response has started: only the server can close the connection
            await api_error.send_to(scope, receive, observed_send)
        finally:
            self._notify(scope, response)

    def _notify(self, scope: Scope, response: _ResponseState) -> None:
        state = scope.get("state") or {}
        principal = state.get("principal")
        route = scope.get("route")
        client = scope.get("client")
        record = RequestRecord(
            request_id=response.request_id,
            kind=scope["type"],
            method=scope.get("method", "GET"),
            route=getattr(route, "path", None) or "(none)",
            status=response.status or 0,
            seconds=self._clock.monotonic_s() - response.began_s,
            user=principal.user if principal is not None else None,
            address=client[0] if client else "",
            sent_bytes=response.sent_bytes,
            code=state.get("error_code"),
        )
        for observer in self._observers:
            try:
                observer.on_request(record)
            except Exception:  # an observer may be third-party code
                _log.exception("an observer failed on request %s", response.request_id)


class _ResponseState:
    """The status of a response and the bytes sent so far; sets its request id."""

    def __init__(self, request_id: str, began_s: float) -> None:
        self.request_id = request_id
        self.began_s = began_s
        self.status: int | None = None
        self.sent_bytes = 0

    def observe(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.body":  # by far the most frequent
            self.sent_bytes += len(message.get("body", b""))
        elif kind in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            MutableHeaders(scope=message)["x-request-id"] = self.request_id
        elif kind == "websocket.accept":
            self.status = 101
        elif kind == "websocket.close" and self.status is None:
            self.status = 403
        elif kind == "websocket.send":
            self.sent_bytes += len(message.get("text") or message.get("bytes") or "")


def _request_id(scope: Scope) -> str:
    """Return the proxy's X-Request-ID if it is valid, so that its log can be correlated, else a new id."""
    value = Headers(scope=scope).get("x-request-id", "")
    return value if _REQUEST_ID.fullmatch(value) else f"r_{secrets.token_hex(8)}"
