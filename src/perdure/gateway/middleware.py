"""Install middleware and error handlers."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.config.settings import GatewaySettings
from perdure.core.clock import SystemClock
from perdure.core.errors import PerdureError
from perdure.core.ports import Clock
from perdure.gateway.auth.hosts import HostCheckMiddleware, HostNames
from perdure.gateway.auth.limits import BodyLimitMiddleware, RateLimit
from perdure.gateway.auth.middleware import AuthMiddleware
from perdure.gateway.auth.principal import Authenticator
from perdure.gateway.errors import ApiError, patch_openapi, to_api_error
from perdure.gateway.observability.base import Observer, RequestLogMiddleware

# The page is plain files of ours and data it fetches; text of a model's is never markup there, and could do nothing.
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


class SecurityHeadersMiddleware:
    """Adds them to every answer. What a conversation holds is not kept by caches, unless a route says otherwise."""

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


HEALTH_PATHS = ("/healthz", "/readyz")
# The page's own files hold nothing of anybody's: its token comes with the data it fetches.
_WEB_UI_FILES = ("/", "/index.html", "/favicon.ico")
_WEB_UI_FOLDERS = ("/static/", "/assets/")


def is_public(method: str, path: str) -> bool:
    """The paths that need no token: health, and the page's files."""
    if method not in ("GET", "HEAD"):
        return False
    return path in HEALTH_PATHS or path in _WEB_UI_FILES or (path.startswith(_WEB_UI_FOLDERS) and ".." not in path)


def install_middleware(
    app: FastAPI,
    authenticator: Authenticator,
    *,
    settings: GatewaySettings,
    clock: Clock | None = None,
    observers: Sequence[Observer] = (),
) -> None:
    """Puts every check there is in front of `app`, and lets all of its errors leave in one shape."""
    clock = clock or SystemClock()
    rate = RateLimit(settings.requests_per_minute, settings.request_burst, clock=clock)
    # The last one added is the first to see a request.
    app.add_middleware(AuthMiddleware, authenticator=authenticator, is_public=is_public, rate=rate, clock=clock)
    app.add_middleware(BodyLimitMiddleware, max_bytes=settings.max_body_bytes, timeout_s=settings.body_timeout_s)
    names = HostNames(settings.host, public_url=settings.public_url, allowed=settings.allowed_hosts)
    app.add_middleware(HostCheckMiddleware, names=names)
    app.add_middleware(RequestLogMiddleware, observers=observers, clock=clock)
    # Outside of all, so that even the answer to an error nobody foresaw has them.
    app.add_middleware(SecurityHeadersMiddleware)
    install_error_handlers(app)
    patch_openapi(app, public=HEALTH_PATHS)


def install_error_handlers(app: FastAPI) -> None:
    """Every error leaves in the one shape of `refusals`."""

    def handle_error(request: Request, error: Exception) -> JSONResponse:
        api_error = to_api_error(error)
        api_error.record_in(request.scope)
        return JSONResponse(api_error.body, api_error.status, headers=dict(api_error.headers))

    def handle_validation_error(request: Request, error: Exception) -> JSONResponse:
        errors = error.errors() if isinstance(error, RequestValidationError) else []
        # Of the alternatives a field has, the one that is merely too long is the one that was meant.
        first = next((e for e in errors if e["type"] == "too_long"), errors[0] if errors else {})
        path = ".".join(str(part) for part in first.get("loc", ())[1:])
        # What was sent is not sent back: it may be long, and it may be a secret.
        message = f"{path}: {first.get('msg', 'not valid')}" if path else str(first.get("msg", "not valid"))
        api_error = ApiError(422, "invalid_request", message, param=path or None)
        api_error.record_in(request.scope)
        return JSONResponse(api_error.body, api_error.status)

    app.add_exception_handler(HTTPException, handle_error)
    app.add_exception_handler(PerdureError, handle_error)
    app.add_exception_handler(RequestValidationError, handle_validation_error)
