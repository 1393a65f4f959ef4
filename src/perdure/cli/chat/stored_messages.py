"""Display stored messages: replay the last turns, copy an answer, export a conversation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from perdure.cli.chat.activity import failure_label, named_call
from perdure.cli.chat.clipboard import osc52
from perdure.cli.style import Style, fit_lines, safe
from perdure.commands.command import Command, CommandContext, CommandResult
from perdure.commands.format import count, when
from perdure.core.display import cut_off_label
from perdure.core.errors import NotFound, StoreUnavailable
from perdure.core.events import ToolFinished
from perdure.core.files import PRIVATE_MODE, replace_file
from perdure.core.messages import USER_SHELL, Entry, ImagePart, Message, TextPart, ToolCall
from perdure.core.rules import find_call
from perdure.store.records import Span, ToolRun
from perdure.store.store import SessionStore

_FORMATS = {"md": ".md", "markdown": ".md", "json": ".json"}


def copy_command(write_raw: Callable[[str], None] | None) -> Command:
    """Build the `/copy` command; `write_raw` sends escapes to the terminal, None if it supports none."""

    def run(surface: CommandContext, argument: str) -> CommandResult:
        if argument and not (argument.isdecimal() and int(argument) > 0):
            return CommandResult("/copy takes the number of an answer from the end, e.g. /copy 2", "error")
        text = _answer(surface, int(argument or 1))
        sequence = osc52(text)
        if write_raw is None:
            return CommandResult("This terminal cannot copy. /export writes the conversation to a file.", "error")
        if sequence is None:
            return CommandResult("The answer is too long for a terminal to copy. /export writes it to a file.", "error")
        write_raw(sequence)
        size = count(len(text), "character")
        return CommandResult(f"Asked the terminal to copy the answer ({size}); a few terminals do not allow it.")

    return Command("copy", "/copy [n]", "copy the last (or nth last) answer to the clipboard", run)


def export(surface: CommandContext, argument: str) -> CommandResult:
    """Write the conversation to a file: Markdown or JSON, by the word or the ending that is given."""
    session_id = surface.agent.session_id
    if session_id is None:
        raise NotFound("Nothing has been said yet.")
    conversation = surface.store.conversations.get(session_id, visibility=surface.visibility)
    word = argument.strip()
    if word.lower() in _FORMATS or not word:
        path = Path.cwd() / f"perdure-{conversation.id}{_FORMATS[word.lower() or 'md']}"
    else:
        path = Path.cwd() / Path(word.strip("\"'")).expanduser()
    if path.suffix.lower() not in (".md", ".json"):
        return CommandResult("/export writes Markdown (.md) or JSON (.json): name a file that ends so", "error")
    if path.exists() and word and word.lower() not in _FORMATS:
        return CommandResult(f"{path} is there already; name another file", "error")
    entries = surface.store.log.originals(session_id)
    if path.suffix.lower() == ".json":
        messages = surface.store.transfer.export_messages(session_id)
        text = json.dumps(messages, ensure_ascii=False, indent=1) + "\n"
    else:
        text = "\n".join(markdown_lines(conversation.title or conversation.id, entries)) + "\n"
    try:
        replace_file(path, text.encode("utf-8", "replace"), mode=PRIVATE_MODE)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {path}: {error.strerror}") from None
    return CommandResult(f"Wrote {count(len(entries), 'message')} to {path}")


EXPORT = Command("export", "/export [md|json|file]", "write this conversation to a file", export)


def markdown_lines(title: str, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield a conversation as Markdown: what was written as it is, tool calls and results in code blocks."""
    yield f"# {' '.join(title.split())}"
    for entry in entries:
        message = entry.message
        if message.is_real_user:
            yield f"\n## You · {when(entry.created_at_ms).strip()}\n"
        elif message.role == "assistant" and (message.text.strip() or message.tool_calls):
            yield "\n## Agent\n"
        elif message.role == "tool":
            yield f"\nResult of `{message.name or 'a tool'}`:\n"
            yield from _code_block(message.text)
            continue
        else:
            continue
        for part in message.parts:
            if isinstance(part, TextPart):
                yield part.text
            elif isinstance(part, ImagePart):
                yield "*[an image]*"
        if label := cut_off_label(message):
            yield f"\n*[{label}]*"
        for call in (made.dispatched for made in message.tool_calls):
            yield f"\nCall of `{call.name}`:\n"
            yield from _code_block(call.arguments, "json")


