"""Reads a message, answers it, reads the next: the chat of dumb terminals."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from perdure.cli.chat.desk import ChatController
from perdure.cli.chat.plain import PlainMessage, PlainScreen, read_message

_LEAVE_WITHIN_S = 2.0


class PlainChat:
    """Ctrl-C stops a turn and keeps the session; twice at the prompt it leaves."""

    def __init__(
        self, desk: ChatController, screen: PlainScreen, *, read: Callable[[], PlainMessage] = read_message
    ) -> None:
        self._desk = desk
        self._screen = screen
        self._read = read
        self._last_ctrl_c_s = float("-inf")

    def run(self) -> int:
        for line in self._desk.opening():
            self._screen.line(line)
        while self._turn():
            pass
        for line in self._desk.closing():
            self._screen.line(line)
        self._desk.close()
        return 0

    def _turn(self) -> bool:
        """One line read and answered; False when the person leaves."""
        try:
            message = self._read()
            return self._answer(message) if message.text.strip() else True
        except EOFError:
            return False
        except KeyboardInterrupt:
            if time.monotonic() - self._last_ctrl_c_s < _LEAVE_WITHIN_S:
                return False
            self._last_ctrl_c_s = time.monotonic()
            print("(Ctrl-C again leaves; the conversation is kept)", file=sys.stdout)
            return True

    def _answer(self, message: PlainMessage) -> bool:
        answer = self._desk.answer(message.text.strip(), self._screen.progress, pasted=message.pasted)
        if answer.text:
            self._screen.line(answer.text)
        return not answer.is_leaving
