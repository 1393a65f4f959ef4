"""Limits per process: requests per minute and caller, request body size, and request timeout."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Hashable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.core.ports import Clock
from perdure.gateway.errors import ApiError, ApiException

# Buckets in memory; the least recently used is evicted, and would be full again by then.
_MAX_CALLERS = 20_000
# WebSocket close code: message too big.
_TOO_BIG = 1009


class RateLimit:
    """A token bucket for each caller: capacity `burst`, refilled at `per_minute`."""

    def __init__(self, per_minute: int | None, burst: int, *, clock: Clock) -> None:
        self._per_s = None if per_minute is None else per_minute / 60
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, caller: Hashable) -> float:
        """Consume one request and return 0, or return the seconds until one is available."""
        if self._per_s is None:
            return 0.0
        now = self._clock.monotonic_s()
        level, at = self._buckets.get(caller, (self._burst, now))
        level = min(self._burst, level + (now - at) * self._per_s)
        wait_s = 0.0 if level >= 1 else (1 - level) / self._per_s
        self._buckets[caller] = (level - 1 if wait_s == 0 else level, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > _MAX_CALLERS:
            self._buckets.popitem(last=False)
        return wait_s


def rate_limit_error(wait_s: float) -> ApiError:
    seconds = max(1, math.ceil(wait_s))
    return ApiError(
        429, "rate_limited", f"too many requests; try again in {seconds} s", headers={"retry-after": str(seconds)}
    )


class BodyLimitMiddleware:
    """Reject request bodies over the size limit, declared or not, and those that time out."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        # The rest of the body is not read, so the connection cannot be reused.
        self._too_large = ApiError(
            413, "too_large", f"the request is over {max_bytes:,} bytes", headers={"connection": "close"}
        )
        self._too_slow = ApiError(
            408, "too_slow", f"the request did not arrive within {timeout_s:g} s", headers={"connection": "close"}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._app(scope, self._limit_frames(receive), send)
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        elif _content_length(scope) > self._max_bytes:
            await self._too_large.send_to(scope, receive, send)
        else:
            await self._app(scope, self._limit_body(receive), send)

    def _limit_body(self, receive: Receive) -> Receive:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        received, is_complete = 0, False

        async def limited_receive() -> Message:
            nonlocal received, is_complete
            if is_complete:  # only a disconnect can follow, at any time
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise ApiException(self._too_slow) from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                is_complete = not message.get("more_body", False)
                if received > self._max_bytes:
                    raise ApiException(self._too_large)
            return message

        return limited_receive

    def _limit_frames(self, receive: Receive) -> Receive:
        async def limited_receive() -> Message:
            message = await receive()
            size = len(message.get("bytes") or b"") or len(message.get("text") or "")
            if size > self._max_bytes:
                return {"type": "websocket.disconnect", "code": _TOO_BIG}
            return message

        return limited_receive


def _content_length(scope: Scope) -> int:
    value = Headers(scope=scope).get("content-length", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else 0
