"""What other threads have for the prompt's: events to show and work to do, in one line, in the order they came.

An answer must not overtake the echo of its question, however quickly it comes. Pieces of text that arrive faster than
the eye can follow are joined, and what waits is taken in short slices: a key never waits for more than one of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:  # not before the prompt stands there
    from perdure.core.events import Event, ReasoningDelta, TextDelta

Work = Callable[[], None]
# A key that comes meanwhile is read after at most about this long.
_SLICE_S = 0.008
# Text is taken up no oftener than this: what comes in between is joined.
_GATHER_S = 0.03


class EventInbox:
    """Filled from any thread, emptied in the prompt's own: `call` runs work there soon, `later` after some seconds."""

    def __init__(
        self, show: Callable[[Event], None], call: Callable[[Work], None], later: Callable[[float, Work], None]
    ) -> None:
        self._show = show
        self._call = call
        self._later = later
        self._waiting: deque[Event | Work] = deque()
        self._is_due = False
        self._took_text_at_s = float("-inf")

    def put(self, item: Event | Work) -> None:
        """Adds an event or some work; returns at once."""
        # In this order, and the flag cleared before anything is taken: no item is ever left behind.
        self._waiting.append(item)
        if not self._is_due:
            self._is_due = True
            self._call(self._empty)

    def _empty(self) -> None:
        """Takes a slice of what waits, and asks to be called again for the rest."""
        self._is_due = False
        until_s = time.monotonic() + _SLICE_S
        while self._waiting:
            if (wait_s := self._gathering_s()) > 0:
                self._is_due = True
                self._later(wait_s, self._empty)
                return
            item = self._taken()
            if callable(item):
                item()
            else:
                self._show(item)
            if time.monotonic() > until_s and self._waiting:
                self._is_due = True
                self._call(self._empty)
                return

    def _gathering_s(self) -> float:
        """How much longer to wait for more text: only where nothing but text waits, and some was just taken."""
        if not _is_text(self._waiting[0]) or not _is_text(self._waiting[-1]):
            return 0.0
        return self._took_text_at_s + _GATHER_S - time.monotonic()

    def _taken(self) -> Event | Work:
        """The next item; of text, all of it that stands in a row."""
        item = self._waiting.popleft()
        if not _is_text(item):
            return item
        self._took_text_at_s = time.monotonic()
        pieces = [item.text]
        while self._waiting and isinstance(following := self._waiting[0], type(item)):
            pieces.append(following.text)
            self._waiting.popleft()
        return type(item)("".join(pieces))


def _is_text(item: Event | Work) -> TypeGuard[TextDelta | ReasoningDelta]:
    from perdure.core.events import ReasoningDelta, TextDelta

    return isinstance(item, TextDelta | ReasoningDelta)
