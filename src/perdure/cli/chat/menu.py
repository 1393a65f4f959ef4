"""The menu for commands whose argument is chosen from a list: `/model` and `/resume`."""

from __future__ import annotations

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

# Commands that open a menu when entered without an argument.
_COMMANDS = ("/model", "/resume")
_HINT = "↑ ↓ choose, Enter takes it, typing filters, Esc closes"
_FILTERED_HINT = "Enter takes the first row, ↑ ↓ choose, typing filters, Esc closes"


class ChoiceMenu:
    """Shows the completions of such a command as a menu, with the first row selected."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        buffer.on_completions_changed += self._select_first_row
        # Whether the first row is to be selected once there is one.
        self._selects_first = False

    def open(self, command: str) -> None:
        """Open the menu of a command."""
        self._buffer.text = f"{command} "
        self._buffer.cursor_position = len(self._buffer.text)
        self._selects_first = True
        self._buffer.start_completion(select_first=False)

    @property
    def is_wanted(self) -> bool:
        """Whether the line is a command whose menu should open now.

        A trailing blank means that the menu was already open and closed, or has no rows: the list is printed instead.
        """
        return self._buffer.text in _COMMANDS and self._buffer.complete_state is None

    @property
    def is_open(self) -> bool:
        return self._buffer.complete_state is not None and self.is_choosing

    @property
    def is_choosing(self) -> bool:
        """Whether the line is a command whose argument is chosen from a menu."""
        name, space, _ = self._buffer.text.partition(" ")
        return bool(space) and name in _COMMANDS

    @property
    def is_unfiltered(self) -> bool:
        """Whether nothing is typed after the command."""
        return self._typed_text.strip() in _COMMANDS

    @property
    def hint(self) -> str:
        """The line that explains the keys of the open menu."""
        return _FILTERED_HINT if self._has_implied_row else _HINT

    def begin_other_command(self) -> None:
        """Let a command that was typed behind this one, into its open menu, take its place."""
        from perdure.commands.command import is_command  # imported here to show the prompt sooner

        argument = self._buffer.text.partition(" ")[2].strip()
        if self.is_choosing and is_command(argument) and (_is_own(argument) or not self._has_implied_row):
            self._buffer.document = Document(argument)

    def take_first_row(self) -> None:
        """Put the first row that is left into the line, where none is selected and what is typed is only a filter."""
        if self._has_implied_row:
            self._buffer.go_to_completion(0)

    @property
    def _has_implied_row(self) -> bool:
        """Whether Enter takes the first row: a number of the printed list, "last" and a full name are values."""
        state = self._buffer.complete_state
        if state is None or not self.is_choosing or not state.completions or state.current_completion is not None:
            return False
        typed = self._buffer.text.partition(" ")[2].strip()
        return not typed.isdecimal() and typed not in ("last", *(row.text for row in state.completions))

    def add_keys(self, keys: KeyBindings) -> None:
        """Add the key bindings: typing filters the rows, also while one is selected; the arrow keys wrap around."""
        is_open = Condition(lambda: self.is_open)
        for key, step in (("down", 1), ("up", -1)):
            keys.add(key, filter=is_open)(lambda event, step=step: self._move(step))
        is_selected = Condition(lambda: self.is_choosing and self._typed_text != self._buffer.text)
        is_filtered = Condition(lambda: self.is_choosing and bool(self._typed_text.partition(" ")[2]))

        @keys.add(Keys.Any, filter=is_selected)
        def narrow(event: KeyPressEvent) -> None:
            self._buffer.cancel_completion()
            self._buffer.insert_text(event.data)

        is_repeated = Condition(lambda: self.is_choosing and self._typed_text.partition(" ")[2] in _COMMANDS)

        @keys.add(" ", filter=is_repeated)
        def begin_again(event: KeyPressEvent) -> None:
            self._buffer.cancel_completion()
            self._buffer.document = Document(f"{self._buffer.text.partition(' ')[2]} ")
            self._buffer.start_completion(select_first=False)

        @keys.add("backspace", filter=is_selected | is_filtered)
        def widen(event: KeyPressEvent) -> None:
            self._buffer.cancel_completion()
            self._buffer.delete_before_cursor(1)
            if self.is_choosing:
                self._buffer.start_completion(select_first=False)

    def _move(self, step: int) -> None:
        state = self._buffer.complete_state
        if state is None or not state.completions:
            return
        before = state.complete_index if state.complete_index is not None else min(0, -step)
        self._buffer.go_to_completion((before + step) % len(state.completions))

    @property
    def _typed_text(self) -> str:
        """The typed line without the selected completion."""
        state = self._buffer.complete_state
        return self._buffer.text if state is None else state.original_document.text

    def _select_first_row(self, buffer: Buffer) -> None:
        # Not by `select_first`: a completion that is still running for the text before is repeated without it.
        state = buffer.complete_state
        if self._selects_first and state is not None and state.completions and buffer.text.strip() in _COMMANDS:
            self._selects_first = False
            buffer.go_to_completion(0)


def _is_own(line: str) -> bool:
    return line.partition(" ")[0] in _COMMANDS
