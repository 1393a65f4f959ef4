"""Answer one question, for scripts and pipes. Only the answer goes to standard output."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from perdure.agent.callbacks import status_line
from perdure.agent.turn import NO_ANSWER
from perdure.cli.chat.activity import named_call
from perdure.cli.chat.command_context import SCRIPT_ENDED, ChatCommandContext, ChatUser
from perdure.cli.chat.input import Attached, attach
from perdure.cli.chat.markdown import hanging_indent, lines_of
from perdure.cli.chat.progress import StatusRow
from perdure.cli.chat.status import embedded_lines
from perdure.cli.output import columns, fit
from perdure.cli.style import runnable, wrap_words
from perdure.commands.registry import all_commands
from perdure.commands.titles import title_of
from perdure.config.env import is_dumb
from perdure.core.display import strip_controls
from perdure.core.events import (
    CompactionFinished,
    Event,
    Notice,
    Recovered,
    RetryScheduled,
    ToolFinished,
    TurnFinished,
)
from perdure.core.messages import Message
from perdure.providers.registry import is_own_host, missing_key
from perdure.tools.approval import UNATTENDED, advance_rules

# 128 + SIGPIPE, which Python ignores: what a shell reports for other tools in a pipe.
_UNREAD = 141
_MOST_RULES = 3


def ask_once(
    flags: Mapping[str, Any], question: str, *, piped: str = "", session_id: str | None = None, as_json: bool = False
) -> int:
    """Run one turn and print its answer; return the exit code.

    0 answered, 1 not answered, 2 no question, 130 interrupted, 141 the reader of the events is gone.
    """
    text = "\n\n".join(part for part in (question, piped) if part)
    if not text.strip():
        print("perdure: there is no question; give one with -q, or pipe it in", file=sys.stderr)
        return 2
    progress = StatusRow(sys.stderr) if not as_json and sys.stderr.isatty() and not is_dumb() else None
    writer, refusals = _EventWriter(lambda: surface.interrupt()), _Refusals()
    hear = writer.write if as_json else progress.hear if progress is not None else _print_notices
    person = ChatUser(hear=hear if as_json else refusals.before(hear))
    surface = ChatCommandContext(flags, session_id=session_id, person=person)
    try:
        result = all_commands(surface.custom_commands).dispatch(surface, text)
        if result is None:
            attached = attach(text, Path.cwd(), pasted=(piped,))
        elif result.then_send is not None:
            _print(f"perdure: {result.text}", sys.stderr)
            attached = Attached(result.then_send)
        else:
            if progress is not None:
                progress.close()
            _print(result.text, sys.stderr if result.level == "error" else sys.stdout)
            return 1 if result.level == "error" else 0
        code = _answer(surface, attached, progress, as_json=as_json)
        for line in refusals.lines():
            _print(f"perdure: {runnable(line)}", sys.stderr)
        return _UNREAD if writer.is_closed else code
    except KeyboardInterrupt:
        return 130
    finally:
        if progress is not None:
            progress.close()
        surface.close()
        surface.store.close()


def _answer(surface: ChatCommandContext, attached: Attached, progress: StatusRow | None, *, as_json: bool) -> int:
    agent = surface.agent
    if surface.needs_model:
        _print(f"perdure: {runnable(SCRIPT_ENDED)} With -q: `-m NAME`.", sys.stderr)
        return 1
    if problem := surface.unknown_model:
        surface.person.hear(TurnFinished("failed", "", error=problem, error_kind="bad_request"))
        _print(f"perdure: {runnable(problem)}. Nothing was stored.", sys.stderr)
        return 1
    warnings = (f"warning: {warning}" for warning in surface.warnings)
    for line in (*attached.lines, *surface.resume_notes, *embedded_lines(surface), *warnings):
        _print(f"perdure: {runnable(line)}", sys.stderr)
    if problem := _missing_key(surface):
        # Before anything is stored: a list full of questions that no model could get is of no use.
        surface.person.hear(TurnFinished("failed", "", error=problem, error_kind="auth"))
        _print(f"perdure: {runnable(problem)}. Nothing was stored.", sys.stderr)
        return 1
    if problem := agent.describe_oversize(attached.message):
        surface.person.hear(TurnFinished("failed", "", error=problem, error_kind="prompt_too_long"))
        _print(f"perdure: {runnable(problem.replace('with /model', 'with -m NAME'))}", sys.stderr)
        return 1
    if progress is not None:
        progress.start()
    try:
        result = agent.run_conversation(attached.message)
    finally:
        if progress is not None:
            progress.close()
        # A failed turn is listed, too, and needs a title.
        _name(surface, attached.text)
        surface.store_address()
    if result.outcome == "failed":
        # A question has no chat to choose another model in.
        problem = (result.error or "the turn failed").replace("with /model", "with -m NAME")
        _print(f"perdure: {runnable(problem)}", sys.stderr)
        return 1
    if result.missing_answer == "no_answer":
        _print(f"perdure: {NO_ANSWER.strip('()')}", sys.stderr)
        return 1
    if not as_json:
        _print_answer(result.final_response)
    return 130 if result.outcome == "interrupted" else 0


def _missing_key(surface: ChatCommandContext) -> str | None:
    """Return the message about the main model's key where no endpoint of the route can be called without one."""
    endpoints = surface.agent.deps.routes.route.endpoints
    if surface.settings.credentials.command or not all(is_own_host(e) and missing_key(e) for e in endpoints):
        return None
    return missing_key(endpoints[0])


