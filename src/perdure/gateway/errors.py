"""API errors: one JSON shape for every endpoint, and its OpenAPI description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from perdure.core.errors import (
    ConfigError,
    InvalidMessage,
    NotFound,
    PerdureError,
    StoreError,
)
from perdure.store.inbox import ConversationBusy, InboxFull

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    421: "permission_error",
    429: "rate_limit_error",
    431: "request_too_large",
}


class IdempotencyKeyReused(PerdureError):
    """Raised when an idempotency key comes again with a different message; clients get a 409."""


class GatewayStopping(PerdureError):
    """Raised for a new message while the gateway shuts down; clients get a 503 and should retry in a moment."""


class MissingScope(PerdureError):
    """Raised when the principal's token lacks a scope that the action requires; clients get a 403."""


# HTTP status and code by exception class; the first match wins.
_STATUS_OF: tuple[tuple[type[PerdureError], int, str], ...] = (
    (GatewayStopping, 503, "stopping"),
    (InboxFull, 429, "too_many_waiting"),
    (ConversationBusy, 409, "conversation_busy"),
    (NotFound, 404, "not_found"),
    (IdempotencyKeyReused, 409, "idempotency_key_reused"),
    (MissingScope, 403, "missing_scope"),
    (InvalidMessage, 400, "invalid_message"),
    (ConfigError, 400, "invalid_setting"),
)
# WebSocket close codes: policy violation, and try again later.
_POLICY, _TRY_LATER = 1008, 1013


class ApiErrorDetail(BaseModel):
    message: str = Field(description="Human-readable message.")
    type: str
    param: str | None = Field(description="The invalid parameter, if there is one.")
    code: str = Field(description="Machine-readable code.")


class ApiErrorBody(BaseModel):
    """The body of every error response."""

    error: ApiErrorDetail


@dataclass(frozen=True, slots=True)
class ApiError:
    """An HTTP status with a machine-readable code and a human-readable message."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        detail = ApiErrorDetail(message=self.message, type=error_type(self.status), param=self.param, code=self.code)
        return ApiErrorBody(error=detail).model_dump()

    @property
    def is_temporary(self) -> bool:
        return self.status in (429, 503)

    async def send_to(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to an HTTP request, or reject a WebSocket handshake."""
        self.record_in(scope)
        if scope["type"] == "http":
            await self._respond(send, "http.response")
            return
        await receive()  # the handshake itself
        if "websocket.http.response" in (scope.get("extensions") or {}):
            await self._respond(send, "websocket.http.response")
        else:
            await send(self.as_websocket_close)

    def record_in(self, scope: Scope) -> None:
        """Store the code in the request state, for the request log and metrics."""
        scope.setdefault("state", {})["error_code"] = self.code

    @property
    def as_websocket_close(self) -> Message:
        """The close message for a WebSocket that is already open."""
        code = _TRY_LATER if self.is_temporary else _POLICY
        # A close frame holds 123 bytes of reason at most.
        return {"type": "websocket.close", "code": code, "reason": self.message.encode()[:120].decode(errors="ignore")}

    @property
    def as_http(self) -> bytes:
        """The error as raw HTTP response bytes, for a connection without a parsed request."""
        content = json.dumps(self.body).encode()
        status = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"
        head = f"{status}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close"
        return f"{head}\r\n\r\n".encode() + content

    async def _respond(self, send: Send, kind: str) -> None:
        content = json.dumps(self.body).encode()
        headers = {"content-type": "application/json", "content-length": str(len(content)), **self.headers}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": f"{kind}.start", "status": self.status, "headers": raw})
        await send({"type": f"{kind}.body", "body": content})


# A database error may name hosts and paths, so its text is not passed to the client.
_STORE_FAILED = ApiError(
    503,
    "store_unavailable",
    "the database is unavailable; try again in a moment",
    headers={"retry-after": "2"},
)


class ApiException(HTTPException):
    """An ApiError raised inside a route; an HTTPException, since FastAPI turns other body errors into 400."""

    def __init__(self, api_error: ApiError) -> None:
        super().__init__(api_error.status, api_error.message, dict(api_error.headers) or None)
        self.api_error = api_error


def error_type(status: int) -> str:
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


def to_api_error(error: Exception) -> ApiError:
    """Map an exception of Perdure, of the framework, or an unexpected one to an ApiError."""
    if isinstance(error, ApiException):
        return error.api_error
    if isinstance(error, HTTPException):
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        return ApiError(error.status_code, code, str(error.detail), headers=dict(error.headers or {}))
    if isinstance(error, StoreError) and not isinstance(error, NotFound | InboxFull | ConversationBusy):
        return _STORE_FAILED
    for kind, status, code in _STATUS_OF:
        if isinstance(error, kind):
            return ApiError(status, code, str(error))
    if isinstance(error, PerdureError):
        return ApiError(400, "invalid_request", str(error))
    # The text of an unexpected error may contain user data, so the response does not include it.
    return ApiError(500, "internal_error", "internal error; the gateway's log has the request")


_ERROR_RESPONSE = {
    "description": "Error: unauthenticated, forbidden, rate limited, not found or invalid.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ApiErrorBody"}}},
}

# Public paths can still be rejected: for the host name or an invalid request.
_PUBLIC_ERROR_RESPONSE = {
    **_ERROR_RESPONSE,
    "description": "Error: cross-site, rate limited or invalid. No token required.",
}


def patch_openapi(app: FastAPI, *, public: tuple[str, ...]) -> None:
    """Add the bearer scheme and the error responses to the app's OpenAPI schema."""
    build_openapi = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document_errors(build_openapi(), public)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the framework's own way to change the document


def _document_errors(document: dict[str, Any], public: tuple[str, ...]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    body = ApiErrorBody.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(body.pop("$defs"), ApiErrorBody=body)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["security"] = [] if path in public else [{"token": []}]
            operation["responses"].pop("422", None)
            operation["responses"]["4XX"] = _PUBLIC_ERROR_RESPONSE if path in public else _ERROR_RESPONSE
    return document
