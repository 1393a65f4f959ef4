"""Sequence, serialize and deliver turn events to subscribers and platforms."""

from __future__ import annotations
