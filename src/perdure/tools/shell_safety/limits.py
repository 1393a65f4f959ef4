"""How much reading one command may cost. A command is foreign text: what costs more is not read but asked about."""

from __future__ import annotations

import time
from collections.abc import Callable

# Longer commands are not read at all. Large here-documents and quoted blobs stay far below.
MAX_COMMAND_CHARS = 4_000_000
# Commands, words and parts of words together.
MAX_PIECES = 10_000
# Characters that expansion, pipes and files may produce, beyond a few times the command itself.
_SPARE_CHARS = 300_000
_CHARS_PER_CHAR = 6
_DEADLINE_S = 1.0
_LOOKS_AT_CLOCK_EVERY = 64


class Unreadable(Exception):
    """More nested, longer or more costly than anything that is written by hand."""


class Budget:
    """What is left of the work allowed for one command; `spend_*` raise Unreadable once it is used up.

    The limits alone keep reading cheap. The deadline, in processor time of the reading thread so that a busy machine
    changes no verdict, is for what they overlooked.
    """

    def __init__(self, command_chars: int, *, clock: Callable[[], float] = time.thread_time) -> None:
        if command_chars > MAX_COMMAND_CHARS:
            raise Unreadable
        self._chars = _SPARE_CHARS + _CHARS_PER_CHAR * command_chars
        self._pieces = MAX_PIECES
        self._calls = 0
        self._clock = clock
        self._until_s = clock() + _DEADLINE_S

    def spend_chars(self, count: int) -> None:
        """Text that was made or is about to be read again."""
        self._chars -= count
        self._check()

    def spend_piece(self, count: int = 1) -> None:
        """A command, a word, a part of a word."""
        self._pieces -= count
        self._check()

    def _check(self) -> None:
        self._calls += 1
        is_late = self._calls % _LOOKS_AT_CLOCK_EVERY == 0 and self._clock() > self._until_s
        if self._chars < 0 or self._pieces < 0 or is_late:
            raise Unreadable


def replace_bounded(text: str, old: str, new: str, *, max_chars: int = 200_000) -> str:
    """`text.replace`, which can multiply two long texts with each other. Raises Unreadable where it would."""
    if not old or len(text) + text.count(old) * len(new) > max_chars:
        if old and old not in text:
            return text
        raise Unreadable
    return text.replace(old, new)
