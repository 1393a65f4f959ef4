"""The full-screen chat: prompt, streaming output, questions."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.input import Input
from prompt_toolkit.output import Output

from perdure.cli.chat.editing import ChatCompleter
from perdure.cli.chat.input import EventInbox, as_command
from perdure.cli.chat.prompt import Line, PromptBox, PromptHandlers
from perdure.cli.chat.question_panel import QuestionPanel, lasting_rows
from perdure.cli.chat.questions import SETTLING_NOTICE, PendingQuestion, TerminalQuestions, refusal_words, typing_notice
from perdure.cli.style import Style, fit_lines, fit_parts, runnable, safe, shorten_row, wrap_lines
from perdure.core.concurrency import DaemonThreads

if TYPE_CHECKING:
    from perdure.cli.chat.controller import ChatController
    from perdure.cli.chat.transcript import ChatTranscript
    from perdure.core.events import Event
    from perdure.tools.builtin.terminal import BackgroundProcess


@contextmanager
def redirect_logging(path: Path) -> Iterator[None]:
    """Redirect logging to a file while the prompt is active; the file is created on demand."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


_log = logging.getLogger(__name__)

_LEAVE_WITHIN_S = 2.0
# Once the answer has stopped, only a quick second Ctrl-C was meant to leave as well.
_TWICE_WITHIN_S = 1.0
_LEAVE_HINT = "Ctrl-C again leaves; the conversation is kept"
_CLEARED_HINT = "the line was not sent; Up brings it back"
_TYPED_HINT = "Ctrl-D leaves from an empty line; Ctrl-C empties it"
_LATE_WORDS_HINT = "allowed before these words: Enter sends them as a message, Esc stops the work"
_LATE_WORDS_S = 6.0
_STOPPING_HINT = "stopping … (Ctrl-C again leaves; the conversation is kept)"
_TICK_S = 0.2
_PROCESS_CHARS = 40
# Model, gauge, mode and cost: the parts of the status for which its bar gives way.
_STATUS_PARTS = 4
_QUICK_S = 2.0
_SWITCH_S = 0.0005
# How long leaving waits for what is still opening, and for a turn to stop.
_OPENING_S = 0.5
_STOPPING_S = 5.0
# Left like by Ctrl-D: the terminal is set right again, and nothing that a tool started lives on.
_ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
# Commands that only read: they are answered at once, even during a turn.
_AT_ONCE = ("/usage", "/context", "/help", "/search", "/sessions", "/insights", "/expand", "/handoff")
# What they show may change with a line that waits, such as `/compact`.
_AFTER_WAITING = ("/context", "/expand", "/handoff")
OpenController = Callable[["ChatApp"], "ChatController"]


