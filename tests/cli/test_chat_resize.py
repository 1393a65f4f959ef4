"""A terminal that is resized while something is drawn: the rows are erased as the terminal has wrapped them anew."""

from __future__ import annotations

import asyncio
import io
import re

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.application.current import set_app
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from perdure.cli.chat.prompt import PromptBox, PromptHandlers
from perdure.config.env import find_rewrap_mode


def drawn_then_resized(columns: int, *texts: str) -> str:
    """What is written when the last of the texts stands above the prompt, and 80 columns become `columns`."""
    out, width = io.StringIO(), [80]
    above = [""]
    handlers = PromptHandlers(
        on_line=lambda line: None,
        on_interrupt=lambda: None,
        on_leave=lambda: None,
        on_not_left=lambda: None,
        above=lambda width, rows: above[0],
        below=lambda width: " status",
        mark=lambda: "› ",
        on_page=lambda pages: None,
        on_stop=lambda: None,
        on_unfold=lambda: None,
        on_mode=lambda: None,
        has_approval=lambda: False,
        on_yes=lambda: None,
        on_answer_typed=lambda text, settles: None,
        on_late_words=lambda: None,
    )

    async def draw(source: PipeInput) -> None:
        output = Vt100_Output(out, lambda: Size(rows=40, columns=width[0]), enable_cpr=False)
        box = PromptBox(handlers, source=source, output=output)
        with set_app(box.app):
            for text in texts:
                above[0] = text
                box.app.render_counter += 1
                box.app.before_render.fire()
                box.app.renderer.render(box.app, box.app.layout)
                box.app.after_render.fire()
            out.seek(0)
            out.truncate()
            width[0] = columns
            box.app.before_render.fire()

    with create_pipe_input() as source, create_app_session(input=source):
        asyncio.run(draw(source))
    return out.getvalue()


def rows_up(written: str) -> int:
    moved = re.search(r"\x1b\[(\d*)A", written)
    return int(moved[1] or 1) if moved else 0


ROWS = "\n".join(("a" * 80, "b" * 30, "c" * 61))


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMUX", "XTERM_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.parametrize(("columns", "rows"), [(60, 2 + 1 + 2), (30, 3 + 1 + 3), (120, 3)])
def test_as_many_rows_are_erased_as_the_terminal_has_made_of_them(columns: int, rows: int) -> None:
    written = drawn_then_resized(columns, ROWS)
    assert rows_up(written) == rows
    assert "\x1b[J" in written


def test_nothing_is_erased_at_the_same_width() -> None:
    assert drawn_then_resized(80, ROWS) == ""


def test_in_tmux_cells_that_were_cleared_are_wrapped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows_up(drawn_then_resized(60, "a" * 80, "b")) == 1
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    assert rows_up(drawn_then_resized(60, "a" * 80, "b")) == 2


def test_in_tmux_the_screen_is_cleared_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    # Cleared whole from its first row on, it would be copied into the scrollback.
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    written = drawn_then_resized(60, ROWS)
    assert "\x1b[J" not in written
    assert written.count("\x1b[K\x1b[B") == 40
    assert written.index("\x1b7") < written.index("\x1b[K") < written.index("\x1b8")


def test_a_terminal_that_does_not_wrap_anew_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTERM_VERSION", "XTerm(390)")
    assert rows_up(drawn_then_resized(60, ROWS)) == 3
    assert find_rewrap_mode({"TERM": "linux"}) == "no"
    assert find_rewrap_mode({"TERM": "screen-256color", "TMUX": "/tmp/x"}) == "cleared"
