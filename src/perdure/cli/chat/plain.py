"""Plain chat for dumb terminals and pipes."""

from __future__ import annotations

import select
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from perdure.agent.callbacks import status_line as status_text
from perdure.cli.chat.controller import ChatController
from perdure.cli.chat.questions import PendingQuestion
from perdure.cli.chat.transcript import finished_line, running_line, spilled_line
from perdure.cli.style import Style, safe
from perdure.core.events import (
    CompactionFinished,
    CompactionStarted,
    Event,
    HelperStarted,
    ModelSwitched,
    Notice,
    OutputSpilled,
    ReasoningDelta,
    Recovered,
    RetryScheduled,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)

_INK = Style(is_color=False)


class PlainScreen:
    """Prints events one after the other. Called from the agent's event thread."""

    def __init__(self, out: TextIO, *, shows_reasoning: bool = False) -> None:
        self._out = out
        self.shows_reasoning = shows_reasoning
        self._is_mid_line = False
        self._last_progress = ""
        self._is_answered = False

    def show(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._put(text)
            case ReasoningDelta(text) if self.shows_reasoning:
                self._put(text)
            case ToolStarted(call):
                self.line(running_line(call, 0.0).removesuffix(" … 0 s"))
            case ToolFinished():
                self.line(finished_line(event, None, _INK).rstrip("\n"))
            case HelperStarted(task=task):
                self.line(f"helper: {' '.join(task.split())}")
            case OutputSpilled():
                self.line(spilled_line(event, _INK).rstrip("\n"))
            case CompactionStarted(reason=reason) if self._begin_compaction(reason):
                self.line(f"[{status_text(event)}]")
            case CompactionFinished() | Notice() if self._is_answered:
                pass
            case ModelSwitched(reason="chosen"):
                pass  # the answer to the user's command names the model
            case CompactionFinished() | Recovered() | RetryScheduled() | ModelSwitched() | Notice():
                self.line(f"[{status_text(event)}]")
            case TurnFinished(outcome=outcome, error=error):
                self.line(
                    {"failed": error or "failed", "interrupted": "stopped; the conversation is kept"}.get(outcome, "")
                )
            case _:
                pass

    def progress(self, what: str, seconds: float) -> None:
        """Print progress once, since without cursor control a status line cannot be updated."""
        if what != self._last_progress:
            self._last_progress = what
            self.line(f"{what} …")

    def line(self, text: str) -> None:
        """Print on a new line."""
        text, lead = safe(text), "\n" if self._is_mid_line else ""
        self._out.write(f"{lead}{text}\n" if text else lead)
        self._out.flush()
        self._is_mid_line = False

    def _begin_compaction(self, reason: str) -> bool:
        """Note who requested a compaction, and return whether to report it: `/compress` reports its own."""
        self._is_answered = reason == "user"
        return not self._is_answered

    def _put(self, text: str) -> None:
        self._out.write(safe(text))
        self._out.flush()
        self._is_mid_line = not text.endswith("\n")


class PlainQuestions:
    """Asks questions on a line of their own and reads the answer there."""

    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read

    def show(self, question: PendingQuestion) -> None:
        def ask() -> None:
            try:
                question.reply(self._read("\n".join(("", safe(question.text), *question.notes, f"{question.hint} ? "))))
            except (EOFError, KeyboardInterrupt):
                question.reply("")

        threading.Thread(target=ask, daemon=True).start()

    def withdraw(self, question: PendingQuestion) -> None:
        """Do nothing: a printed question cannot be removed."""


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """A message read line by line; `pasted` if it came from a paste."""

    text: str
    pasted: tuple[str, ...] = ()


def read_message(prompt: str = "> ") -> PlainMessage:
    """Read one message: a line, those a trailing backslash continues with, and all that was pasted with it."""
    lines = [input(prompt)]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input("  "))
    typed = len(lines)
    while sys.platform != "win32" and select.select([sys.stdin], [], [], 0.02)[0]:
        more = sys.stdin.readline()
        if not more:
            break
        lines.append(more.rstrip("\n"))
    # Several lines at once were pasted, the first among them.
    text = "\n".join(lines)
    return PlainMessage(text, (text,) if len(lines) > typed else ())


_LEAVE_WITHIN_S = 2.0
_WIDTH = 80


class PlainChat:
    """A chat by plain lines. Ctrl-C interrupts a turn; pressed twice at the prompt, it leaves."""

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
        self._screen.line(self._desk.replay(_WIDTH, _INK).rstrip("\n"))
        while self._run_turn():
            pass
        for line in self._desk.closing():
            self._screen.line(line)
        self._desk.close()
        return 0

    def _run_turn(self) -> bool:
        """Read one line and answer it; return False when the user leaves."""
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
        if answer.is_resumed:
            self._screen.line(self._desk.replay(_WIDTH, _INK).rstrip("\n"))
        return not answer.is_leaving
