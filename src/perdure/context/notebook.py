"""The notebook of a conversation: what the model writes down for its later windows.

The tool `notes` changes it by heading. No version is stored apart from the log: the newest handoff has the notebook as
of a position of the log, and the calls of `notes` behind that position are the changes since. So the first message of a
window stays the same while the notebook is edited, each version can be read again, and an undo or a branch takes the
edits of the turns that it leaves out with it.

On a small window the handoff shows a part of a large notebook. The message then has the whole one in its `extra`, which
no model is sent: changes apply to that, and a larger window shows it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from perdure.context.handoff import Handoff, handoff_of
from perdure.context.text import first_words, tidy
from perdure.core.datastructures import Interval
from perdure.core.errors import ToolError
from perdure.core.messages import USE_TOOL, Entry, Message, ToolCall, clean
from perdure.core.rules import find_call
from perdure.models.tokens import estimate_text
from perdure.redaction import redact

if TYPE_CHECKING:
    from perdure.context.task_state.requests import Withdrawal
    from perdure.context.task_state.state import TaskState

NotesAction = Literal["view", "add", "replace", "remove"]
_ACTIONS: tuple[NotesAction, ...] = ("view", "add", "replace", "remove")
NOTES_TOOL = "notes"
# The tools by which notes are written.
_NOTES_CALLS = (NOTES_TOOL, USE_TOOL)
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
_USER_MARK = re.compile(r"\[user\]", re.IGNORECASE)
_AS_OF = re.compile(r"\A\(as of m:(\d+)\b[^\n]*\n?")
_CANCELLED = " [cancelled by the user{}]"
_CANCELLED_MARK = re.compile(r" \[cancelled by the user(?:, m:(\d+))?\]$")
# In every result of a change, so that calls of another tool named `notes` are not read as changes of the notebook.
_DONE = "The notebook has "
# Key in the `extra` of a handoff message that shows a part of the notebook: the whole one. Never sent to a model.
WHOLE_NOTEBOOK = "notebook"
# Bytes that a heading and a line are shortened to at least, before others are left out for them.
_LEAST_SECTION_BYTES = 120
_LEAST_LINE_BYTES = 40
_LINE_BYTES = 200
_LEFT_OUT = "[older notes are left out here; {} finds them]"
_SHORTENED = " …"


@dataclass(frozen=True, slots=True)
class Notebook:
    """The model's notes: texts by heading, in the order in which they were begun."""

    sections: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(f"### {heading}\n{text}" for heading, text in self.sections)

    @property
    def size(self) -> int:
        """The size of the notebook in bytes."""
        return len(self.text.encode())

    def apply(self, action: NotesAction, *, heading: str = "", text: str = "", old: str = "") -> Notebook:
        """Return the notebook after one change. Raises ToolError for one that cannot be made."""
        name = self._name_of(heading)
        if action == "add":
            return self._add(name, _require_note(text))
        if name not in dict(self.sections):
            raise ToolError(f"there is no heading {name!r}; {self._headings()}")
        if not old.strip():
            return self._with(name, _require_note(text) if action == "replace" else "")
        section, passage = self._section(name), _as_note(old)
        if section.count(passage) != 1:
            times = "does not occur" if passage not in section else "occurs more than once"
            raise ToolError(f"{old[:60]!r} {times} under {name!r}; copy a passage of the notes exactly")
        if action == "replace":
            return self._with(name, section.replace(passage, _require_note(text)))
        return self._with(name, "\n".join(filter(str.strip, section.replace(passage, "").split("\n"))))

    def shorten(self, max_bytes: int, search_tool: str = "lcm_grep") -> str:
        """Return the notebook's text within a byte limit; the newest headings and lines are kept longest."""
        if self.size <= max_bytes:
            return self.text
        notice = _LEFT_OUT.format(search_tool)
        sections = list(self.sections)
        while sum(map(_least_bytes, sections)) + len(notice) > max_bytes and len(sections) > 1:
            del sections[0]
        lines = [notice] if len(sections) < len(self.sections) else []
        fixed = sum(len(f"### {heading}\n\n".encode()) for heading, _ in sections) + sum(len(n) + 1 for n in lines)
        rooms = _fair_shares([len(text.encode()) for _, text in sections], max_bytes - fixed)
        for (heading, text), room in zip(sections, rooms, strict=True):
            lines.append(f"### {heading}\n{_newest_lines(text, room, notice)}")
        return _cut_bytes("\n".join(lines), max_bytes)

    def _add(self, name: str, note: str) -> Notebook:
        section = self._section(name)
        # Twice is once: a view without a log may have an edit that its handoff includes.
        is_new = f"\n{note}\n" not in f"\n{section}\n"
        return self._with(name, "\n".join(filter(None, (section, note)))) if is_new else self

    def _section(self, name: str) -> str:
        return dict(self.sections).get(name, "")

    def _name_of(self, heading: str) -> str:
        """Return the existing heading that equals this one ignoring case, else the heading itself."""
        name = redact(" ".join(clean(heading).lstrip("# ").split()))[:_MOST_HEADING_CHARS] or _DEFAULT_HEADING
        return next((n for n, _ in self.sections if n.casefold() == name.casefold()), name)

    def _headings(self) -> str:
        return (
            f"there are: {', '.join(name for name, _ in self.sections)}" if self.sections else "the notebook is empty"
        )

    def _with(self, name: str, text: str) -> Notebook:
        """Return a notebook with another text under a heading; an empty text removes the heading."""
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
    """Return the maximum size of a notebook for a window."""
    return min(MAX_BYTES, int(window_tokens * _BYTES_PER_TOKEN))


