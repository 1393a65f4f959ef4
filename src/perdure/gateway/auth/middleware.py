"""Authenticate requests: a bearer token becomes the principal in the request state.

Only public paths pass without a token. Routes declare the scope they need with `Depends(require_scope("chat"))`.
Browsers cannot set headers on a WebSocket, so there the token may be sent as the subprotocol `bearer.<token>` next to
`perdure`. The web UI sends halves of a token as a cookie and a header (`web_session`). Tokens are never read from a
query string, which servers would log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.core.errors import StoreError
from perdure.core.ports import Clock
from perdure.gateway.auth.limits import RateLimit, rate_limit_error
from perdure.gateway.auth.principal import Authenticator, Principal
from perdure.gateway.auth.principal import Scope as TokenScope
from perdure.gateway.auth.web_session import session_token
from perdure.gateway.errors import ApiError, ApiException, to_api_error

SUBPROTOCOL = "perdure"
_TOKEN_PROTOCOL = "bearer."
# How often an open stream validates its token again.
RECHECK_S = 5.0
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")

_CHALLENGE = {"www-authenticate": 'Bearer realm="perdure"'}
NO_TOKEN = ApiError(
    401, "no_token", "authentication required: send a token as `Authorization: Bearer …`", headers=_CHALLENGE
)
WRONG_TOKEN = ApiError(401, "invalid_token", "the token is unknown, revoked or expired", headers=_CHALLENGE)
BEHIND_PROXY = ApiError(
    401,
    "no_token",
    "no token exists, so only direct requests from this machine are served, not through a proxy; "
    "`perdure gateway token add` creates a token",
    headers=_CHALLENGE,
)


class AuthMiddleware:
    """Authenticates and rate limits every request."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        is_public: Callable[[str, str], bool],
        rate: RateLimit,
        clock: Clock,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._is_public = is_public
        self._rate = rate
        self._clock = clock
        # Token lookups run here, one at a time, so that the event loop never waits for the database.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="perdure-tokens")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            principal, token = await self._authenticate(scope)
        except ApiException as error:
            await self._throttle(_address(scope), error.api_error).send_to(scope, receive, send)
            return
        caller = _address(scope) if principal is None else ("user", principal.user.stored_key)
        # Public paths are not counted: health checks are frequent, and the web UI loads dozens of small files.
        if principal is not None and (wait_s := self._rate.take(caller)):
            await rate_limit_error(wait_s).send_to(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        if principal is None:
            await self._app(scope, receive, send)
        else:
            await AuthenticatedRequest(self, scope, token, caller=caller).run(self._app, receive, send)

    async def _authenticate(self, scope: Scope) -> tuple[Principal | None, str | None]:
        """Return the principal and its token; None on public paths. Raises ApiException."""
        if self._is_public(scope.get("method", "GET"), scope["path"]):
            return None, None
        headers = Headers(scope=scope)
        token = _token(headers, is_socket=scope["type"] == "websocket")
        principal = await self.authenticate(token)
        if principal is None:
            raise ApiException(NO_TOKEN if token is None else WRONG_TOKEN)
        is_without_token = await self.authenticate(None) is not None
        if is_without_token and any(name in headers for name in _FORWARDED):
            raise ApiException(BEHIND_PROXY)
        return principal, token

    async def authenticate(self, token: str | None) -> Principal | None:
        """Return the token's principal, if any. Raises ApiException if the database is unavailable."""
        try:
            if getattr(self._authenticator, "is_fresh", False):
                return self._authenticator.authenticate(token)
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, self._authenticator.authenticate, token
            )
        except StoreError as error:
            raise ApiException(to_api_error(error)) from error

    def now_s(self) -> float:
        return self._clock.monotonic_s()

    async def wait_for_rate(self, caller: tuple[str, str]) -> None:
        """Delay messages of an open WebSocket to the rate limit; they cannot be rejected with a status."""
        while wait_s := self._rate.take(caller):
            await asyncio.sleep(wait_s)

    def _throttle(self, caller: tuple[str, str], api_error: ApiError) -> ApiError:
        """Rate limit failed authentication by address: return 429 instead of 401 after too many attempts."""
        wait_s = self._rate.take(caller) if api_error.status == 401 else 0.0
        return rate_limit_error(wait_s) if wait_s else api_error