def _code_block(text: str, language: str = "") -> Iterator[str]:
    """Yield a code block whose fence is longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    yield f"{fence}{language}"
    yield text.rstrip("\n")
    yield fence


def _answer(surface: CommandContext, back: int) -> str:
    """Return the text of the nth last answer. Raises NotFound."""
    session_id = surface.agent.session_id
    entries = surface.store.log.originals(session_id) if session_id is not None else []
    answers = [e.message.text for e in entries if e.message.role == "assistant" and e.message.text.strip()]
    if not 0 < back <= len(answers):
        raise NotFound(f"There are {count(len(answers), 'answer')} in this conversation so far.")
    return answers[-back].strip()


# Messages read from the log, and lines of one message: enough to know where one was.
_MAX_MESSAGES = 60
# Among so many of the newest messages the last tool results are looked for.
_MAX_SEARCHED = 3_000
_MAX_TURNS = 6
_MAX_LINES = 24
_COMPACTED = "· compacted here: /handoff shows what the model reads of it"
# A handoff newer than the one in view, if any is.
_UNDONE = "· compacted here, and taken back with /undo compaction"


def replay_text(store: SessionStore, session_id: str, *, width: int, ink: Style) -> str:
    """Return the last turns of a conversation, formatted for a terminal; "" if it has none yet."""
    last = store.conversations.get(session_id).last_seq
    if not last:
        return ""
    span = Span(max(1, last - _MAX_MESSAGES + 1), last)
    entries = _last_turns(store.log.read(session_id, span))
    results = _Results(entries, store.timeline.tool_runs(session_id, span))
    in_view = store.history(store.conversations.get(session_id).tip_session_id).entries
    newest = max((e.seq for e in in_view if e.message.kind == "handoff"), default=0)
    parts: list[str] = []
    for n, entry in enumerate(entries):
        if entry.message.kind == "handoff":
            line = f"{ink.dim(_UNDONE if entry.seq > newest else _COMPACTED)}\n"
            parts += [line] if parts[-1:] != [line] else []  # two in a row with nothing between them
        else:
            parts += _render_entry(entry, results.after(n), width, ink)
    earlier = entries[0].seq - 1 if entries else last
    if earlier > 0:
        how = f"/expand m:1-{earlier} opens them" if earlier > 1 else "/expand m:1 opens it"
        note = f"… {count(earlier, 'earlier message')}: {how}"
        parts.insert(0, f"{ink.dim(note)}\n")
    return "".join(parts) + "\n"


def _last_turns(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the last turns, from the beginning of the first of them where it was read."""
    begins = [n for n, entry in enumerate(entries) if entry.message.is_real_user]
    return entries[begins[-_MAX_TURNS:][0] :] if begins else entries


class _Results:
    """The tool results of a conversation, with the recorded state and exit code of each."""

    def __init__(self, entries: Sequence[Entry], runs: Mapping[tuple[int, str], ToolRun]) -> None:
        self._entries = entries
        self._runs = runs

    def after(self, index: int) -> list[tuple[Entry, ToolRun]]:
        """Return the results that directly follow message `index`, if it has tool calls."""
        results = takewhile(lambda entry: entry.message.role == "tool", self._entries[index + 1 :])
        return [(e, self._runs.get((e.created_at_ms, e.message.tool_call_id or ""), ToolRun())) for e in results]


