"""The progress of `-q` on a terminal's standard error."""

from __future__ import annotations

import io

from perdure.cli.chat.progress import StatusRow
from perdure.core.errors import ErrorVerdict
from perdure.core.events import (
    CallStarted,
    CompactionFinished,
    RetryScheduled,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from perdure.core.messages import Message, ToolCall

CALL = ToolCall("c1", "terminal", '{"command": "make all"}')
DONE = ToolFinished(CALL, Message("tool", "[exit 0]\nok", tool_call_id="c1"), 1.0)


class ProgressTerminal:
    """A row of progress, what is on the screen, and a clock that is moved by hand."""

    def __init__(self, columns: int = 60) -> None:
        self.out = io.StringIO()
        self.now_s = 0.0
        self.row = StatusRow(self.out, columns=lambda: columns, clock_s=lambda: self.now_s)

    @property
    def screen(self) -> list[str]:
        """The lines, each as the last erasing left it."""
        return [line.rsplit("\r\x1b[K", 1)[-1] for line in self.out.getvalue().split("\n")]


def test_the_row_says_what_is_going_on_and_for_how_long() -> None:
    terminal = ProgressTerminal()
    terminal.row.hear(TurnStarted("t", "s", "c"))
    terminal.row.hear(CallStarted("m", 1, 2, 3))
    terminal.now_s = 3.0
    terminal.row.draw()
    assert terminal.screen == ["thinking … 3 s"]
    terminal.row.hear(ToolStarted(CALL))
    terminal.now_s = 5.0
    terminal.row.draw()
    assert terminal.screen == ["● terminal make all … 2 s"]


def test_finished_work_stays_and_the_row_goes_with_the_end() -> None:
    terminal = ProgressTerminal()
    for event in (ToolStarted(CALL), DONE, CompactionFinished("compacted", 900, 100, "s", "Compacted 4 messages.")):
        terminal.row.hear(event)
    terminal.row.close()
    terminal.row.hear(TextDelta("too late"))
    terminal.row.draw()
    assert terminal.screen == [
        "● terminal make all · 1.0 s · 11 characters",
        "perdure: Compacted 4 messages. About 900 → 100 tokens.",
        "",
    ]


def test_a_retry_is_counted_down() -> None:
    terminal = ProgressTerminal()
    terminal.row.hear(RetryScheduled(ErrorVerdict("rate_limit", "slow", 429), 4.0, 2))
    terminal.now_s = 3.0
    terminal.row.draw()
    assert terminal.screen == [
        "perdure: rate limit: trying again in 4 s (attempt 2)",
        "◌ rate limit: trying again in 1 s (attempt 2)",
    ]


def test_the_row_never_wraps() -> None:
    terminal = ProgressTerminal(columns=30)
    terminal.row.hear(ToolStarted(ToolCall("c2", "terminal", '{"command": "' + "x" * 200 + '"}')))
    assert len(terminal.screen[-1]) < 30
