"""The context engine `windows`: a notebook that the model keeps, fresh windows, and the log behind them.

Where the compressor retells a long history, this engine closes it. A window ends when the model asks for a fresh one
(`new_context`) or when it is full. The next one begins with a handoff that code draws from the log without a model: the
notebook, the open task with what the user laid down, a short record, exact values, and the list of earlier windows.
Then come the newest request and what the model has not read yet. Everything else is one search away (`lcm_grep`).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.context.compaction_input import CompactionHistory
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import Reason
from perdure.context.handoff_writer import HandoffWriter, WriteResult
from perdure.context.notebook import (
    MAX_BYTES,
    NOTES_TOOL,
    Notebook,
    NotebookLog,
    NotesChange,
    WindowNotes,
    describe_change,
    limit_bytes,
    parse_change,
    show_notebook,
)
from perdure.context.retention import Boundaries, Limits
from perdure.core.errors import ToolError
from perdure.core.messages import Entry, Message
from perdure.models.tokens import estimate_text

NEW_CONTEXT_TOOL = "new_context"
# A fresh window keeps less of the old one's end than a compaction does.
_TAIL_PART = 0.25
_LAST_MESSAGES = 4
# What the notebook leaves of the record, at least.
_LEAST_RECORD_PART = 0.5

_NOTES_SCHEMA = {
    "name": NOTES_TOOL,
    "description": (
        f"Your notebook of at most {MAX_BYTES // 1024} KB, by heading. It is in view in every window; all else leaves"
        " the view when a window ends. Write down decisions, results and exact values that later work needs."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["view", "add", "replace", "remove"]},
            "heading": {"type": "string", "description": "the heading it is under; a new one is begun by add"},
            "text": {"type": "string", "description": "for add and replace: the new text"},
            "old": {
                "type": "string",
                "description": "for replace and remove: an exact passage; without it, all under the heading",
            },
        },
        "required": ["action"],
        "additionalProperties": False,
    },
}
_NEW_CONTEXT_SCHEMA = {
    "name": NEW_CONTEXT_TOOL,
    "description": (
        "Starts a fresh window before your next step, with the notebook and the newest request. Use it between two"
        " pieces of work, after noting what the next one needs. The earlier windows stay searchable."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "reason": {"type": "string", "description": "what is finished"},
            "next": {"type": "string", "description": "what comes next; you read it in the fresh window"},
        },
        "required": ["reason", "next"],
        "additionalProperties": False,
    },
}


class WindowEngine(ContextCompressor):
    """Context engine that starts fresh windows instead of summarizing; the model keeps a notebook across them."""

    name = "windows"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._notebook = NotebookLog()
        # Changes by calls whose results are not in the log yet.
        self._unlogged: list[NotesChange] = []
        self._notebook_lock = threading.Lock()
        # Position of the newest handoff, and of the newest message behind it that is more than a call for a window.
        self._handoff_seq = self._newest_work_seq = -1

    # -- the notebook ------------------------------------------------------------------------------------------------

    def observe(self, entries: Sequence[Entry]) -> None:
        super().observe(entries)
        with self._notebook_lock:
            self._notebook.extend(entries)
            self._unlogged.clear()
            self._handoff_seq = max([self._handoff_seq, *(e.seq for e in entries if e.message.kind == "handoff")])
            self._newest_work_seq = max([self._newest_work_seq, *(e.seq for e in entries if _is_work(e.message))])

    @property
    def notebook(self) -> Notebook:
        """The current notebook, with changes of calls whose results are not stored yet."""
        notebook = self._notebook.notebook
        for change in self._unlogged:
            notebook = change.apply_if_possible(notebook)
        return notebook

    def get_tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        return [{"type": "function", "function": schema} for schema in (_NOTES_SCHEMA, _NEW_CONTEXT_SCHEMA)]

    def ordered_tools(self) -> Collection[str]:
        return (NOTES_TOOL,)

    def handle_tool_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name == NOTES_TOOL:
            return self._handle_notes(arguments)
        if name == NEW_CONTEXT_TOOL:
            return self._start_window()
        raise ToolError(f"context engine {self.name!r} has no tool {name!r}")

    def _handle_notes(self, arguments: Mapping[str, Any]) -> str:
        change = parse_change(arguments)
        if change is None:
            raise ToolError("`action` is one of view, add, replace, remove")
        most = limit_bytes(self.budgets.window)
        with self._notebook_lock:
            before = self.notebook
            if change.action == "view":
                return show_notebook(before, most)
            after = change.apply(before)
            # What was noted on a larger window counts as nothing here: a part of it is shown.
            limit = most if before.size <= most else MAX_BYTES
            if after.size > limit and after.size > before.size:
                raise ToolError(
                    f"the notebook may have {limit:,} bytes, and this would make {after.size:,}; shorten or remove"
                    " something first"
                )
            self._unlogged.append(change)
        return describe_change(change, after, most)

    def _start_window(self) -> str:
        request = self._services.request_compaction
        if request is None:
            raise ToolError("no fresh window can be started here: the history is not kept in sessions")
        if self._newest_work_seq < self._handoff_seq:
            return "Nothing was added since this window began, so no other one is started. Go on with the task."
        request(None)
        return (
            "A fresh window begins before your next step, if there is anything to leave behind. It has your notebook,"
            " the newest request and this call."
        )

    # -- closing a window --------------------------------------------------------------------------------------------

    def _limits(self, history: CompactionHistory, tail_tokens: int | None) -> Limits:
        base = super()._limits(history, tail_tokens)
        return replace(
            base,
            tail_tokens=int(base.tail_tokens * _TAIL_PART),
            head_tokens=0,
            room_tokens=base.room_tokens - self._read_notes(history).tokens,
            protect_last_n=min(base.protect_last_n, _LAST_MESSAGES),
            protect_first_n=0,
        )

    def _notes(self, history: CompactionHistory) -> WindowNotes:
        notes = self._read_notes(history)
        return replace(notes, windows=self._closed_windows(notes.as_of_seq))

    def _read_notes(self, history: CompactionHistory) -> WindowNotes:
        log = NotebookLog.read(history.entries)
        as_of_seq = log.newest_seq if history.is_logged and history.entries else None
        limit = limit_bytes(self.budgets.window)
        return WindowNotes(log.notebook, as_of_seq, limit, is_editable=self._services.has_tools())

    def _closed_windows(self, newest_seq: int | None) -> tuple[tuple[int, int], ...]:
        """Return the log positions of the closed windows, including the one that ends at `newest_seq`."""
        if self._services.windows is None or newest_seq is None:
            return ()
        *closed, (lo, _) = self._services.windows()
        return (*closed, (lo, max(lo, newest_seq)))

    def _writer(self, reason: Reason, history: CompactionHistory, focus_topic: str | None) -> HandoffWriter:
        writer = super()._writer(reason, history, focus_topic)
        note_tokens = estimate_text(writer.notes.notebook.text) if writer.notes is not None else 0
        record_tokens = writer.budgets.record_tokens
        budgets = replace(
            writer.budgets, record_tokens=max(int(record_tokens * _LEAST_RECORD_PART), record_tokens - note_tokens)
        )
        services = writer.services
        if focus_topic is None:  # only a topic that was asked for is worth a model's summary
            services = replace(services, summarize=None, summarize_main=None)
        return replace(writer, budgets=budgets, services=services)

    def _rewrite_source(
        self, history: CompactionHistory, boundaries: Boundaries, focus_topic: str | None
    ) -> tuple[CompactionHistory, Boundaries] | None:
        return super()._rewrite_source(history, boundaries, focus_topic) if focus_topic is not None else None

    def _describe(self, written: WriteResult, after: int, unread: int) -> str:
        return f"A fresh window begins with the notebook. {super()._describe(written, after, unread)}"


def _is_work(message: Message) -> bool:
    """Whether a message is more than a call that asks for a fresh window, or its result."""
    if message.kind == "handoff":
        return False
    if message.role == "tool":
        return message.name != NEW_CONTEXT_TOOL
    return not message.tool_calls or any(call.name != NEW_CONTEXT_TOOL for call in message.tool_calls)