@dataclass(slots=True)
class NotebookLog:
    """Keeps the current notebook of a view up to date as messages are appended."""

    notebook: Notebook = Notebook()
    # Position of the last message that was read, and of the last one that the handoff's notebook includes.
    _newest_seq: int = -1
    _as_of_seq: int = -1
    # Calls of `notes` in the newest message that made any.
    _calls: tuple[ToolCall, ...] = ()

    @classmethod
    def read(cls, entries: Sequence[Entry]) -> NotebookLog:
        log = cls()
        log._read(entries)
        return log

    @property
    def newest_seq(self) -> int:
        return self._newest_seq

    def extend(self, entries: Sequence[Entry]) -> None:
        """Read more messages; a view that begins again, as after a compaction or an undo, is read from its start."""
        if any(e.seq <= self._newest_seq for e in entries):
            self.notebook, self._newest_seq, self._as_of_seq, self._calls = Notebook(), -1, -1, ()
        self._read(entries)

    def _read(self, entries: Sequence[Entry]) -> None:
        handoffs = [e for e in entries if e.message.kind == "handoff"]
        if handoffs:
            self._open(max(handoffs, key=lambda e: e.seq))
        self._newest_seq = max(self._newest_seq, max((e.seq for e in entries), default=-1))
        # A list, which is searched in half the time of a generator: almost no history has such a call.
        if self._calls or [c for e in entries for c in e.message.tool_calls if c.name in _NOTES_CALLS]:
            for entry in entries:
                if entry.seq > self._as_of_seq:
                    self._add(entry.message)

    def _open(self, entry: Entry) -> None:
        handoff = handoff_of(entry.message)
        text = handoff.notebook if handoff is not None else ""
        stated = _AS_OF.match(text)
        self.notebook = parse_notebook(_whole_text(entry.message, text))
        self._as_of_seq = int(stated[1]) if stated is not None else entry.seq

    def _add(self, message: Message) -> None:
        if message.role == "assistant":
            calls = (call.dispatched for call in message.tool_calls)
            self._calls = tuple(c for c in calls if c.name == NOTES_TOOL and not c.is_for_client)
        elif message.role == "tool" and self._calls and _is_done(message):
            call = find_call(self._calls, message.tool_call_id)
            change = parse_change(call.parsed_arguments() or {}) if call is not None else None
            after = change.apply_if_possible(self.notebook) if change is not None else self.notebook
            # The tool refuses what exceeds the limit; a history from elsewhere may have it.
            if after.size <= max(MAX_BYTES, self.notebook.size):
                self.notebook = after


@dataclass(frozen=True, slots=True)
class NotesChange:
    """The arguments of one call of `notes`."""

    action: NotesAction
    heading: str = ""
    text: str = ""
    old: str = ""

    def apply(self, notebook: Notebook) -> Notebook:
        """Return the notebook after the change. Raises ToolError if it cannot be made."""
        return notebook.apply(self.action, heading=self.heading, text=self.text, old=self.old)

    def apply_if_possible(self, notebook: Notebook) -> Notebook:
        """Return the notebook after the change; unchanged if the call only reads or cannot be applied."""
        try:
            return self.apply(notebook) if self.action != "view" else notebook
        except ToolError:
            return notebook


