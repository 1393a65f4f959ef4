"""The user's settings and conversations, opened for one command and closed behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from perdure.app import open_user_store
from perdure.config.load import load
from perdure.store.store import SessionStore


@contextmanager
def opened(flags: Mapping[str, Any] | None) -> Iterator[SessionStore]:
    """The store that the settings name."""
    loaded = load(flags=flags or {})
    with open_user_store(loaded.settings, loaded.home) as store:
        yield store
