"""Ids that sort by the moment they were made: `c_` a conversation, `s_` a session, `t_` a task, `o_` an output."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Literal, Protocol

from perdure.core.ports import Clock

Prefix = Literal["c_", "s_", "t_", "o_"]

# Digits and letters in ASCII order, without those that are misread (i, l, o, u).
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_CHARS = 9
_RANDOM_BITS = 50
_RANDOM_CHARS = _RANDOM_BITS // 5


class IdSource(Protocol):
    """Where ids come from, so that tests can foresee them."""

    def new(self, prefix: Prefix) -> str:
        """An id never given before; later ones sort after earlier ones."""
        ...


class TimeIds:
    """Nineteen characters: milliseconds, then randomness that only grows within one millisecond."""

    def __init__(self, clock: Clock, random_bits: Callable[[int], int] = secrets.randbits) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._lock = threading.Lock()
        self._last = (0, 0)

    def new(self, prefix: Prefix) -> str:
        with self._lock:
            now, (last_ms, last_random) = self._clock.now_ms(), self._last
            # A clock set back must not make ids that sort before those already given.
            ms = max(now, last_ms)
            # One bit stays free, so that counting upwards within a millisecond never overflows.
            random = last_random + 1 if ms == last_ms else self._random_bits(_RANDOM_BITS - 1)
            self._last = (ms, random)
        return prefix + _base32(ms, _TIME_CHARS) + _base32(random, _RANDOM_CHARS)


def _base32(value: int, width: int) -> str:
    return "".join(_ALPHABET[(value >> (5 * place)) & 31] for place in reversed(range(width)))
