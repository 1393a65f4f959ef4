"""The chat itself: a prompt that never loses typed text, answers as they come, a status line with the gauge."""

from __future__ import annotations

import sys
import time

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from perdure.cli.chat_screen import ChatScreen, closing_lines, opening_lines, status_line
from perdure.cli.chat_surface import ChatSurface
from perdure.commands.all import all_commands
from perdure.config.home import make_home
from perdure.core.errors import PerdureError

_LEAVE_WITHIN_S = 2.0


class ChatLoop:
    """Reads, answers, repeats. Ctrl-C stops a turn and keeps the session; twice at the prompt it leaves."""

    def __init__(self, surface: ChatSurface) -> None:
        self._surface = surface
        self._commands = all_commands()
        self._screen = ChatScreen(sys.stdout, shows_reasoning=surface.settings.display.reasoning)
        surface.listen(self._screen.show, self._screen.progress)
        make_home(surface.home)
        self._prompt: PromptSession[str] = PromptSession(
            history=FileHistory(str(surface.home / "history")),
            completer=WordCompleter(self._commands.names(), sentence=True),
            complete_while_typing=True,
            key_bindings=_keys(),
            bottom_toolbar=lambda: status_line(self._surface),
            enable_history_search=True,
        )
        self._last_ctrl_c_s = 0.0

    def run(self) -> int:
        for line in opening_lines(self._surface):
            print(line)
        while True:
            try:
                text = self._prompt.prompt("› ")
            except EOFError:
                break
            except KeyboardInterrupt:
                if time.monotonic() - self._last_ctrl_c_s < _LEAVE_WITHIN_S:
                    break
                self._last_ctrl_c_s = time.monotonic()
                print("(Ctrl-C again to leave; the conversation is kept)")
                continue
            if text.strip() and not self._answer(text):
                break
        for line in closing_lines(self._surface):
            print(line)
        self._surface.close()
        return 0

    def _answer(self, text: str) -> bool:
        """Answers one line; False when the person leaves."""
        said = self._commands.dispatch(self._surface, text)
        if said is not None:
            if said.text:
                print(said.text)
            if said.then_send:
                self._send(said.then_send)
            return not said.is_leaving
        self._send(text)
        return True

    def _send(self, text: str) -> None:
        try:
            result = self._surface.agent.run_conversation(text)
        except KeyboardInterrupt:
            self._screen.end("stopped; the session is kept")
            return
        except PerdureError as error:
            self._screen.end(str(error))
            return
        self._screen.end(result.error or ("stopped" if result.outcome == "interrupted" else ""))


def _keys() -> KeyBindings:
    """Enter sends; Alt-Enter or a trailing backslash goes on in a new line."""
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
