"""The notebook of a conversation: what the model writes down for its later windows.

The tool `notes` changes it by heading. No version is stored apart from the log: the newest handoff has the notebook as
of a position of the log, and the calls of `notes` behind that position are the changes since. So the first message of a
window stays the same while the notebook is edited, each version can be read again, and an undo or a branch takes the
edits of the turns that it leaves out with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from perdure.context.handoff import Handoff, handoff_of
from perdure.context.record.decisions import content_words
from perdure.context.record.task import TaskState, UserRequest
from perdure.context.text import beginning, tidy
from perdure.core.datastructures import Interval
from perdure.core.errors import ToolError
from perdure.core.messages import Entry, Message, ToolCall, clean
from perdure.core.rules import find_call
from perdure.models.tokens import estimate_text
from perdure.redaction import redact

NotesAction = Literal["view", "add", "replace", "remove"]
_ACTIONS: tuple[NotesAction, ...] = ("view", "add", "replace", "remove")
NOTES_TOOL = "notes"
MAX_BYTES = 16_384
# On a small window it is smaller: so many bytes for each token of the window.
_BYTES_PER_TOKEN = 0.5
_DEFAULT_HEADING = "Notes"
_MOST_HEADING_CHARS = 80
_HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
# Lines that would end the notebook, or the handoff around it, are indented.
_BREAKS = re.compile(
    r"^(?=#{1,6} |\[(?:END OF )?PERDURE HANDOFF|Source: \d+ message|Attached: |\(as of m:)", re.MULTILINE
)
# A mark of what the user wrote into a handoff, which the model may not set.
_USER_MARK = re.compile(r"\[user\](?=\s*$)", re.MULTILINE)
_AS_OF = re.compile(r"\A\(as of m:(\d+)\b[^\n]*\n?")
_CANCELLED = " [cancelled by the user{}]"
# A line is about a request if it has this share of the words of the shorter of the two.
_SAME_TASK_SHARE = 0.6
_FEWEST_WORDS = 2


@dataclass(frozen=True, slots=True)
class Notebook:
    """Texts by heading, in the order in which they were begun."""

    sections: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(f"### {heading}\n{text}" for heading, text in self.sections)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.text.encode())

    def apply(self, action: NotesAction, *, heading: str = "", text: str = "", old: str = "") -> Notebook:
        """Return the notebook after one change. Raises ToolError for one that cannot be made."""
        name = self._name_of(heading)
        if action == "add":
            return self._add(name, _checked(text))
        if name not in dict(self.sections):
            raise ToolError(f"there is no heading {name!r}; {self._headings()}")
        if not old.strip():
            return self._with(name, _checked(text) if action == "replace" else "")
        section, passage = self._section(name), _as_note(old)
        if section.count(passage) != 1:
            times = "does not occur" if passage not in section else "occurs more than once"
            raise ToolError(f"{old[:60]!r} {times} under {name!r}; copy a passage of the notes exactly")
        if action == "replace":
            return self._with(name, section.replace(passage, _checked(text)))
        return self._with(name, "\n".join(filter(str.strip, section.replace(passage, "").split("\n"))))

    def shortened(self, max_bytes: int) -> str:
        """The text within a limit: the newest lines under each heading give way last."""
        if self.size <= max_bytes:
            return self.text
        share = max(80, max_bytes // max(1, len(self.sections)) - 40)
        return "\n".join(f"### {heading}\n{_newest_lines(text, share)}" for heading, text in self.sections)

    def _add(self, name: str, note: str) -> Notebook:
        section = self._section(name)
        # Twice is once: a view without a log may have an edit that its handoff includes.
        is_new = f"\n{note}\n" not in f"\n{section}\n"
        return self._with(name, "\n".join(filter(None, (section, note)))) if is_new else self

    def _section(self, name: str) -> str:
        return dict(self.sections).get(name, "")

    def _name_of(self, heading: str) -> str:
        """The heading as it is in the notebook, if it is there in any case."""
        name = redact(" ".join(clean(heading).lstrip("# ").split()))[:_MOST_HEADING_CHARS] or _DEFAULT_HEADING
        return next((n for n, _ in self.sections if n.casefold() == name.casefold()), name)

    def _headings(self) -> str:
        return (
            f"there are: {', '.join(name for name, _ in self.sections)}" if self.sections else "the notebook is empty"
        )

    def _with(self, name: str, text: str) -> Notebook:
        """The notebook with another text under a heading; none removes the heading."""
        texts = dict(self.sections)
        texts[name] = text
        return Notebook(tuple((heading, text) for heading, text in texts.items() if text.strip()))


def parse_notebook(text: str) -> Notebook:
    """Parse the section of a handoff; text before the first heading is put under the default one."""
    text = _AS_OF.sub("", text)
    heads = list(_HEADING.finditer(text))
    preface = text[: heads[0].start()] if heads else text
    ends = [*(head.start() for head in heads[1:]), *([len(text)] if heads else [])]
    sections = [(_DEFAULT_HEADING, preface.strip("\n"))]
    sections += [(head[1].strip(), text[head.end() : end].strip("\n")) for head, end in zip(heads, ends, strict=True)]
    return Notebook(tuple((name, body) for name, body in sections if body.strip()))


def limit_bytes(window_tokens: int) -> int:
    """The largest notebook for a window."""
    return min(MAX_BYTES, int(window_tokens * _BYTES_PER_TOKEN))


@dataclass(slots=True)
class NotebookLog:
    """The notebook at the end of a view, kept in step as messages are appended to it."""

    notebook: Notebook = Notebook()
    # Position of the last message that was read, and of the last one that the handoff's notebook includes.
    _newest_seq: int = -1
    _as_of_seq: int = -1
    # Calls of `notes` in the newest message that made any.
    _calls: tuple[ToolCall, ...] = ()

    @classmethod
    def read(cls, entries: Sequence[Entry]) -> NotebookLog:
        log = cls()
        log.extend(entries)
        return log

    @property
    def newest_seq(self) -> int:
        return self._newest_seq

    def extend(self, entries: Sequence[Entry]) -> None:
        """Read more messages; a view that begins again, as after a compaction or an undo, is read from its start."""
        if any(e.seq <= self._newest_seq for e in entries):
            self.notebook, self._newest_seq, self._as_of_seq, self._calls = Notebook(), -1, -1, ()
        handoffs = [e for e in entries if e.message.kind == "handoff"]
        if handoffs:
            self._open(max(handoffs, key=lambda e: e.seq))
        for entry in entries:
            if entry.seq > self._as_of_seq:
                self._add(entry.message)
            self._newest_seq = max(self._newest_seq, entry.seq)

    def _open(self, entry: Entry) -> None:
        handoff = handoff_of(entry.message)
        text = handoff.notebook if handoff is not None else ""
        stated = _AS_OF.match(text)
        self.notebook = parse_notebook(text)
        self._as_of_seq = int(stated[1]) if stated is not None else entry.seq

    def _add(self, message: Message) -> None:
        if message.role == "assistant":
            self._calls = tuple(c for call in message.tool_calls if (c := call.dispatched).name == NOTES_TOOL)
        elif message.role == "tool" and self._calls and _is_done(message):
            call = find_call(self._calls, message.tool_call_id)
            change = parse_change(call.parsed_arguments() or {}) if call is not None else None
            if change is not None and change.action != "view":
                self.notebook = change.apply_if_possible(self.notebook)


@dataclass(frozen=True, slots=True)
class NotesChange:
    """The arguments of one call of `notes`."""

    action: NotesAction
    heading: str = ""
    text: str = ""
    old: str = ""

    def apply(self, notebook: Notebook) -> Notebook:
        """Raises ToolError."""
        return notebook.apply(self.action, heading=self.heading, text=self.text, old=self.old)

    def apply_if_possible(self, notebook: Notebook) -> Notebook:
        """The notebook after the change; the same one where calls that ran side by side exclude each other."""
        try:
            return self.apply(notebook)
        except ToolError:
            return notebook


def parse_change(arguments: Mapping[str, Any]) -> NotesChange | None:
    """The change that a call asks for; None for arguments that are not those of `notes`."""
    action = next((a for a in _ACTIONS if a == arguments.get("action")), None)
    texts = {name: str(arguments.get(name) or "") for name in ("heading", "text", "old")}
    return NotesChange(action, **texts) if action is not None else None


_WINDOWS_GUIDE = (
    "This is window {number}. The earlier ones are closed, and nothing in them is lost: lcm_grep searches them,"
    " lcm_describe lists what is in one, lcm_expand opens an address."
)
# Of many windows the first and the newest are listed one by one.
_FIRST_LISTED, _LAST_LISTED = 2, 8
_TITLE_CHARS = 90
# Tokens of the list of windows, before it is written.
_LIST_TOKENS = 500


@dataclass(frozen=True, slots=True)
class WindowNotes:
    """What a handoff has besides sections and record where the model keeps a notebook."""

    notebook: Notebook
    # The newest message that the notebook includes; None where the messages are in no log.
    as_of_seq: int | None
    max_bytes: int
    # The log positions of each closed window, the oldest first; empty where the engine counts none.
    windows: tuple[Interval, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens that it adds to a handoff, roughly."""
        return estimate_text(self.notebook.shortened(self.max_bytes)) + _LIST_TOKENS

    def add_to(self, handoff: Handoff, state: TaskState) -> Handoff:
        """Return the handoff with the notebook and the list of windows."""
        cancelled = [r for r in state.requests if r.status == "cancelled"]
        return replace(handoff, notebook=self._write_notebook(cancelled), windows=self._list_windows(state))

    def _write_notebook(self, cancelled: Sequence[UserRequest]) -> str:
        """Write the notebook; lines about requests that the user cancelled are marked."""
        where = f"as of m:{self.as_of_seq}: " if self.as_of_seq is not None else ""
        empty = "" if self.notebook.sections else "; nothing was written down yet"
        guide = f"({where}the assistant's own notes, not the user's words; `notes` changes them{empty})"
        text = self.notebook.shortened(self.max_bytes)
        return "\n".join(filter(None, (guide, _mark_cancelled(text, cancelled))))

    def _list_windows(self, state: TaskState) -> str:
        if not self.windows:
            return ""
        lines = [_WINDOWS_GUIDE.format(number=len(self.windows) + 1)]
        skipped = range(_FIRST_LISTED, len(self.windows) - _LAST_LISTED)
        for n, (lo, hi) in enumerate(self.windows):
            if n not in skipped:
                lines.append(f"{n + 1}. m:{lo}-{hi}{_title(state, lo, hi)}")
            elif n == skipped.start:
                last = self.windows[skipped.stop - 1][1]
                lines.append(f"{n + 1}-{skipped.stop}. m:{lo}-{last} (lcm_describe lists them)")
        return "\n".join(lines)


