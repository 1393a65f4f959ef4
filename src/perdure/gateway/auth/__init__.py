"""Authenticate requests: tokens, scopes, host checks and rate limits."""

from __future__ import annotations
