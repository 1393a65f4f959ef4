"""Keys that answer an approval: `y` at once where nothing else can be meant, everything else with Enter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

# How long nothing follows a key that answers.
_SETTLE_S = 0.9
# How soon a settled answer looks again where a key may still turn out to be Escape.
_PENDING_KEY_S = 0.1
# How long the rest of the word and Enter, typed out of habit, are dropped after it has answered.
_REST_S = 1.5
# Words that begin right after the answer are one burst while no longer pause interrupts them.
_BURST_S = 1.5
_YES = "yes"


@dataclass(frozen=True, slots=True)
class AnswerHandlers:
    """Callbacks of the keys that answer."""

    # Whether what is typed answers an approval.
    is_asked: Callable[[], bool]
    on_yes: Callable[[], None]
    # What is typed so far, and whether it is an untouched `y`, which answers by itself.
    on_typed: Callable[[str, bool], None]
    # Whether a key was pressed that is not decided yet: Escape, until nothing follows it.
    has_pending_key: Callable[[], bool]
    # Words follow the answer, perhaps typed as its beginning; again when Enter ends them, which sends nothing.
    on_late_words: Callable[[], None]


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
        # The rest of a word whose first letter has answered, how much of it was dropped, and until when it may follow.
        self._rest, self._dropped, self._rest_until_s = "", "", float("-inf")
        # When the last change was made to words that began right after the answer; None where there are none.
        self._late_at_s: float | None = None
        buffer.on_text_changed += lambda _: self._note_change()

    def begin(self) -> None:
        """Begin a question, with an empty line."""
        self._typed = ""
        self._late_at_s = None
        self._changes += 1

    def add_keys(self, keys: KeyBindings) -> None:
        """Bind the keys of an answer, and those that only finish the word that has answered already."""

        is_wanted = Condition(lambda: self._handlers.is_asked() or self._follows_answer())

        @keys.add(Keys.Any, filter=is_wanted)
        def insert(event: KeyPressEvent) -> None:
            text = self._without_rest(event.data)
            if self._typed is not None:
                self._typed += text
            if text:
                event.current_buffer.insert_text(text)

    def take_enter(self) -> bool:
        """Whether Enter belongs to an answer that was given already, so that it must send nothing."""
        if self._follows_answer():
            self._rest_until_s = float("-inf")
            return True
        late_at_s, self._late_at_s = self._late_at_s, None
        if late_at_s is None or self._clock_s() - late_at_s > _BURST_S:
            return False
        self._handlers.on_late_words()
        return True

    def _follows_answer(self) -> bool:
        return self._clock_s() <= self._rest_until_s

    def _without_rest(self, key: str) -> str:
        """Return what a key inserts: nothing while it finishes the word that has answered, and all of other words."""
        if not self._follows_answer():
            return key
        if self._rest and key == self._rest[0]:
            self._rest, self._dropped = self._rest[1:], self._dropped + key
            return ""
        self._rest_until_s = float("-inf")
        if not self._handlers.is_asked():
            self._late_at_s = self._clock_s()
            self._handlers.on_late_words()
        return self._dropped + key

    def _note_change(self) -> None:
        if not self._handlers.is_asked():
            if self._late_at_s is not None:
                self._late_at_s = self._clock_s() if self._buffer.text else None
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
        if self._handlers.has_pending_key():
            self._later(_PENDING_KEY_S, lambda: self._settle(change))
            return
        self._rest, self._dropped = _YES[len(self._buffer.text) :], ""
        self._rest_until_s = self._clock_s() + _REST_S
        self._buffer.reset()
        self._handlers.on_yes()