def _title(state: TaskState, lo: int, hi: int) -> str:
    """What the user first asked for in a window, as its title."""
    request = next((r for r in state.requests if lo <= r.seq <= hi), None)
    words = beginning(tidy(redact(request.own_words or request.text)), _TITLE_CHARS) if request is not None else ""
    return f": “{words}”" if words else ""


def _mark_cancelled(text: str, cancelled: Sequence[UserRequest]) -> str:
    """Mark the lines that are about a cancelled request, so that no old plan brings it back."""
    requests = [(content_words(r.own_words or r.text), r) for r in cancelled]
    return "\n".join(_marked(line, requests) for line in text.split("\n"))


def _marked(line: str, requests: Sequence[tuple[frozenset[str], UserRequest]]) -> str:
    if line.startswith("### ") or "[cancelled by the user" in line:
        return line
    words = content_words(line)
    for request_words, request in requests:
        shared, fewest = words & request_words, min(len(words), len(request_words))
        if len(shared) >= _FEWEST_WORDS and len(shared) >= _SAME_TASK_SHARE * fewest:
            where = f", m:{request.closed_seq}" if (request.closed_seq or -1) >= 0 else ""
            return line + _CANCELLED.format(where)
    return line


def _checked(text: str) -> str:
    note = _as_note(text)
    if not note:
        raise ToolError("`text` is empty; say what to write down")
    return note


def _as_note(text: str) -> str:
    """The text as it may stand in the notebook: no credentials, no line that could pass for something else."""
    tidy = _USER_MARK.sub("(user)", redact(clean(text).replace("\r\n", "\n").strip("\n").rstrip()))
    return _BREAKS.sub("  ", tidy)


def _newest_lines(text: str, room: int) -> str:
    lines: list[str] = []
    for line in reversed(text.split("\n")):
        if (room := room - len(line.encode()) - 1) < 0:
            lines.append("[older lines are left out here; lcm_grep finds them]")
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def _is_done(result: Message) -> bool:
    if result.tool_state is not None:
        return result.tool_state == "completed"
    return not result.text.startswith("Error")