def parse_change(arguments: Mapping[str, Any]) -> NotesChange | None:
    """Parse the arguments of a `notes` call; None if they are invalid."""
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
    """The notebook and the list of windows, as a handoff shows them besides its sections and record."""

    notebook: Notebook
    # The newest message that the notebook includes; None where the messages are in no log.
    as_of_seq: int | None
    max_bytes: int
    # The log positions of each closed window, the oldest first; empty where the engine counts none.
    windows: tuple[Interval, ...] = ()
    # Whether the model has the tool `notes`, and the tool that finds what is not shown.
    is_editable: bool = True
    search_tool: str = "lcm_grep"

    @property
    def tokens(self) -> int:
        """Approximate tokens that the notebook adds to a handoff."""
        return estimate_text(self.notebook.shorten(self.max_bytes)) + _LIST_TOKENS

    def add_to(self, handoff: Handoff, state: TaskState) -> Handoff:
        """Return the handoff with the notebook and the list of windows."""
        marked = self._mark_notebook(state)
        return replace(handoff, notebook=self._write_notebook(marked), windows=self._list_windows(state))

    def extra(self, handoff: Handoff, state: TaskState) -> Mapping[str, Any]:
        """Return the fields stored with the handoff's message: the whole notebook, where it shows a part."""
        marked = self._mark_notebook(state)
        if self.as_of_seq is None or marked.size <= self.max_bytes:
            return {}
        return {WHOLE_NOTEBOOK: {"text": marked.text, "shown": _AS_OF.sub("", handoff.notebook)}}

    def _mark_notebook(self, state: TaskState) -> Notebook:
        """Return the notebook with marks after lines about requests that the user cancelled."""
        from perdure.context.task_state.requests import find_withdrawals  # slow to import; only a compaction needs it

        withdrawals = find_withdrawals(state.requests, state.stops)
        first_seq = state.requests[0].seq if state.requests and self.as_of_seq is not None else None
        sections = ((h, _mark_cancelled(text, withdrawals, first_seq)) for h, text in self.notebook.sections)
        return Notebook(tuple(sections))

    def _write_notebook(self, notebook: Notebook) -> str:
        where = f"as of m:{self.as_of_seq}: " if self.as_of_seq is not None else ""
        empty = "" if notebook.sections else "; nothing was written down yet"
        use = "; `notes` changes them" if self.is_editable else ""
        guide = f"({where}the assistant's own notes, not the user's words{use}{empty})"
        return "\n".join(filter(None, (guide, notebook.shorten(self.max_bytes, self.search_tool))))

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
    """Return the user's first request in a window, which serves as its title."""
    request = next((r for r in state.requests if lo <= r.seq <= hi), None)
    words = first_words(tidy(redact(request.own_words or request.text)), _TITLE_CHARS) if request is not None else ""
    return f": “{words}”" if words else ""


def _mark_cancelled(text: str, withdrawals: Sequence[Withdrawal], first_seq: int | None) -> str:
    """Mark the lines that are about something the user took back, so that no old plan brings it back.

    A mark of a message at or behind `first_seq` is set anew: the user may have requested the same again.
    """
    return "\n".join(_mark_line(line, withdrawals, first_seq) for line in text.split("\n"))


def _mark_line(line: str, withdrawals: Sequence[Withdrawal], first_seq: int | None) -> str:
    if (mark := _CANCELLED_MARK.search(line)) is not None:
        if first_seq is None or not mark[1] or int(mark[1]) < first_seq:
            return line
        line = line[: mark.start()]
    withdrawal = next((w for w in withdrawals if w.covers(line)), None)
    if withdrawal is None:
        return line
    return line + _CANCELLED.format(f", m:{withdrawal.seq}" if withdrawal.seq >= 0 else "")


def _require_note(text: str) -> str:
    note = _as_note(text)
    if not note:
        raise ToolError("`text` is empty; say what to write down")
    return note


