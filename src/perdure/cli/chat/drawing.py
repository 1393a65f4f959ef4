"""Drawing of the prompt: the rows above it, a window that is resized, and what is sent to the terminal."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.layout.controls import UIContent, UIControl
from prompt_toolkit.output import Output

_SAVE_CURSOR, _RESTORE_CURSOR = "\x1b7", "\x1b8"
# Clears a row and goes on to the next one, without scrolling.
_CLEAR_ROW = "\x1b[K\x1b[B"


class PaintedRows(UIControl):
    """Shows rows with escapes for colours; only a row that was not in the text before is parsed.

    A drawing asks for the content several times. FormattedTextControl splits it into lines anew each time, character
    by character, which took most of the time of a key while an answer streams.
    """

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._drawn_text: str | None = None
        self._rows: dict[str, StyleAndTextTuples] = {}
        self._content = UIContent()

    def create_content(self, width: int, height: int | None) -> UIContent:
        text = self._text()
        if text != self._drawn_text:
            lines = text.split("\n")
            self._rows = {line: self._rows.get(line) or _join_styles(line) for line in lines}
            rows = [self._rows[line] for line in lines]
            self._drawn_text, self._content = text, UIContent(rows.__getitem__, len(rows), show_cursor=False)
        return self._content

    def preferred_height(
        self, width: int, max_available_height: int, wrap_lines: bool, get_line_prefix: object
    ) -> int | None:
        return self.create_content(width, None).line_count


def _join_styles(row: str) -> StyleAndTextTuples:
    """Return a row as one piece of text for each style; ANSI gives one for each character."""
    if "\x1b" not in row:
        return [("", row)]
    pieces = ((style, text) for style, text, *_ in to_formatted_text(ANSI(row)))
    return [(style, "".join(text for _, text in run)) for style, run in groupby(pieces, key=lambda piece: piece[0])]


class ResizableApplication(Application[None]):
    """Has what was drawn at the old width erased first when the terminal is resized."""

    def __init__(self, erase: Callable[[], None], **options: Any) -> None:
        super().__init__(**options)
        self._erase_drawn = erase

    def _on_resize(self) -> None:
        self._erase_drawn()
        super()._on_resize()


def without_cpr(output: Output) -> Output:
    """Never asks the terminal where the cursor is: the answer would arrive among the keys, and is not needed."""
    if hasattr(output, "enable_cpr"):
        output.enable_cpr = False
    return output


def clear_by_rows(output: Output) -> Output:
    """Clears the screen row by row: tmux puts a copy of one that is cleared whole into its scrollback."""

    def erase_down() -> None:
        output.write_raw(_SAVE_CURSOR + _CLEAR_ROW * output.get_size().rows + _RESTORE_CURSOR)

    output.erase_down = erase_down  # type: ignore[method-assign]  # of this one output only
    return output