def _name(surface: ChatCommandContext, text: str) -> None:
    conversations, session_id = surface.store.conversations, surface.session_id
    if session_id is not None and text and not conversations.get(session_id).title:
        conversations.set_title(session_id, title_of(text))


class _Refusals:
    """The calls of a question that were refused because there is no user to ask."""

    def __init__(self) -> None:
        self._calls: list[str] = []
        self._rules: dict[str, None] = {}

    def before(self, hear: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return a listener that notes refusals before it passes events on."""

        def listen(event: Event) -> None:
            self._take(event)
            hear(event)

        return listen

    def _take(self, event: Event) -> None:
        if isinstance(event, ToolFinished) and event.state == "refused" and UNATTENDED in event.result.text:
            self._calls.append(named_call(event.call))
            self._rules.update(dict.fromkeys(advance_rules(event.result.text)))

    def lines(self) -> Iterator[str]:
        """Yield what was refused, and how it is asked about or allowed."""
        if not self._calls:
            return
        more = f" and {len(self._calls) - 1} more" if self._calls[1:] else ""
        yield (
            f"refused, because -q asks nobody: {self._calls[0]}{more}. `perdure --resume last` goes on as a chat, which"
            " asks; --mode all allows everything without asking."
        )
        if rules := list(self._rules)[:_MOST_RULES]:
            yield f"To allow it by a rule of permissions.allow: {', '.join(rules)}"


def _print_notices(event: Event) -> None:
    match event:
        case Notice() | CompactionFinished() | RetryScheduled() if text := status_line(event):
            _print(f"perdure: {text}", sys.stderr)
        case Recovered(verdict=verdict, action=action):
            _print(f"perdure: {verdict.message} ({action})", sys.stderr)
        case _:
            pass


class _EventWriter:
    """Prints events as lines of JSON; stops the turn once the reader is gone, as with `| head`."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        # Whether there was anything to stop yet; tried again with the next event where there was not.
        self._stop = stop
        self._is_stopped = False
        self.is_closed = False

    def write(self, event: Event) -> None:
        if self.is_closed:
            self._is_stopped = self._is_stopped or self._stop()
            return
        line = {"event": type(event).__name__, **_plain(event)}
        try:
            print(json.dumps(line, ensure_ascii=sys.stdout.isatty(), default=str), flush=True)
        except BrokenPipeError:
            self.is_closed = True
            _discard_output()
            self._is_stopped = self._stop()


def _discard_output() -> None:
    """Redirect standard output so that later writes and flushes cause no error."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _print(text: str, stream: TextIO | None = None) -> None:
    """Print a model's text; control characters are removed for a terminal, not for a pipe or file."""
    stream = stream or sys.stdout
    text = strip_controls(text) if stream.isatty() else text
    print(fit(text, err=True) if stream is sys.stderr else text, file=stream)


def _print_answer(text: str) -> None:
    """Print a model's answer; in a terminal its prose is wrapped between words, and code stays as it is."""
    width = columns()
    if width is not None:
        text = "\n".join(
            row
            for line, is_prose in lines_of(strip_controls(text))
            for row in (wrap_words(line, width, rest=hanging_indent(line)) if is_prose and line.strip() else (line,))
        )
    _print(text)


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value