class ChatApp:
    """Reads, answers, repeats. Typing never waits for work: lines are queued while something is going on."""

    def __init__(
        self,
        open_desk: OpenController,
        *,
        home: Path,
        is_color: bool,
        source: Input | None = None,
        output: Output | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_desk = open_desk
        # Called once in the working thread, when everything is loaded.
        self._on_ready = on_ready
        self._clock_s = clock_s
        self._log_file = home / "logs" / "chat.log"
        self.ink = Style(is_color)
        self._completer = ChatCompleter(Path.cwd(), lambda: self._box.width)
        self._box = PromptBox(
            PromptHandlers(
                self._on_line,
                self._on_interrupt,
                lambda: self._box.leave(),
                lambda: self._flash(_TYPED_HINT),
                self._above,
                self._below,
                self._mark,
                self._turn_page,
                self._on_escape,
                self._unfold,
                self._next_mode,
                self._has_approval,
                lambda: self._reply("yes"),
                self._on_answer_typed,
                lambda: self._flash(_LATE_WORDS_HINT, _LATE_WORDS_S),
            ),
            history_file=home / "history",
            completer=self._completer,
            is_color=lambda: self.ink.is_color,
            source=source,
            output=output,
        )
        self.questions = TerminalQuestions(self._ask, self._withdraw)
        self._desk: ChatController | None = None
        self._transcript: ChatTranscript | None = None
        self._lines: queue.Queue[Line | None] = queue.Queue()
        self._waiting: list[Line] = []
        self._inbox = EventInbox(self._show, self._box.call, self._box.later)
        self._panel: QuestionPanel | None = None
        self._processes: list[BackgroundProcess] = []
        self._is_working = False
        # An interrupt that came before there was anything to stop: it is tried again until there is.
        self._is_stopping = False
        self._began_s = time.monotonic()
        self._status = ""
        self._hint = ""
        # Until when Ctrl-C leaves.
        self._leave_until_s = float("-inf")
        self._failure = ""
        self._signal = 0  # the one that ended it, if one did

    # -- life --------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until the user leaves; return the exit code."""
        worker = threading.Thread(target=self._work, name="perdure-work", daemon=True)
        started = threading.Event()

        def start(_: object) -> None:
            if not started.is_set():  # the prompt is drawn: only now begins what takes time
                started.set()
                worker.start()

        self._box.app.after_render += start
        # A key waits for whichever thread computes: with the usual 5 ms at each step of drawing, one would feel it.
        sys.setswitchinterval(_SWITCH_S)
        with redirect_logging(self._log_file):
            asyncio.run(self._until_left())
        unsent = self._take_queued()
        self._lines.put(None)
        if started.is_set():
            self._finish(worker)
        self._say(self._page(f"Not sent: {line.text}" for line in unsent))
        if self._failure:
            self._say(self._failure + "\n")
        return 1 if self._failure else 128 + self._signal if self._signal else 0

    async def _until_left(self) -> None:
        loop = asyncio.get_running_loop()
        # A completion waiting for a slow disk must not delay the exit.
        loop.set_default_executor(DaemonThreads())
        for number in _ENDINGS:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # Windows; not the main thread
                loop.add_signal_handler(number, self._on_signal, number)
        ticking = loop.create_task(self._tick())
        try:
            with contextlib.suppress(EOFError, OSError):  # the terminal was closed
                await self._box.app.run_async()
        finally:
            ticking.cancel()

    def _finish(self, worker: threading.Thread) -> None:
        """Stop running work, print how to resume, and close resources."""
        if self._desk is None:  # still opening: that is quick, and half of it could not be closed
            worker.join(timeout=_OPENING_S)
        if (desk := self._desk) is None:
            return
        desk.interrupt()
        worker.join(timeout=_STOPPING_S)
        self._say(self._page(desk.closing()))
        desk.close()
        if not worker.is_alive():
            desk.surface.store.close()

    def _on_signal(self, number: int) -> None:
        self._signal = number
        self._box.leave()

    def _say(self, text: str) -> None:
        """Print closing lines if the terminal still exists."""
        with contextlib.suppress(OSError):
            self._box.write(text)

    async def _tick(self) -> None:
        """Redraw the clocks of what is running, and stop it where that could not be done at once."""
        while True:
            await asyncio.sleep(_TICK_S)
            if self._is_stopping and self._is_working and self._desk is not None:
                self._is_stopping = not self._desk.interrupt()
            self._follow_processes()
            self._arm_question()
            if self._is_working or self._desk is None or self._processes:
                self._box.redraw()

    def _follow_processes(self) -> None:
        """Note what runs in the background, and report what has ended since."""
        everything = self._desk.processes() if self._desk is not None else ()
        running = {p.id for p in self._processes}
        for process in everything:
            if process.id in running and not process.is_running:
                name = shorten_row(safe(process.command), _PROCESS_CHARS)
                line = f"· {process.id} ({name}) {process.status} after {process.seconds:.0f} s"
                self._box.write(self._page([line]))
        self._processes = [p for p in everything if p.is_running]

    def _process_rows(self, width: int) -> list[str]:
        rows = [f"◌ {p.id} {shorten_row(safe(p.command), width)} … {p.seconds:.0f} s" for p in self._processes]
        return [self.ink.dim(shorten_row(row, width)) for row in rows]

    # -- the prompt's thread -----------------------------------------------------------------------------------------

    def _on_line(self, line: Line) -> None:
        self._hint = ""
        self._leave_until_s = float("-inf")  # twice means twice in a row
        is_answer = self._panel is not None and self._box.is_answering
        text = line.meant if is_answer else as_command(line.meant)
        # To a question of the model, `/search` may be the answer: the route of a page, or a folder.
        is_taken_whole = is_answer and self._panel is not None and not self._panel.question.is_approval
        command = self._desk.commands.find(text) if self._desk is not None and not is_taken_whole else None
        if self._panel is not None and is_answer and command is None:
            self._reply(line.meant)
            return
        if not line.text:
            return
        name = f"/{command.name}" if command is not None else ""
        if name == "/stop" and self._is_working:
            self._interrupt()
        elif name in _AT_ONCE and self._is_working and not (name in _AFTER_WAITING and self._waiting):
            self._answer_at_once(line)
        elif self._panel is not None and is_answer:
            self._panel.notice = f"{name} is a command, and no reason: answer first, with one key or in words."
        else:
            self._send(line)
        self._box.redraw()

    def _answer_at_once(self, line: Line) -> None:
        self._echo(line.text)
        threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _send(self, line: Line) -> None:
        """Pass a line to the working thread; while that is busy, the line is shown as waiting."""
        # Between two lines nothing is going on, and yet those that wait come first.
        if self._is_working or self._waiting or self._desk is None:
            self._waiting.append(line)
            if self._desk is not None:
                # Before the line is queued: the turn that is stopped must be an earlier one.
                self._desk.make_way(line.meant, pasted=line.pasted)
        else:
            self._echo(line.text)
            self._is_working = True
        self._lines.put(line)

    def _on_interrupt(self) -> None:
        """Stop what is going on and keep the line; with nothing going on, empty the line; twice in a row, leave."""
        if self._box.has_line and not self._is_working:
            self._leave_until_s = float("-inf")
            self._flash(_CLEARED_HINT)
            self._box.clear()
            return
        now_s = self._clock_s()
        if now_s < self._leave_until_s:
            self._box.leave()
            return
        self._leave_until_s = now_s + _LEAVE_WITHIN_S
        if self._panel is not None:
            self._panel.question.reply("")
        if self._is_working:
            self._interrupt()
            self._hint = _STOPPING_HINT
        else:
            self._flash(_LEAVE_HINT, self._leave_until_s - self._clock_s())
        self._box.redraw()

    def _reply(self, answer: str) -> None:
        """Answer the open question and print the answer below it."""
        if self._panel is not None:
            question = self._panel.question
            question.reply(answer)  # what follows from it is shown by this thread, later
            self._take_down(question)
            self._box.write(f"{self.ink.dim('  ›')} {safe(answer)}\n")

    def _has_approval(self) -> bool:
        return self._panel is not None and self._panel.question.is_approval

    def _on_answer_typed(self, text: str, settles: bool) -> None:
        if self._panel is not None:
            self._panel.notice = SETTLING_NOTICE if settles else typing_notice(self._panel.question, text)

    def _next_mode(self) -> None:
        if self._desk is not None:
            self._hint = self._desk.cycle_mode()
            self._status = self._desk.status()
            self._box.redraw()

    def _flash(self, hint: str, seconds: float = _LEAVE_WITHIN_S) -> None:
        """Show a hint for a while."""
        self._hint = hint
        self._box.later(seconds, partial(self._forget_hint, hint))
        self._box.redraw()

    def _forget_hint(self, hint: str) -> None:
        """Take a hint down, that on leaving once it is no longer true."""
        if self._hint == hint and (hint != _LEAVE_HINT or self._clock_s() >= self._leave_until_s):
            self._hint = ""
            self._box.redraw()

    def _on_escape(self) -> None:
        """Refuse what is asked, else stop the running turn; at an idle prompt do nothing."""
        if self._panel is not None and self._panel.question.is_approval:
            self._reply(refusal_words(self._panel.question, self._box.take_answer()))
        elif self._is_working and self._panel is None:
            self._interrupt()
            self._hint = "stopping …"
            self._box.redraw()

    def _unfold(self) -> None:
        """Show the newest tool output whole, a stored one with `/expand`; pressed again soon, the one before it.

        While a question is open, it is what is asked about.
        """
        if self._transcript is None:
            return
        if self._panel is not None:
            self._view_question(self._panel)
            return
        lines = self._transcript.unfold_lines(self._box.width - 2, paged_from=self._paged_from)
        if self._transcript.unfolded_address:
            command = f"/expand {self._transcript.unfolded_address}"
            (self._answer_at_once if self._is_working else self._send)(Line(command, command))
        elif not self._view(text := "".join(f"  {line}\n" for line in lines)):
            self._box.write(text)

    def _view_question(self, panel: QuestionPanel) -> None:
        if not panel.is_paged:
            panel.notice = "\n".join(filter(None, ("That is all of it.", panel.question.hint)))
            self._box.redraw()
        elif not self._open_pager(self._page(panel.question.text.split("\n"), is_document=True)):
            self._turn_page(1)

    def _interrupt(self) -> None:
        """Stop what is going on; queued lines go back into the input."""
        self._recall_waiting()
        if self._desk is not None:
            self._is_stopping = not self._desk.interrupt()

    def _take_queued(self) -> list[Line]:
        """Take the lines out of the queue that the working thread has not begun."""
        queued: list[Line] = []
        with contextlib.suppress(queue.Empty):
            while (line := self._lines.get_nowait()) is not None:
                queued.append(line)
        return queued

    def _recall_waiting(self) -> None:
        queued = self._take_queued()
        recalled = [line for line in queued if line in self._waiting]
        for line in queued:
            if line not in recalled:  # shown as sent already
                self._lines.put(line)
        if not recalled:
            return
        self._waiting = [line for line in self._waiting if line not in recalled]
        self._box.put_back(recalled)
        what = "The line that waited was" if len(recalled) == 1 else f"The {len(recalled)} lines that waited were"
        self._box.write(self.ink.dim(f"· {what} not sent: back in the input") + "\n")

    def _echo(self, text: str) -> None:
        rows = "\n  ".join(wrap_lines(safe(text).split("\n"), self._box.width - 2))
        self._box.write(f"{self.ink.bold('›')} {rows}\n")

    def _page(self, lines: Iterable[str], *, is_document: bool = False) -> str:
        return "".join(f"{safe(line)}\n" for line in fit_lines(lines, self._box.width, keeps_blanks=is_document))

    def _mark(self) -> str:
        return "? " if self._panel is not None and self._box.is_answering else "› "

    def _turn_page(self, pages: int) -> None:
        if self._panel is not None:
            self._panel.turn(pages)
            self._box.redraw()

    def _above(self, width: int, rows: int) -> str:
        question_lines = self._panel.lines(width, rows, self.ink) if self._panel is not None else []
        processes = self._process_rows(width)
        waiting = [self.ink.dim(f"  then: {shorten_row(line.text, width)}") for line in self._waiting]
        lines = [*processes, *waiting][: max(0, rows - len(question_lines))] + question_lines
        live = self._transcript.live(width=width, rows=rows - len(lines)) if self._transcript is not None else ""
        return "\n".join([live, *lines] if live else lines)

    def _below(self, width: int) -> str:
        if self._hint or self._desk is None:
            return f" {shorten_row(safe(self._hint or self._starting()), width - 1)}"
        return f" {fit_parts(safe(self._status), width - 1, essential=_STATUS_PARTS)}"

    def _starting(self) -> str:
        """Return the startup notice, with the elapsed seconds once it is slow, as when a database is migrated."""
        seconds = time.monotonic() - self._began_s
        return f"starting … {seconds:.0f} s (Ctrl-C twice leaves)" if seconds > _QUICK_S else "starting …"

    def _ask(self, question: PendingQuestion) -> None:
        self._inbox.put(partial(self._put_up, question))

    def _withdraw(self, question: PendingQuestion) -> None:
        self._inbox.put(partial(self._take_down, question))

    def _put_up(self, question: PendingQuestion) -> None:
        self._panel = QuestionPanel(question)
        if self._transcript is not None:
            self._transcript.hold(question.call_id)
        self._panel.notice = "Pause a moment to answer: you are typing."
        self._arm_question()

    def _arm_question(self) -> None:
        """Let keys answer the question, unless they belong to a line that is just being typed."""
        if self._panel is None or self._box.is_answering or self._box.is_typing:
            return
        self._panel.notice = ""
        self._box.hold()
        self._box.redraw()

    def _take_down(self, question: PendingQuestion) -> None:
        """Write the question down, with the reason it was asked for."""
        if self._panel is not None and self._panel.question is question:
            self._box.write("".join(f"{row}\n" for row in lasting_rows(question, self._box.width, self.ink)))
            self._panel = None
            if self._transcript is not None:
                self._transcript.release(question.call_id)
            self._box.release()
            self._box.redraw()

    def _show(self, event: Event) -> None:
        if self._transcript is not None:
            self._transcript.show(event)
            self._box.redraw()

    # -- other threads -----------------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Lines for the person, from any thread."""
        self._inbox.put(lambda: self._box.write(text))

    def write_lines(self, text: str) -> None:
        """Write whole lines, wrapped between words, from any thread."""
        if text:
            self.write(self._page(text.removesuffix("\n").split("\n"), is_document=True))

    def hear(self, event: Event) -> None:
        """Handle an event of the agent, in its thread; what must be looked up for the status is looked up there."""
        self._inbox.put(event)
        if self._desk is not None:
            self._desk.on_event(event)
            if self._desk.changes_status(event):
                self._status = self._desk.status()
                self._inbox.put(self._box.redraw)

    def edit_text(self, text: str) -> str | None:
        """Open a text in the user's editor and wait for it, from a working thread; None where it was not saved."""
        edited: concurrent.futures.Future[str | None] = concurrent.futures.Future()
        self._box.call(lambda: self._box.edit_text(text, edited))
        return edited.result()

    def progress(self, what: str, seconds: float) -> None:
        def show() -> None:
            if self._transcript is not None and self._is_working:  # a model may still load after a stop
                self._transcript.busy(what)

        self._inbox.put(show)

    def _work(self) -> None:
        """Run the worker thread: open everything, then answer line by line."""
        from perdure.core.errors import PerdureError

        try:
            desk = self._open_desk(self)
            self.ink = desk.ink
            self._transcript = desk.transcript(lambda text: self._box.write(text), lambda: self._box.width, self.ink)
            self.write(self._page(desk.opening(has_menu=True)) + self._replay_turns(desk, self._transcript))
            self._completer.desk = desk
            self._status, self._desk = desk.status(), desk
        except PerdureError as error:
            self._give_up(self._page([f"perdure: {runnable(str(error))}"]).rstrip("\n"))
            return
        except Exception:  # thread boundary: an error here would leave a dead prompt
            self._give_up(traceback.format_exc())
            return
        if desk.surface.unchosen_models:
            self._inbox.put(partial(self._box.pick, "/model"))
        desk.look_around(lambda text: self.write(self._page(text.splitlines())))
        self._refresh(desk)
        desk.warm_up()
        self._on_ready()
        while (line := self._lines.get()) is not None:
            self._inbox.put(partial(self._begin, line))
            self._answer(line)
            self._inbox.put(self._end)

    def _replay_turns(self, desk: ChatController, transcript: ChatTranscript) -> str:
        """Return the last turns of a resumed conversation; its outputs can be shown as if they were new."""
        self._inbox.put(partial(transcript.remember, desk.stored_results()))
        return desk.replay(self._box.width, self.ink)

    def _give_up(self, why: str) -> None:
        self._failure = why
        self._inbox.put(self._box.leave)

    def _begin(self, line: Line) -> None:
        self._is_working = True
        if line in self._waiting:
            self._waiting.remove(line)
            self._echo(line.text)

    def _end(self) -> None:
        if self._transcript is not None:
            self._transcript.stop()
        self._is_working = not self._lines.empty()
        was_stopped = self._hint == _STOPPING_HINT
        self._hint = ""
        if was_stopped:
            self._leave_until_s -= _LEAVE_WITHIN_S - _TWICE_WITHIN_S
            if self._clock_s() < self._leave_until_s and not self._box.has_line:
                self._flash(_LEAVE_HINT, self._leave_until_s - self._clock_s())
        self._box.redraw()

    @property
    def _paged_from(self) -> int | None:
        """The rows from which on a text is read in the pager; None where there is no pager."""
        from perdure.config.env import pager

        return self._box.rows - 4 if pager() is not None else None

    def _view(self, text: str) -> bool:
        """Open a long text in the pager; False where it fits the screen, or there is no pager."""
        least = self._paged_from
        return least is not None and text.count("\n") >= least and self._open_pager(text)

    def _open_pager(self, text: str) -> bool:
        from perdure.config.env import pager

        if (command := pager()) is None or self._transcript is None:
            return False
        self._inbox.put(partial(self._box.view, text, command, self._transcript.pause_steps()))
        return True

    def _answer(self, line: Line) -> None:
        if self._desk is None:
            return
        try:
            answer = self._desk.answer(line.meant, self.progress, pasted=line.pasted)
        except Exception as error:  # a thread's edge: the prompt survives a defect, and the person reads of it
            _log.exception("a line could not be answered")
            message = f"internal error: {type(error).__name__}: {safe(str(error))}"
            self.write(self.ink.bad(f"{message}\nThe details are in {self._log_file}") + "\n\n")
            return
        finally:
            self._is_stopping = False
        if answer.text:
            text = self._page(answer.text.split("\n"), is_document=answer.is_document)
            if answer.is_document and self._lines.empty() and self._view(text):
                return
            self.write(f"{self.ink.bad(text) if answer.is_error else text}\n")
        if answer.is_unsent:
            self._inbox.put(partial(self._box.put_back, [line]))
        if answer.is_resumed and self._transcript is not None:
            self.write(self._replay_turns(self._desk, self._transcript))
        if answer.is_leaving:
            self._inbox.put(self._box.leave)
        else:
            self._refresh(self._desk)

    def _refresh(self, desk: ChatController) -> None:
        self._status = desk.measured_status()
        self._inbox.put(self._box.redraw)
