"""Check `Host` and `Origin`, so that web pages of other sites cannot use a gateway through its user's browser.

Any page may send requests to this machine, and with DNS rebinding it could even read the responses: so `Host` must be
an IP address or a configured name. Requests that change state, and WebSockets, must come from the gateway's own origin
or from a client without one. No CORS header is ever sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.gateway.errors import ApiError

_SAFE_METHODS = frozenset({"GET", "HEAD"})
_DEFAULT_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443"}
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})

NO_HOST = ApiError(400, "no_host", "the request needs exactly one Host header")
WRONG_HOST = ApiError(421, "wrong_host", "unknown host name; add it to gateway.allowed_hosts if it is yours")
WRONG_ORIGIN = ApiError(403, "wrong_origin", "cross-site requests are not allowed")


class HostNames:
    """The host names a gateway answers to."""

    def __init__(self, host: str, *, public_url: str | None = None, allowed: Iterable[str] = ()) -> None:
        self._public_origin = _origin(public_url) if public_url else None
        public = urlsplit(public_url).hostname if public_url else None
        names = [*allowed, *([public] if public else []), *([] if host in _WILDCARDS else [host]), "localhost"]
        self._exact = frozenset(n.lower().rstrip(".") for n in names if not n.startswith("*."))
        self._below = tuple(n[1:].lower() for n in names if n.startswith("*."))

    def is_known_host(self, host_header: str) -> bool:
        """Return True for a configured name and for any IP address, which DNS rebinding cannot forge."""
        name = _hostname(host_header)
        if name is None:
            return False
        return name in self._exact or name.endswith(self._below or ("\0",)) or _is_address(name)

    def is_own_origin(self, origin: str, host_header: str) -> bool:
        """Return True if the origin is the requested host or the public URL."""
        # A proxy may terminate TLS, so the schemes can differ: compare host and port.
        parts = _split_url(origin)
        if parts is None or parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            return False
        if _origin(origin) == self._public_origin:
            return True
        default = _DEFAULT_PORTS[parts.scheme]
        return _with_port(parts.netloc, default) == _with_port(host_header, default)


class HostCheckMiddleware:
    """Reject unknown hosts and cross-site requests, before any other middleware."""

    def __init__(self, app: ASGIApp, *, names: HostNames) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        api_error = self._check(scope) if scope["type"] in ("http", "websocket") else None
        if api_error is not None:
            await api_error.send_to(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not hosts[0]:
            return NO_HOST
        if not self._names.is_known_host(hosts[0]):
            return WRONG_HOST
        is_foreign = any(not self._names.is_own_origin(origin, hosts[0]) for origin in origins)
        if is_foreign and (scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS):
            return WRONG_ORIGIN
        # Browsers send Sec-Fetch-Site even without an Origin; following a link is allowed.
        is_embedded = headers.get("sec-fetch-mode") not in (None, "navigate")
        if headers.get("sec-fetch-site") == "cross-site" and is_embedded:
            return WRONG_ORIGIN
        return None


def _split_url(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for an invalid port
    except ValueError:
        return None
    return parts


def _origin(url: str) -> tuple[str, str, str] | None:
    parts = _split_url(url)
    if parts is None or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, str(parts.port or _DEFAULT_PORTS.get(parts.scheme, ""))


def _hostname(host_header: str) -> str | None:
    """Return the host name of a Host header without its port; None if it is invalid."""
    if any(c in host_header for c in "/\\@?# \t,"):
        return None
    parts = _split_url(f"//{host_header}")
    return parts.hostname.rstrip(".") if parts is not None and parts.hostname else None


def _with_port(netloc: str, default: str) -> tuple[str, str] | None:
    parts = _split_url(f"//{netloc}")
    if parts is None or not parts.hostname:
        return None
    return parts.hostname, str(parts.port or default)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
