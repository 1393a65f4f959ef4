"""Prompt editing and completion."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, ThreadedCompleter
from prompt_toolkit.data_structures import Point
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import ConditionalContainer, Float, FloatContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from perdure.cli.chat.answer_keys import AnswerHandlers, AnswerKeys
from perdure.cli.chat.drawing import PaintedRows, ResizableApplication, clear_by_rows, without_cpr
from perdure.cli.chat.editing import cluster_end, cluster_start
from perdure.cli.chat.input import PasteParser, Pastes, UnfoldedHistory
from perdure.cli.chat.menu import ChoiceMenu
from perdure.cli.style import fit_lines, safe
from perdure.config.env import find_rewrap_mode
from perdure.core.errors import PerdureError

# The line counts as being typed for this long after a key.
_PAUSE_S = 0.7
_CODE_S = 0.1
_CHORD_S = 0.5
_INPUT_ROWS = 10
_ANSWER_ROWS = 2
_MENU_ROWS = 8
_STYLE = Style.from_dict({"status": "ansicyan", "mark": "bold", "completion-menu": "noreverse"})


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A submitted line: as displayed, with pastes expanded, and its pasted parts."""

    text: str
    meant: str
    pasted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptHandlers:
    """Callbacks of the prompt: lines and keys, and the text to show around it."""

    on_line: Callable[[Line], None]
    on_interrupt: Callable[[], None]
    on_leave: Callable[[], None]
    on_not_left: Callable[[], None]  # Ctrl-D behind a line
    above: Callable[[int, int], str]  # for a width and at most so many rows
    below: Callable[[int], str]
    mark: Callable[[], str]
    on_page: Callable[[int], None]  # so many pages on in what is asked
    on_stop: Callable[[], None]
    on_unfold: Callable[[], None]
    on_mode: Callable[[], None]
    # Whether an approval is open.
    has_approval: Callable[[], bool]
    on_yes: Callable[[], None]
    # What is typed so far as an answer, and whether it answers without Enter.
    on_answer_typed: Callable[[str, bool], None]
    # Words follow an answer that was given already; again when Enter ends them, which sends nothing.
    on_late_words: Callable[[], None]


