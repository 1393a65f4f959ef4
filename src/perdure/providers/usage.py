"""SKELETON"""

from __future__ import annotations

from perdure.core.usage import NOT_REPORTED, CanonicalUsage


def normalize_usage(raw: object, api_mode: str) -> CanonicalUsage:
    """Stub, replaced within the hour."""
    return NOT_REPORTED