class AuthenticatedRequest:
    """An authenticated request; its stream ends when the token expires or is revoked."""

    def __init__(self, middleware: AuthMiddleware, scope: Scope, token: str | None, *, caller: tuple[str, str]) -> None:
        self._middleware = middleware
        self._scope = scope
        self._token = token
        self._caller = caller
        self._checked_s = middleware.now_s()
        self._is_closed = False
        self._is_open = False

    async def run(self, app: ASGIApp, receive: Receive, send: Send) -> None:
        async def checked_send(message: Message) -> None:
            if message["type"] == "websocket.accept":
                self._choose_protocol(message)
            if self._is_open and self._is_recheck_due and await self._is_token_invalid():
                await self._close_stream(send)
                # As if the client had disconnected: the framework then cancels the route.
                raise OSError("the token is no longer valid")
            await send(message)
            self._is_open = True

        async def checked_receive() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                # Each WebSocket message counts as a request.
                await self._middleware.wait_for_rate(self._caller)
                if await self._is_token_invalid():
                    await self._close_stream(send)
                    return {"type": "websocket.disconnect", "code": 1008}
            return message

        try:
            await app(self._scope, checked_receive, checked_send)
        except Exception:  # the framework's reaction to the stream that was closed here
            if not self._is_closed:
                raise

    def _choose_protocol(self, message: Message) -> None:
        """Select `perdure`: browsers require one of the offered subprotocols, and it must not be the token."""
        if not message.get("subprotocol") and SUBPROTOCOL in self._scope.get("subprotocols", ()):
            message["subprotocol"] = SUBPROTOCOL

    @property
    def _is_recheck_due(self) -> bool:
        """Whether the token has to be validated again; most chunks of a stream pass without."""
        return self._is_closed or self._middleware.now_s() - self._checked_s >= RECHECK_S

    async def _is_token_invalid(self) -> bool:
        now_s = self._middleware.now_s()
        if self._is_closed or now_s - self._checked_s < RECHECK_S:
            return self._is_closed
        self._checked_s = now_s
        try:
            return await self._middleware.authenticate(self._token) is None
        except ApiException:  # the database is unavailable: keep the stream open until it can be checked
            return False

    async def _close_stream(self, send: Send) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._scope["type"] == "websocket":
            await send(WRONG_TOKEN.as_websocket_close)
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def require_scope(scope: TokenScope) -> Callable[[HTTPConnection], Awaitable[Principal]]:
    """Return a route dependency that requires a scope and returns the principal."""

    # Async, since FastAPI would run a sync dependency in a thread for each request.
    async def dependency(connection: HTTPConnection) -> Principal:
        return principal_with_scope(scope, connection)

    return dependency


def principal_with_scope(scope: TokenScope, connection: HTTPConnection) -> Principal:
    """Return the request's principal. Raises ApiException if it lacks the scope."""
    principal = cast(Principal | None, getattr(connection.state, "principal", None))
    if principal is None:
        raise ApiException(NO_TOKEN)
    if not principal.has_scope(scope):
        raise ApiException(ApiError(403, "missing_scope", f"a token with the scope {scope} is required"))
    return principal


def _token(headers: Headers, *, is_socket: bool) -> str | None:
    values = headers.getlist("authorization")
    if len(values) > 1:
        raise ApiException(WRONG_TOKEN)
    if values:
        scheme, _, token = values[0].partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise ApiException(WRONG_TOKEN)
        return token.strip()
    if not is_socket:
        return session_token(headers)
    offered = [p.strip() for line in headers.getlist("sec-websocket-protocol") for p in line.split(",")]
    tokens = [p.removeprefix(_TOKEN_PROTOCOL) for p in offered if p.startswith(_TOKEN_PROTOCOL)]
    return tokens[0] if len(tokens) == 1 else None


def _address(scope: Scope) -> tuple[str, str]:
    client = scope.get("client")
    return "address", client[0] if client else ""
