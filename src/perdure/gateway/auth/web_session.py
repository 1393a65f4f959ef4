"""Keep the web UI signed in across tabs without storing the token where a script or another server can read it.

Scripts can read a page's storage, and browsers send a cookie to every port of its host. So neither holds the token: the
cookie holds it combined with a random key of the same length, and the page stores the key, which it sends as a header.
Either half alone is random. The header also protects against forged requests, since other sites cannot set it.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from perdure.gateway.errors import ApiError, ApiException

KEY_HEADER = "x-perdure-key"
_PATH = "/api"
NO_BEARER = ApiError(400, "no_token", "a session begins with a token: send it as `Authorization: Bearer …`")


class SessionKeyBody(BaseModel):
    """The page's half of a session, to be sent as `X-Perdure-Key` with every request."""

    key: str


class SessionStateBody(BaseModel):
    is_signed_in: bool = True


def split_token(token: str) -> tuple[str, str]:
    """Split a token into a cookie value and a key; both are needed to join it again."""
    key = secrets.token_bytes(len(token.encode()))
    return _encode(_combine(token.encode(), key)), _encode(key)


def join_token(cookie: str, key: str) -> str | None:
    """Return the token of a cookie value and a key; None if they cannot belong together."""
    try:
        halves = base64.urlsafe_b64decode(cookie), base64.urlsafe_b64decode(key)
        return _combine(*halves).decode("ascii") if len(halves[0]) == len(halves[1]) else None
    except ValueError:  # not base64, or not text
        return None


def session_token(headers: Headers) -> str | None:
    """Return the token of a request of the web UI; None if it carries no session."""
    key = headers.get(KEY_HEADER)
    if not key:
        return None
    cookies = cookie_parser(headers.get("cookie", ""))
    return join_token(cookies.get(cookie_name(headers.get("host", "")), ""), key)


def cookie_name(host: str) -> str:
    """Return the cookie's name, which differs by port: the servers of one host share their cookies."""
    port = host.rpartition(":")[2]
    return f"perdure_{port}" if port.isdecimal() else "perdure"


def web_session_router(*, public_url: str | None, dependencies: Sequence[Any] = ()) -> APIRouter:
    """Endpoints that begin, check and end a session of the web UI; `dependencies` are FastAPI's, run before each."""
    router = APIRouter(prefix="/api/session", tags=["page"], dependencies=[*dependencies])
    is_public_tls = bool(public_url and public_url.startswith("https:"))

    @router.post("", response_model=SessionKeyBody)
    async def begin(request: Request, response: Response) -> SessionKeyBody:
        """Begin a session for the token of this request: set the cookie and return the key."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise ApiException(NO_BEARER)
        cookie, key = split_token(token.strip())
        is_secure = is_public_tls or request.url.scheme == "https"
        name = cookie_name(request.headers.get("host", ""))
        response.set_cookie(name, cookie, path=_PATH, httponly=True, samesite="strict", secure=is_secure)
        return SessionKeyBody(key=key)

    @router.get("", response_model=SessionStateBody)
    async def check() -> SessionStateBody:
        """Return whether the request is authenticated; without a token or a session it is refused."""
        return SessionStateBody()

    @router.delete("", status_code=204)
    async def end(request: Request) -> Response:
        """End the session in this browser; the token stays valid."""
        response = Response(status_code=204)
        response.delete_cookie(cookie_name(request.headers.get("host", "")), path=_PATH)
        return response

    return router


def _combine(data: bytes, key: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(data, key, strict=True))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii")
