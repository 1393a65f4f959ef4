"""Standing instructions: what the user wants always or never done, kept word for word."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.core.messages import Message


def standing_instructions(messages: Iterable[Message], *, limit: int = 20) -> list[str]:
    """The user's sentences that bind from now on, newest last, without repetition."""
    return []
