"""SKELETON"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.core.errors import ErrorVerdict


def classify_error(
    status: int | None, body: object, *, headers: object = None, request_tokens: int | None = None
) -> ErrorVerdict:
    """Stub, replaced within the hour."""
    return ErrorVerdict("unknown", str(body)[:200], status)


def error_in(body: Mapping[str, object]) -> object | None:
    return body if body.get("error") else None
