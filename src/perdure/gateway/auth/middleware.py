"""The way in: a bearer token becomes a person, and the person goes along with the request.

Nobody passes without one but to the few public paths. Routes say what they need by depending on `needs("chat")`.
A browser cannot put headers on a WebSocket, so there a token may come as the subprotocol `bearer.<token>` beside
`perdure`. Tokens are never read from a query string, where servers would log them.
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
from perdure.gateway.errors import ApiError, ApiException, to_api_error

SUBPROTOCOL = "perdure"
_TOKEN_PROTOCOL = "bearer."
# An open stream asks again this often whether its token still holds.
RECHECK_S = 5.0
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")

_CHALLENGE = {"www-authenticate": 'Bearer realm="perdure"'}
NO_TOKEN = ApiError(401, "no_token", "a token is needed: send it as `Authorization: Bearer …`", headers=_CHALLENGE)
WRONG_TOKEN = ApiError(401, "invalid_token", "this token is not known, was revoked or has expired", headers=_CHALLENGE)
BEHIND_PROXY = ApiError(
    401,
    "no_token",
    "this gateway has no token set, so it serves this machine alone and nothing that comes through a proxy; "
    "`perdure gateway token add` makes a token",
    headers=_CHALLENGE,
)


class AuthMiddleware:
    """Lets in who is known, at the pace they may come."""

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
        # The database is asked here, one at a time: the event loop waits for none.
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
        caller = _address(scope) if principal is None else ("user", principal.user_key)
        # Health is asked by machines, and a page is dozens of small files: counting those would only get in the way.
        if principal is not None and (wait_s := self._rate.take(caller)):
            await rate_limit_error(wait_s).send_to(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        if principal is None:
            await self._app(scope, receive, send)
        else:
            await AuthenticatedRequest(self, scope, token, caller=caller).run(self._app, receive, send)

    async def _authenticate(self, scope: Scope) -> tuple[Principal | None, str | None]:
        """The person and their token; no person on public paths. Raises ApiException."""
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
        """Who the token stands for now. Raises ApiException where the database cannot tell."""
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
        """Holds up whoever comes too often; on an open connection there is nothing to refuse."""
        while wait_s := self._rate.take(caller):
            await asyncio.sleep(wait_s)

    def _throttle(self, caller: tuple[str, str], api_error: ApiError) -> ApiError:
        """Guessing is slowed down by address: 429 where one has been refused too often."""
        wait_s = self._rate.take(caller) if api_error.status == 401 else 0.0
        return rate_limit_error(wait_s) if wait_s else api_error


class AuthenticatedRequest:
    """One request on its way: a stream ends when its token does."""

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
                # What a server raises when the other side has gone; the framework winds the route up for it.
                raise OSError("the token no longer holds")
            await send(message)
            self._is_open = True

        async def checked_receive() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                # Each message over a socket counts like a request.
                await self._middleware.wait_for_rate(self._caller)
                if await self._is_token_invalid():
                    await self._close_stream(send)
                    return {"type": "websocket.disconnect", "code": 1008}
            return message

        try:
            await app(self._scope, checked_receive, checked_send)
        except Exception:  # of whatever kind the framework made of the end we put to it ourselves
            if not self._is_closed:
                raise

    def _choose_protocol(self, message: Message) -> None:
        """A browser that offered subprotocols hangs up unless one is chosen; the token must not be it."""
        if not message.get("subprotocol") and SUBPROTOCOL in self._scope.get("subprotocols", ()):
            message["subprotocol"] = SUBPROTOCOL

    @property
    def _is_recheck_due(self) -> bool:
        """Whether there is anything to ask: most pieces of a stream pass without."""
        return self._is_closed or self._middleware.now_s() - self._checked_s >= RECHECK_S

    async def _is_token_invalid(self) -> bool:
        now_s = self._middleware.now_s()
        if self._is_closed or now_s - self._checked_s < RECHECK_S:
            return self._is_closed
        self._checked_s = now_s
        try:
            return await self._middleware.authenticate(self._token) is None
        except ApiException:  # the database cannot tell now; what was let in goes on until it can
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
    """What a route depends on: the person who asks, if they have the scope."""

    # Async, though nothing in it waits: a plain function would be run in a thread, for each request anew.
    async def dependency(connection: HTTPConnection) -> Principal:
        return principal_with_scope(scope, connection)

    return dependency


def principal_with_scope(scope: TokenScope, connection: HTTPConnection) -> Principal:
    """The person who asks. Raises ApiException without the scope."""
    principal = cast(Principal | None, getattr(connection.state, "principal", None))
    if principal is None:
        raise ApiException(NO_TOKEN)
    if not principal.has_scope(scope):
        raise ApiException(ApiError(403, "missing_scope", f"this needs a token with the scope {scope}"))
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
        return None
    offered = [p.strip() for line in headers.getlist("sec-websocket-protocol") for p in line.split(",")]
    tokens = [p.removeprefix(_TOKEN_PROTOCOL) for p in offered if p.startswith(_TOKEN_PROTOCOL)]
    return tokens[0] if len(tokens) == 1 else None


def _address(scope: Scope) -> tuple[str, str]:
    client = scope.get("client")
    return "address", client[0] if client else ""