def _as_note(text: str) -> str:
    """Return text that is safe in the notebook: without credentials, and without lines that look like structure."""
    tidy = _USER_MARK.sub("(user)", redact(clean(text).replace("\r\n", "\n").strip("\n").rstrip()))
    return _BREAKS.sub("  ", tidy)


def _least_bytes(section: tuple[str, str]) -> int:
    heading, text = section
    return len(f"### {heading}\n\n".encode()) + min(len(text.encode()), _LEAST_SECTION_BYTES)


def _fair_shares(sizes: Sequence[int], room: int) -> list[int]:
    """Divide the room: each gets its size or an equal share; what small ones leave goes to the others."""
    shares = [0] * len(sizes)
    for left, (size, n) in zip(
        range(len(sizes), 0, -1), sorted((size, n) for n, size in enumerate(sizes)), strict=True
    ):
        shares[n] = min(size, max(0, room) // left)
        room -= shares[n]
    return shares


def _newest_lines(text: str, room: int, notice: str) -> str:
    """Return the newest lines within a number of bytes; long ones are shortened to use the room."""
    if len(text.encode()) <= room:
        return text
    lines = text.split("\n")
    room -= len(notice) + 1
    most, size, first = max(_LINE_BYTES, room // 4), 0, len(lines)
    while first and (size := size + min(most, len(lines[first - 1].encode())) + 1) <= room:
        first -= 1
    if first and (room - _bytes_of(lines[first:], most) >= _LEAST_LINE_BYTES or first == len(lines)):
        first -= 1
    if not first:  # only long lines are over the limit
        room += len(notice) + 1
    newest = lines[first:]
    rooms = _fair_shares([len(line.encode()) for line in newest], room - len(newest) + 1)
    shortened = [_shortened_line(line, share) for line, share in zip(newest, rooms, strict=True)]
    return "\n".join([notice, *shortened] if first else shortened)


def _bytes_of(lines: Sequence[str], most: int) -> int:
    return sum(min(most, len(line.encode())) + 1 for line in lines)


def _shortened_line(line: str, room: int) -> str:
    """Return the beginning of a line; a mark at its end is kept."""
    if len(line.encode()) <= room:
        return line
    mark = match[0] if (match := _CANCELLED_MARK.search(line)) is not None else ""
    beginning_room = room - len(f"{_SHORTENED}{mark}".encode())
    return (
        f"{_cut_bytes(line, beginning_room).rstrip()}{_SHORTENED}{mark}"
        if beginning_room > 0
        else _cut_bytes(line, room)
    )


def _cut_bytes(text: str, room: int) -> str:
    raw = text.encode()
    return text if len(raw) <= room else raw[: max(0, room)].decode(errors="ignore")


def _is_done(result: Message) -> bool:
    is_done = not result.text.startswith("Error") if result.tool_state is None else result.tool_state == "completed"
    return is_done and _DONE in result.text


def describe_change(change: NotesChange, after: Notebook, max_bytes: int) -> str:
    """Return the tool result for a change of the notebook: its new size against the limit."""
    size = f"{after.size:,} of {max_bytes:,} bytes"
    if after.size > max_bytes:
        size = f"more than the {max_bytes:,} bytes that this window shows; a larger window shows it whole"
    name = " ".join(change.heading.split())
    cut = f" The heading was cut to {_MOST_HEADING_CHARS} characters." if len(name) > _MOST_HEADING_CHARS else ""
    return f"Noted. {_DONE}{size}.{cut}"


def show_notebook(notebook: Notebook, max_bytes: int) -> str:
    """Return the notebook within the limit of the window, with its size."""
    if notebook.size <= max_bytes:
        return f"{notebook.text or 'The notebook is empty.'}\n[{notebook.size:,} of {max_bytes:,} bytes]"
    excerpt = notebook.shorten(max_bytes)
    rest = f"{notebook.size - len(excerpt.encode()):,} more are not shown on this window, and are not lost"
    return f"{excerpt}\n[{len(excerpt.encode()):,} of {max_bytes:,} bytes; {rest}]"


def _whole_text(message: Message, visible: str) -> str:
    """Return the complete notebook stored with a handoff; the visible text if the user has edited that."""
    stored = message.extra.get(WHOLE_NOTEBOOK)
    if not isinstance(stored, Mapping) or stored.get("shown") != _AS_OF.sub("", visible):
        return visible
    return str(stored.get("text", ""))
