"""Keys that answer an approval: `y` at once where nothing else can be meant, everything else with Enter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

# How long nothing follows a key that answers.
_SETTLE_S = 0.4
# How long the rest of the word and Enter, typed out of habit, are dropped after it has answered.
_REST_S = 0.7
_YES = "yes"


@dataclass(frozen=True, slots=True)
class AnswerHandlers:
    """Callbacks of the keys that answer."""

    # Whether what is typed answers an approval.
    is_asked: Callable[[], bool]
    on_yes: Callable[[], None]
    # What is typed so far, and whether it is an untouched `y`, which answers by itself.
    on_typed: Callable[[str, bool], None]


class AnswerKeys:
    """Decides whether `y` is an answer or the beginning of words; belongs to the thread of the prompt."""

    def __init__(
        self,
        buffer: Buffer,
        handlers: AnswerHandlers,
        *,
        clock_s: Callable[[], float],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._buffer = buffer
        self._handlers = handlers
        self._clock_s = clock_s
        self._later = later
        # What was typed at the question key by key; None once the line was edited, after which only Enter answers.
        self._typed: str | None = ""
        # Grows with every change, so that a wait for the next key ends with it.
        self._changes = 0
        # The rest of a word whose first letter has answered, and until when it may follow.
        self._rest, self._rest_until_s = "", float("-inf")
        buffer.on_text_changed += lambda _: self._note_change()

    def begin(self) -> None:
        """Begin a question, with an empty line."""
        self._typed = ""
        self._changes += 1

    def add_keys(self, keys: KeyBindings) -> None:
        """Bind the keys of an answer, and those that only finish the word that has answered already."""

        is_wanted = Condition(lambda: self._handlers.is_asked() or self._rest_until_s > self._clock_s())

        @keys.add(Keys.Any, filter=is_wanted)
        def insert(event: KeyPressEvent) -> None:
            if self.drop(event.data):
                return
            if self._typed is not None:
                self._typed += event.data
            event.current_buffer.insert_text(event.data)

    def drop(self, key: str) -> bool:
        """Whether a key only finishes the word that has answered already."""
        if self._clock_s() > self._rest_until_s:
            return False
        if self._rest and key == self._rest[0]:
            self._rest = self._rest[1:]
            return True
        self._rest_until_s = float("-inf")
        return key == "\r"

    def _note_change(self) -> None:
        if not self._handlers.is_asked():
            return
        self._changes += 1
        text, change = self._buffer.text, self._changes
        if text != self._typed:  # edited, pasted or recalled
            self._typed = None
        settles = self._typed is not None and self._typed.lower() in (_YES[0], _YES)
        self._handlers.on_typed(text, settles)
        if settles:
            self._later(_SETTLE_S, lambda: self._settle(change))

    def _settle(self, change: int) -> None:
        """Take `y` as the answer if nothing has changed for a moment."""
        if change != self._changes or not self._handlers.is_asked():
            return
        self._rest, self._rest_until_s = _YES[len(self._buffer.text) :], self._clock_s() + _REST_S
        self._buffer.reset()
        self._handlers.on_yes()