def last_results(store: SessionStore, session_id: str) -> list[ToolFinished]:
    """Return the newest tool results of a conversation as the events they were, oldest first, without durations."""
    last = store.conversations.get(session_id).last_seq
    for end in range(last, max(0, last - _MAX_SEARCHED), -_MAX_MESSAGES):
        span = Span(max(1, end - _MAX_MESSAGES + 1), end)
        entries = store.log.read(session_id, span)
        results = _Results(entries, store.timeline.tool_runs(session_id, span))
        calls = [
            _make_tool_finished(call.dispatched, entry.message, run)
            for n, made in enumerate(entries)
            for entry, run in results.after(n)
            if (call := find_call(made.message.tool_calls, entry.message.tool_call_id)) is not None
        ]
        if calls:
            return calls
    return []


def _make_tool_finished(call: ToolCall, result: Message, run: ToolRun) -> ToolFinished:
    state = result.tool_state or "completed"
    return ToolFinished(call, result, run.seconds or 0.0, state != "completed", state, run.exit_code)


def _render_entry(entry: Entry, results: Sequence[tuple[Entry, ToolRun]], width: int, ink: Style) -> Iterator[str]:
    """Yield the lines of a replayed message: its text, and how its calls ended; results and notes are left out."""
    message = entry.message
    if message.is_real_user:
        first, *rest = _shorten(list(fit_lines(safe(_user_text(message)).strip().split("\n"), width - 2)), entry.seq)
        yield f"{ink.bold('›')} {first}\n" + "".join(f"  {line}\n" for line in rest)
    elif message.role == "assistant":
        if message.text.strip():
            yield _render_markdown(message.text, entry.seq, width, ink)
        if label := cut_off_label(message):
            yield f"{ink.dim(label)}\n\n"
        yield from (_call_line(call, results, ink) for call in message.tool_calls)


def _call_line(call: ToolCall, results: Sequence[tuple[Entry, ToolRun]], ink: Style) -> str:
    """Return the line of a finished call; refused, failed and stopped ones are marked."""
    state: str | None = "interrupted"
    exit_code: int | None = None
    for entry, run in results:
        if find_call((call,), entry.message.tool_call_id) is not None:
            state, exit_code = entry.message.tool_state or run.state, run.exit_code
            break
    if state not in ("failed", "refused", "interrupted"):
        return f"{ink.good('●')} {named_call(call)}\n"
    mark = ink.warn("■") if state == "interrupted" else ink.bad("✗")
    return f"{mark} {named_call(call)} {ink.dim(f'· {failure_label(state, exit_code)}')}\n"


def _user_text(message: Message) -> str:
    """Return the text of a user message, and the number of its attachments, shell commands not counted."""
    parts = [p for p in message.parts if not (isinstance(p, TextPart) and p.text.startswith(USER_SHELL))]
    text = next((part.text for part in parts if isinstance(part, TextPart)), "")
    return f"{text} [{count(len(parts) - 1, 'attachment')}]" if len(parts) > 1 else text


def _render_markdown(markdown: str, seq: int, width: int, ink: Style) -> str:
    from perdure.cli.chat.markdown_render import (
        render_markdown,  # rich is slow to import: not before there is something to show
    )

    lines = render_markdown(markdown, width=width, is_color=ink.is_color).rstrip("\n").split("\n")
    return "\n".join(_shorten(lines, seq)) + "\n\n"


def _shorten(lines: list[str], seq: int) -> list[str]:
    """Return the lines of a message; the middle of a long one is left out, with the command that shows it."""
    if len(lines) <= _MAX_LINES + 1:
        return lines
    head, tail = 2 * _MAX_LINES // 3, _MAX_LINES // 3
    note = f"… {count(len(lines) - head - tail, 'more line')}: /expand m:{seq} opens it"
    return [*lines[:head], note, *lines[-tail:]]
