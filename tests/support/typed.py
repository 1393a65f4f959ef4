"""A chat driven through prompt_toolkit's own pipe: keys in, what was written out, no terminal."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from perdure.cli.chat.command_context import ChatCommandContext, ChatUser
from perdure.cli.chat.controller import ChatController
from perdure.cli.chat.tui import ChatApp
from perdure.config.env import make_home

PATIENCE_S = 30.0


class Chat:
    """A live chat in a thread of its own."""

    def __init__(self, chat: ChatApp, keys: PipeInput, out: io.StringIO) -> None:
        self.chat = chat
        self._keys = keys
        self._out = out
        self.code: int | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def type(self, text: str) -> None:
        self._keys.send_text(text)

    @property
    def shown(self) -> str:
        return self._out.getvalue()

    def see(self, *wanted: str) -> str:
        give_up = time.monotonic() + PATIENCE_S
        while missing := [w for w in wanted if w not in self.shown]:
            if time.monotonic() > give_up:
                raise AssertionError(f"{missing} never appeared in {self.shown[-3000:]!r}")
            time.sleep(0.02)
        return self.shown

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < give_up, self.shown[-3000:]
            time.sleep(0.02)

    @property
    def line(self) -> str:
        """What is typed and not sent."""
        return self.chat._box.buffer.text

    @property
    def offered_completions(self) -> int:
        state = self.chat._box.buffer.complete_state
        return len(state.completions) if state is not None else 0

    @property
    def is_idle(self) -> bool:
        return not self.chat._is_working

    def wait_for_history(self, lines: int = 1) -> None:
        """Until Up recalls that many lines: the history is read in the background, anew with every line."""
        self.wait_for(lambda: len(self.chat._box.buffer._working_lines) > lines)

    def wait_for_empty_line(self) -> None:
        """Until nothing is typed and no menu is open."""
        give_up = time.monotonic() + PATIENCE_S
        buffer = self.chat._box.buffer
        while buffer.text or buffer.complete_state is not None:
            assert time.monotonic() < give_up, buffer.text
            time.sleep(0.02)

    def end(self) -> int | None:
        self.thread.join(PATIENCE_S)
        return self.code

    def leave(self) -> None:
        """Press Ctrl-D, on an empty line: with something on it, it does not leave."""
        give_up = time.monotonic() + PATIENCE_S
        while self.thread.is_alive():
            assert time.monotonic() < give_up, f"the chat cannot be left: {self.shown[-3000:]!r}"
            self.type("\x03\x04" if self.line else "\x04")
            self.thread.join(2)

    def _run(self) -> None:
        self.code = self.chat.run()


@contextmanager
def chatting(
    home: Path,
    flags: dict[str, str],
    *,
    session_id: str | None = None,
    clock_s: Callable[[], float] = time.monotonic,
    on_ready: Callable[[], None] = lambda: None,
    columns: int = 100,
) -> Iterator[Chat]:
    """A chat over real settings, store and agent, with colours off."""
    out = io.StringIO()
    with create_pipe_input() as keys:
        output = Vt100_Output(out, lambda: Size(rows=40, columns=columns), enable_cpr=False)

        def open_desk(chat: ChatApp) -> ChatController:
            person = ChatUser(chat.hear, chat.progress, chat.questions, chat.questions)
            plain = {**flags, "display.color": "never"}
            surface = ChatCommandContext(plain, session_id=session_id, person=person, offers_models=True)
            return ChatController(surface, chat.write_lines)

        live = ChatApp(
            open_desk,
            home=make_home(home),
            is_color=False,
            source=keys,
            output=output,
            clock_s=clock_s,
            on_ready=on_ready,
        )
        made = Chat(live, keys, out)
        made.thread.start()
        try:
            yield made
        finally:
            made.leave()
