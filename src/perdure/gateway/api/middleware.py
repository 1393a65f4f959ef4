"""Middleware and error handlers that every request passes."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.config.settings import GatewaySettings
from perdure.core.concurrency import SystemClock
from perdure.core.errors import PerdureError
from perdure.core.ports import Clock
from perdure.gateway.auth.hosts import HostCheckMiddleware, HostNames
from perdure.gateway.auth.limits import BodyLimitMiddleware, RateLimit
from perdure.gateway.auth.middleware import AuthMiddleware
from perdure.gateway.auth.principal import Authenticator
from perdure.gateway.errors import ApiError, patch_openapi, to_api_error
from perdure.gateway.observability.base import Observer, RequestLogMiddleware

HEALTH_PATHS = ("/healthz", "/readyz")
# The web UI's files contain no user data: its requests for data carry the token.
_WEB_UI_FILES = ("/", "/index.html", "/favicon.ico")
_WEB_UI_FOLDERS = ("/static/", "/assets/")
# The web UI is static files plus JSON; model output is never rendered as markup, and could run nothing if it were.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "form-action 'none'",
    )
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


def install_middleware(
    app: FastAPI,
    authenticator: Authenticator,
    *,
    settings: GatewaySettings,
    clock: Clock | None = None,
    observers: Sequence[Observer] = (),
) -> None:
    """Add authentication, limits, host checks, request logging and error handlers to `app`."""
    clock = clock or SystemClock()
    rate = RateLimit(settings.requests_per_minute, settings.request_burst, clock=clock)
    # The middleware added last sees a request first.
    app.add_middleware(AuthMiddleware, authenticator=authenticator, is_public=is_public, rate=rate, clock=clock)
    app.add_middleware(BodyLimitMiddleware, max_bytes=settings.max_body_bytes, timeout_s=settings.body_timeout_s)
    names = HostNames(settings.host, public_url=settings.public_url, allowed=settings.allowed_hosts)
    app.add_middleware(HostCheckMiddleware, names=names)
    app.add_middleware(RequestLogMiddleware, observers=observers, clock=clock)
    # Outermost, so that error responses carry the headers too.
    app.add_middleware(SecurityHeadersMiddleware)
    install_error_handlers(app)
    patch_openapi(app, public=HEALTH_PATHS)


def install_error_handlers(app: FastAPI) -> None:
    """Return every error in the JSON shape of `ApiError`."""

    def handle_error(request: Request, error: Exception) -> JSONResponse:
        api_error = to_api_error(error)
        api_error.record_in(request.scope)
        return JSONResponse(api_error.body, api_error.status, headers=dict(api_error.headers))

    def handle_validation_error(request: Request, error: Exception) -> JSONResponse:
        errors = error.errors() if isinstance(error, RequestValidationError) else []
        # A union field reports an error per alternative; `too_long` is the one that explains the request.
        first = next((e for e in errors if e["type"] == "too_long"), errors[0] if errors else {})
        path = ".".join(str(part) for part in first.get("loc", ())[1:])
        # Do not echo the input: it may be long, and it may be a secret.
        message = f"{path}: {first.get('msg', 'not valid')}" if path else str(first.get("msg", "not valid"))
        api_error = ApiError(422, "invalid_request", message, param=path or None)
        api_error.record_in(request.scope)
        return JSONResponse(api_error.body, api_error.status)

    app.add_exception_handler(HTTPException, handle_error)
    app.add_exception_handler(PerdureError, handle_error)
    app.add_exception_handler(RequestValidationError, handle_validation_error)


def is_public(method: str, path: str) -> bool:
    """Return whether a path needs no token: health checks and the web UI's static files."""
    if method not in ("GET", "HEAD"):
        return False
    return path in HEALTH_PATHS or path in _WEB_UI_FILES or (path.startswith(_WEB_UI_FOLDERS) and ".." not in path)


class SecurityHeadersMiddleware:
    """Add security headers to every response; conversations are not cached unless a route sets cache-control."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, with_headers)
