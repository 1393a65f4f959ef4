"""Budget for the analysis of one command: commands are untrusted text, and one over budget needs approval."""

from __future__ import annotations

import time
from collections.abc import Callable

# Longer commands are not analyzed at all; large here-documents and quoted blobs stay far below.
MAX_COMMAND_CHARS = 4_000_000
# Commands, words and parts of words in total.
MAX_PIECES = 20_000
# Characters that expansion, pipes and files may produce, in addition to a multiple of the command length.
_SPARE_CHARS = 300_000
_CHARS_PER_CHAR = 6
_DEADLINE_S = 0.14
# For the parser alone, whose time cannot be bounded by counters.
_PARSE_DEADLINE_S = 0.05
_MIN_PARSE_S = 0.01
_DEADLINE_S_PER_CHAR = 2e-7
_CALLS_PER_CLOCK_CHECK = 32
TOO_LONG = "it is too long or too complex to analyze"


class Unreadable(Exception):
    """The command cannot be analyzed; the message says why."""


class Budget:
    """The remaining budget for one command; the methods raise Unreadable once it is exhausted.

    The counters alone keep most analyses cheap; the deadline bounds the parser. It uses CPU time of the thread, so
    that a busy machine does not change the result.
    """

    def __init__(self, command_chars: int, *, clock: Callable[[], float] = time.thread_time) -> None:
        if command_chars > MAX_COMMAND_CHARS:
            raise Unreadable(TOO_LONG)
        self._chars = _SPARE_CHARS + _CHARS_PER_CHAR * command_chars
        self._pieces = MAX_PIECES
        self._calls = 0
        self._clock = clock
        started_s = clock() + _DEADLINE_S_PER_CHAR * command_chars
        self._deadline_s, self._parse_deadline_s = started_s + _DEADLINE_S, started_s + _PARSE_DEADLINE_S

    def parse_micros(self, *, is_nested: bool) -> int:
        """Return the time left to parse the command, or a script inside it. Raises Unreadable if it is short."""
        left_s = (self._deadline_s if is_nested else self._parse_deadline_s) - self._clock()
        if left_s < _MIN_PARSE_S:
            raise Unreadable(TOO_LONG)
        return int(left_s * 1e6)

    def spend_chars(self, count: int) -> None:
        """Count characters that were produced or are about to be parsed again."""
        self._chars -= count
        self._check()

    def spend_pieces(self, count: int = 1) -> None:
        """Count commands, words or parts of words."""
        self._pieces -= count
        self._check()

    def _check(self) -> None:
        self._calls += 1
        is_late = self._calls % _CALLS_PER_CLOCK_CHECK == 0 and self._clock() > self._deadline_s
        if self._chars < 0 or self._pieces < 0 or is_late:
            raise Unreadable(TOO_LONG)


def replace_bounded(text: str, old: str, new: str, *, max_chars: int = 200_000) -> str:
    """Like `text.replace`, but raise Unreadable if the result would be too long."""
    if old not in text:
        return text
    if not old or len(text) + text.count(old) * len(new) > max_chars:
        raise Unreadable(TOO_LONG)
    return text.replace(old, new)