class PromptBox:
    """One input line for a whole chat. Everything but `call` belongs to the thread that runs it."""

    def __init__(
        self,
        handlers: PromptHandlers,
        *,
        history_file: Path | None = None,
        completer: Completer | None = None,
        is_color: Callable[[], bool] = lambda: True,
        source: Input | None = None,
        output: Output | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handlers = handlers
        self._clock_s = clock_s
        self._pastes = Pastes()
        self._draft: Document | None = None
        # Where pasted images are stored.
        self._images = history_file.parent / "pasted" if history_file is not None else None
        self._changed_at_s = float("-inf")
        # How many programs have the terminal or wait for it, and what was written meanwhile.
        self._borrowers, self._withheld = 0, list[str]()
        # What is above the line, and in which drawing.
        self._above = (-1, "")
        history: History = (
            UnfoldedHistory(history_file, self._pastes) if history_file is not None else InMemoryHistory()
        )
        self.buffer = Buffer(
            history=history,
            completer=ThreadedCompleter(completer) if completer is not None else None,
            complete_while_typing=Condition(self._is_completable),
            multiline=True,
            enable_history_search=False,
            tempfile_suffix=".md",
        )
        self.buffer.on_text_changed += self._note_change
        self._answer_keys = AnswerKeys(self.buffer, self._answer_handlers(), clock_s=clock_s, later=self.later)
        self._menu = ChoiceMenu(self.buffer)
        self._rewrapping = find_rewrap_mode()
        # The width of each row that is drawn, as far as the terminal wraps it anew.
        self._drawn_widths: list[int] = []
        screen = output or without_cpr(create_output())
        self.app: Application[None] = ResizableApplication(
            self._erase_resized,
            layout=self._layout(),
            key_bindings=self._keys(),
            style=_STYLE,
            color_depth=lambda: None if is_color() else ColorDepth.DEPTH_1_BIT,
            erase_when_done=True,
            min_redraw_interval=0.02,
            input=source or _quick_paste(create_input()),
            output=clear_by_rows(screen) if self._rewrapping == "cleared" else screen,
        )
        self.app.before_render += lambda _: self._erase_resized()
        if self._rewrapping == "cleared":
            self.app.after_render += lambda _: self._note_widths()
        # How long Escape alone waits: for the rest of a key's code, and for a second key (Alt-Enter).
        self.app.ttimeoutlen, self.app.timeoutlen = _CODE_S, _CHORD_S

    def _answer_handlers(self) -> AnswerHandlers:
        handlers = self._handlers
        return AnswerHandlers(
            lambda: self.is_answering and handlers.has_approval(),
            handlers.on_yes,
            handlers.on_answer_typed,
            lambda: bool(self.app.key_processor.key_buffer),
            handlers.on_late_words,
        )

    # -- what a chat does with it ------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Print finished lines above the prompt."""
        if not self.app.is_running:
            self.app.output.write_raw(text)
            self.app.output.flush()
            return
        if self._borrowers:
            self._withheld.append(text)
            return
        # Straight into the terminal, without leaving raw mode: what is typed meanwhile is neither echoed nor lost.
        self._erase_resized()
        self.app.renderer.erase()
        self.app.output.write_raw(text)
        self.app.output.flush()
        self.app.invalidate()

    def _erase_resized(self) -> None:
        """Erase what was drawn at another width, which the terminal has wrapped anew; nothing at the same width."""
        renderer, columns = self.app.renderer, self.width
        if renderer._last_screen is None:
            self._drawn_widths.clear()
        size, cursor = renderer._last_size, renderer._cursor_pos
        if renderer._last_screen is None or size is None or size.columns == columns:
            return
        if self._rewrapping != "no":
            self._note_widths()
            above = sum(max(1, math.ceil(width / columns)) for width in self._drawn_widths[: cursor.y])
            renderer._cursor_pos = Point(cursor.x % columns, above + cursor.x // columns)
        renderer.erase(leave_alternate_screen=False)
        self._drawn_widths.clear()

    def _note_widths(self) -> None:
        """Note how wide each row is that was drawn last, or was before in a terminal that wraps cleared cells anew."""
        screen, before = self.app.renderer._last_screen, self._drawn_widths
        if screen is None:
            return
        rows = (screen.data_buffer[y] for y in range(screen.height))
        widths = [1 + max((x for x, cell in row.items() if cell.char != " "), default=-1) for row in rows]
        if self._rewrapping == "cleared":
            widths = [max(pair) for pair in zip_longest(widths, before, fillvalue=0)]
        self._drawn_widths = widths

    def redraw(self) -> None:
        self.app.invalidate()

    def call(self, work: Callable[[], None]) -> None:
        """Runs `work` in the prompt's thread, soon; from any thread, and dropped when the prompt is gone."""
        loop = self.app.loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(work)

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Runs `work` after some seconds; from the prompt's thread."""
        if self.app.loop is not None:
            self.app.loop.call_later(seconds, work)

    def hold(self) -> None:
        """Set aside what is being typed, so that a question can be answered first."""
        if self._draft is None:
            self._draft = self.buffer.document
            self.buffer.reset()
            self._answer_keys.begin()

    def release(self) -> None:
        """Restore what `hold` set aside."""
        if self._draft is not None:
            self.buffer.reset(self._draft)
            self._draft = None

    def take_answer(self) -> str:
        """Return what is typed at a question, with its pastes, and empty the line; "" where none can be answered."""
        if not self.is_answering:
            return ""
        text = self._pastes.unfold(self.buffer.text)
        self.buffer.reset()
        return text

    def put_back(self, lines: Sequence[Line]) -> None:
        """Insert submitted lines before what is being typed, to be edited and sent again."""
        typed = self.buffer.document if self._draft is None else self._draft
        texts = [*(line.text for line in lines), *([typed.text] if typed.text else [])]
        self._pastes.restore(paste for line in lines for paste in line.pasted)
        document = Document("\n".join(texts))
        if self._draft is None:
            self.buffer.document = document
        else:
            self._draft = document

    def clear(self) -> None:
        """Empty the line; Up brings it back."""
        self.buffer.append_to_history()
        self.buffer.reset()

    @property
    def has_line(self) -> bool:
        """Whether there is a line that is not the answer to a question."""
        return bool(self.buffer.text) and self._draft is None

    @property
    def is_typing(self) -> bool:
        """Whether a line is just being typed: a question must not take the next key for its answer."""
        return bool(self.buffer.text) and self._clock_s() - self._changed_at_s < _PAUSE_S

    @property
    def is_answering(self) -> bool:
        """Whether a question is open, so that the typed line is its answer; the draft of a message is set aside."""
        return self._draft is not None

    def leave(self) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit()

    @property
    def width(self) -> int:
        return self.app.output.get_size().columns

    @property
    def rows(self) -> int:
        return self.app.output.get_size().rows

    # -- how it looks ------------------------------------------------------------------------------------------------

    def _layout(self) -> Layout:
        search = SearchToolbar(ignore_case=True)
        above = Window(PaintedRows(self._shown_above), dont_extend_height=True, wrap_lines=False)
        typed = Window(
            BufferControl(self.buffer, search_buffer_control=search.control, preview_search=True),
            get_line_prefix=self._prefix,
            height=Dimension(min=1, max=_INPUT_ROWS),
            dont_extend_height=True,
            wrap_lines=True,
        )
        room = ConditionalContainer(Window(height=_MENU_ROWS), has_completions)
        below = Window(FormattedTextControl(self._below), height=1)
        is_busy = Condition(lambda: bool(self._shown_above()))
        body = HSplit([ConditionalContainer(above, is_busy), typed, search, room, below])
        menu = Float(CompletionsMenu(max_height=_MENU_ROWS, scroll_offset=1), xcursor=True, ycursor=True)
        return Layout(FloatContainer(body, floats=[menu]), focused_element=typed)

    def _shown_above(self) -> str:
        """Return what is above the line, made once for each drawing, which asks for it several times."""
        if self._above[0] != self.app.render_counter:
            size = self.app.output.get_size()
            # An answer to a question is short: the room of a long message is the question's meanwhile.
            input_rows = _ANSWER_ROWS if self._draft is not None else _INPUT_ROWS
            text = self._handlers.above(size.columns, max(0, size.rows - input_rows - 2))
            self._above = (self.app.render_counter, text)
        return self._above[1]

    def _prefix(self, line: int, wrap: int) -> StyleAndTextTuples:
        mark = self._handlers.mark()
        return [("class:mark", mark if line == 0 and wrap == 0 else " " * len(mark))]

    def _is_completable(self) -> bool:
        before = self.buffer.document.text_before_cursor
        return before.startswith("/") or "@" in before.rpartition(" ")[2]

    # -- keys --------------------------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        """Enter sends; Alt-Enter, Ctrl-J or a trailing backslash goes on in a new line."""
        keys = KeyBindings()
        keys.add("enter", filter=Condition(lambda: self.app.layout.has_focus(self.buffer)))(self._on_enter)
        keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        keys.add("c-j")(lambda event: event.current_buffer.insert_text("\n"))
        keys.add("c-c")(lambda event: self._handlers.on_interrupt())
        keys.add("<sigint>")(lambda event: self._handlers.on_interrupt())
        is_empty = Condition(lambda: not self.buffer.text)
        is_leavable = is_empty | Condition(lambda: self._menu.is_unfiltered)
        keys.add("c-d", filter=is_leavable)(lambda event: self._handlers.on_leave())
        is_behind_line = Condition(lambda: self.buffer.document.is_cursor_at_the_end) & ~is_leavable
        keys.add("c-d", filter=is_behind_line)(lambda event: self._handlers.on_not_left())
        keys.add("<bracketed-paste>")(self._on_paste)
        is_behind_mark = Condition(lambda: bool(self._pastes.mark_before(self.buffer.document.text_before_cursor)))
        self._add_cluster_keys(keys)
        keys.add("backspace", filter=is_behind_mark)(self._remove_mark)
        keys.add("tab", filter=has_completions)(lambda event: self._complete())
        # Alone, and after a moment: with another key it is Alt.
        keys.add("escape")(lambda event: self._on_escape())
        keys.add("c-x", "c-e")(lambda event: self._edit(""))
        keys.add("c-v")(lambda event: self._paste_image())
        keys.add("c-o")(lambda event: self._handlers.on_unfold())
        keys.add("s-tab", filter=~has_completions)(lambda event: self._handlers.on_mode())
        self._answer_keys.add_keys(keys)
        self._menu.add_keys(keys)
        is_asked = Condition(lambda: self._draft is not None)
        for key, pages in (("pagedown", 1), ("pageup", -1)):
            keys.add(key, filter=is_asked)(lambda event, pages=pages: self._handlers.on_page(pages))
        for key, pages in (("down", 1), ("up", -1)):
            keys.add(key, filter=is_asked & is_empty)(lambda event, pages=pages: self._handlers.on_page(pages))
        if sys.platform == "win32":  # where Ctrl-Z ends the input
            keys.add("c-z", filter=is_empty)(lambda event: self._handlers.on_leave())
        else:
            keys.add("c-z")(lambda event: event.app.suspend_to_background())
        return keys

    def _add_cluster_keys(self, keys: KeyBindings) -> None:
        """Edit a grapheme cluster (an emoji of several code points, an accented letter) as one character."""

        def before() -> int:
            at = self.buffer.cursor_position
            return at - cluster_start(self.buffer.text, at)

        def after() -> int:
            at = self.buffer.cursor_position
            return cluster_end(self.buffer.text, at) - at

        is_before, is_after = Condition(lambda: before() > 1), Condition(lambda: after() > 1)
        for key in ("backspace", "c-h"):
            keys.add(key, filter=is_before)(lambda event: self.buffer.delete_before_cursor(before()))
        keys.add("delete", filter=is_after)(lambda event: self.buffer.delete(after()))
        for key in ("left", "c-b"):
            keys.add(key, filter=is_before)(lambda event: self.buffer.cursor_left(before()))
        for key in ("right", "c-f"):
            keys.add(key, filter=is_after)(lambda event: self.buffer.cursor_right(after()))

    def _complete(self) -> None:
        """Insert the only completion, list the folder just completed, or else select the next completion."""
        state = self.buffer.complete_state
        if state is None:
            return
        current = state.current_completion
        if current is None and len(state.completions) == 1:
            current = state.completions[0]
            self.buffer.apply_completion(current)
        if current is None or not (len(state.completions) == 1 or current.text.endswith("/")):
            self.buffer.complete_next()
            return
        self.buffer.complete_state = None
        if current.text.endswith("/"):
            self.buffer.start_completion(select_first=True)

    def _note_change(self, _: Buffer) -> None:
        self._changed_at_s = self._clock_s()

    def _on_enter(self, event: KeyPressEvent) -> None:
        if self._answer_keys.take_enter():
            return
        buffer = self.buffer
        if self._draft is None:
            self._menu.begin_other_command()
            self._menu.take_first_row()
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
            # Enter on a row of a menu chooses it; what completes a line is taken, and the next Enter sends.
            if not self._menu.is_choosing:
                return
        if buffer.text.endswith("\\"):
            buffer.delete_before_cursor(1)
            buffer.insert_text("\n")
            return
        text = buffer.text.strip()
        if (text == "/edit" or text.startswith("/edit ")) and self._draft is None:
            self._edit(text.removeprefix("/edit").strip())
            return
        if self._menu.is_wanted and self._draft is None:
            self.pick(text)
            return
        # The line being typed is the last one; the others are from the history.
        is_recalled = buffer.working_index < len(buffer._working_lines) - 1
        if is_recalled and (mark := self._pastes.missing_mark(text)):
            self.write(f"{mark} was pasted in another chat and is not here: paste it again, or take it out.\n")
            return
        pasted = (*self._pastes.take(text, is_recalled=is_recalled), *self._find_recalled(text))
        if text and self._draft is None:
            buffer.append_to_history()
        buffer.reset()
        self._handlers.on_line(Line(text, self._pastes.unfold(text), pasted))

    def pick(self, command: str) -> None:
        """Open the menu of a command that is chosen from one."""
        self._menu.open(command)

    def _below(self) -> StyleAndTextTuples:
        # Not padded to the width: a row that long is wrapped by a terminal that is made narrower.
        text = f" {self._menu.hint}"[: self.width] if self._menu.is_open else self._handlers.below(self.width)
        return [("class:status", text)]

    def _remove_mark(self, event: KeyPressEvent) -> None:
        """Delete a placeholder as a whole: the rest of one would be sent as it is."""
        self.buffer.delete_before_cursor(len(self._pastes.mark_before(self.buffer.document.text_before_cursor)))

    def _find_recalled(self, text: str) -> list[str]:
        """Return the earlier multi-line messages recalled in this one: their pasted parts are unknown."""
        if "\n" not in text or "@" not in text:
            return []
        return [entry for entry in self.buffer.history.get_strings() if "\n" in entry and entry.strip() in text]

    def _on_escape(self) -> None:
        """Close the menu, with the command it was opened for; without one, stop what is going on."""
        if self.buffer.complete_state is None:
            self._handlers.on_stop()
            return
        self.buffer.cancel_completion()
        if self._menu.is_unfiltered:
            self.buffer.reset()

    def _edit(self, text: str) -> None:
        """Open the message in the user's editor; what is saved there is the line again."""
        if text or self.buffer.text.strip() == "/edit":
            self.buffer.text = text

        async def run() -> None:
            edited: concurrent.futures.Future[str | None] = concurrent.futures.Future()
            await self._lend(_make_edit(self.buffer.text, edited))
            try:
                if (saved := edited.result()) is not None:
                    self.buffer.document = Document(saved, len(saved))
            except PerdureError as error:
                self._report(str(error))

        self.app.create_background_task(run())

    def _report(self, text: str) -> None:
        self.write("".join(f"{line}\n" for line in fit_lines([safe(text)], self.width)))

    def _paste_image(self) -> None:
        """Attach the image in the clipboard; without one, show a notice."""
        from perdure.cli.chat.clipboard import as_mention, no_image_line, read_image, store_image

        folder = self._images
        if folder is None:
            return

        async def paste() -> None:
            try:
                if (data := await asyncio.to_thread(read_image)) is not None:
                    self.buffer.insert_text(as_mention(store_image(data, folder)))
                else:
                    self._report(no_image_line())
            except OSError as error:
                self._report(f"the image could not be stored: {error.strerror}")

        self.app.create_background_task(paste())

    def view(self, text: str, pager: Sequence[str], on_close: Callable[[], None] = lambda: None) -> None:
        """Open a text in a pager, which has the terminal to itself until it is left."""

        def page() -> None:
            with contextlib.suppress(OSError):
                subprocess.run(pager, input=text.encode("utf-8", "replace"), check=False)

        async def run() -> None:
            await self._lend(page)
            on_close()

        self.app.create_background_task(run())

    def edit_text(self, text: str, edited: concurrent.futures.Future[str | None]) -> None:
        """Open a text in the user's editor, which has the terminal to itself; `edited` gets None if it is not saved."""

        async def run() -> None:
            with set_app(self.app):
                await self._lend(_make_edit(text, edited))

        self.app.create_background_task(run())

    async def _lend(self, work: Callable[[], None]) -> None:
        """Run a program that has the terminal to itself; what is written meanwhile is printed afterwards."""
        self._borrowers += 1
        try:
            await run_in_terminal(work, in_executor=True)
        finally:
            self._borrowers -= 1
            if not self._borrowers and self._withheld:
                text = "".join(self._withheld)
                self._withheld.clear()
                self.write(text)

    def _on_paste(self, event: KeyPressEvent) -> None:
        from perdure.cli.chat.clipboard import as_mention, dropped_image

        image = dropped_image(event.data)
        if image is not None and not self.buffer.document.text_before_cursor.endswith("@"):
            event.current_buffer.insert_text(as_mention(image))
            return
        event.current_buffer.insert_text(self._pastes.fold(event.data))


def _make_edit(text: str, edited: concurrent.futures.Future[str | None]) -> Callable[[], None]:
    """Return a function that opens a text in the user's editor; if that fails, the future gets the error."""

    def edit() -> None:
        from perdure.cli.editor import edit_text  # imported here to show the prompt sooner

        try:
            edited.set_result(edit_text(text))
        except Exception as error:  # thread boundary: raised where the result is awaited
            edited.set_exception(error)

    return edit


def _quick_paste(source: Input) -> Input:
    """Reads long pastes in linear time where the input is a Unix terminal's."""
    parser = getattr(source, "vt100_parser", None)
    if parser is not None and hasattr(source, "vt100_parser"):
        source.vt100_parser = PasteParser(parser.feed_key_callback)
    return source
