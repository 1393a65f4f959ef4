"""Budget for the analysis of one command: commands are untrusted text, and one over budget needs approval."""

from __future__ import annotations

import time
from collections.abc import Callable

# Longer commands are not analyzed at all; large here-documents and quoted blobs stay far below.
MAX_COMMAND_CHARS = 4_000_000
# Commands, words and parts of words in total.
MAX_PIECES = 10_000
# Characters that expansion, pipes and files may produce, in addition to a multiple of the command length.
_SPARE_CHARS = 300_000
_CHARS_PER_CHAR = 6
_DEADLINE_S = 1.0
_CALLS_PER_CLOCK_CHECK = 64


class Unreadable(Exception):
    """The command is too long, too deeply nested or too expensive to analyze."""


class Budget:
    """The remaining budget for one command; `spend_*` raise Unreadable once it is exhausted.

    The counters alone keep the analysis cheap; the deadline is a fallback. It uses CPU time of the thread, so that a
    busy machine does not change the result.
    """

    def __init__(self, command_chars: int, *, clock: Callable[[], float] = time.thread_time) -> None:
        if command_chars > MAX_COMMAND_CHARS:
            raise Unreadable
        self._chars = _SPARE_CHARS + _CHARS_PER_CHAR * command_chars
        self._pieces = MAX_PIECES
        self._calls = 0
        self._clock = clock
        self._deadline_s = clock() + _DEADLINE_S

    def spend_chars(self, count: int) -> None:
        """Count characters that were produced or are about to be parsed again."""
        self._chars -= count
        self._check()

    def spend_piece(self, count: int = 1) -> None:
        """Count commands, words or parts of words."""
        self._pieces -= count
        self._check()

    def _check(self) -> None:
        self._calls += 1
        is_expired = self._calls % _CALLS_PER_CLOCK_CHECK == 0 and self._clock() > self._deadline_s
        if self._chars < 0 or self._pieces < 0 or is_expired:
            raise Unreadable


def replace_bounded(text: str, old: str, new: str, *, max_chars: int = 200_000) -> str:
    """Like `text.replace`, but raise Unreadable if the result would be too long."""
    if not old or len(text) + text.count(old) * len(new) > max_chars:
        if old and old not in text:
            return text
        raise Unreadable
    return text.replace(old, new)
