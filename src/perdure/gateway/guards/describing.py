"""What the API says of itself in `/openapi.json`: how one enters, and what every refusal looks like."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "A sentence for people."},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "What was wrong, where it was one thing."},
                "code": {"type": "string", "description": "A word for programs."},
            },
        }
    },
}
_REFUSED = {
    "description": "Refused: no token, no right, too often, not found, not understood.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refused"}}},
}

# What needs no token can be refused all the same: for its host name, or for coming too often.
_REFUSED_IN_PUBLIC = {**_REFUSED, "description": "Refused: another site's, too often, not understood. Needs no token."}


def describe(app: FastAPI, *, public: tuple[str, ...]) -> None:
    """Has the app's own document tell the truth about tokens and errors."""
    plain = app.openapi

    def told() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_refusals(plain(), public)
        return app.openapi_schema

    app.openapi = told  # type: ignore[method-assign]  # the framework's own way to change the document


def _with_refusals(document: dict[str, Any], public: tuple[str, ...]) -> dict[str, Any]:
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Refused"] = _ERROR
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, ways in document["paths"].items():
        for operation in ways.values():
            operation["security"] = [] if path in public else [{"token": []}]
            operation["responses"].pop("422", None)
            operation["responses"]["4XX"] = _REFUSED_IN_PUBLIC if path in public else _REFUSED
    return document
