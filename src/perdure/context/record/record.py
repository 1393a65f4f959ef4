"""Draw the record of a stretch of the log: what was said and done, in order, within a budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from perdure.context.record.call_text import common_root
from perdure.context.record.calls import describe_call, is_only_counted
from perdure.context.record.dialogue import Dialogue, dialogue_share
from perdure.context.record.drawing import Drawing
from perdure.context.record.entries import is_redacted, redact_entries, redacted
from perdure.context.record.messages import statement_of
from perdure.context.record.outline import CallLines, Outline
from perdure.context.record.pages import (
    QuotedDocument,
    find_documents,
    find_instructions,
    is_research,
    share_documents,
    share_instructions,
    written_reports,
)
from perdure.context.record.requests import prepare_reading
from perdure.context.record.task import CallLine
from perdure.context.summary_check import words_of_passages
from perdure.context.text import size_of
from perdure.core.messages import Entry, ToolCall, ToolState

# Memo key of the words of the passages of a message, with which a summary is compared.
PASSAGES_KEY = "passage words"
# A record that fills less than this share of its budget also quotes the documents that were read.
_FULL_SHARE = 0.8
# The share of pages in the record of a research session, at least.
_PAGES_SHARE = 0.25
# Calls whose result may be a text that was read.
_READING = frozenset(("read", "shell", "web", "other"))
_HEADER = "In order, as it was said and done; … marks omissions, → a tool call with its outcome."
_RELATIVE = "Paths in calls are relative to "


def call_lines(entries: Sequence[Entry]) -> dict[tuple[int, str], CallLine]:
    """Return the line of each call; cached with the entry that made it.

    Entries are redacted before they are told; results that are merely counted are left as they are.
    """
    if not all(map(is_redacted, entries)):
        redact_entries(_entries_to_redact(entries))
    lines: dict[tuple[int, str], CallLine] = {}
    # The same call with the same result is described once.
    described: dict[tuple[str, str, str | None, ToolState | None], CallLine] = {}
    end = len(entries)
    for at, entry in enumerate(entries):
        calls = entry.message.tool_calls
        if not calls:
            continue
        behind = at + 1
        while behind < end and entries[behind].message.role == "tool":
            behind += 1
        cached: tuple[int, tuple[CallLine, ...]] | None = entry.memoized("call_lines")
        if cached is None or cached[0] != behind - at:
            # A call may be described before its result arrives.
            cached = (behind - at, _describe_calls(entry, entries[at + 1 : behind], described))
            entry.set_memo("call_lines", cached)
        seq = entry.seq
        for call, line in zip(calls, cached[1], strict=True):
            if line.is_told:
                lines[seq, call.id] = line
    return lines


def _entries_to_redact(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries to redact: not those that are redacted, nor the results that are merely counted."""
    calls: Sequence[ToolCall] = ()
    for entry in entries:
        message = entry.message
        calls = message.tool_calls or calls
        if is_redacted(entry):
            continue
        if message.role == "tool":
            call = next((c for c in calls if message.tool_call_id in c.ids), None)
            if call is not None and is_only_counted(call, message.text, message.tool_state):
                continue
        yield entry


def _describe_calls(
    entry: Entry, behind: Sequence[Entry], described: dict[tuple[str, str, str | None, ToolState | None], CallLine]
) -> tuple[CallLine, ...]:
    results: dict[str, Entry] = {}
    for result in behind:
        results.setdefault(result.message.tool_call_id or "", result)
    lines: list[CallLine] = []
    for call in redacted(entry).tool_calls:
        answer = next((results[i] for i in call.ids if i in results), None)
        text, state = (answer.message.text, answer.message.tool_state) if answer is not None else (None, None)
        if answer is not None and text is not None and not is_only_counted(call, text, state):
            text = redacted(answer).text
        key = (call.name, call.arguments, text, state)
        if (line := described.get(key)) is None:
            line = described[key] = describe_call(call, text, state)
        lines.append(line)
    return tuple(lines)


def prepare(entries: Sequence[Entry]) -> None:
    """Compute what the record needs of each entry, ahead of a compaction."""
    for line in call_lines(entries).values():
        _ = line.line, line.detail  # composed now rather than during the compaction
    for entry in entries:
        statement_of(entry)
        prepare_reading(entry)
        if entry.message.kind == "assistant" and entry.message.text:
            entry.memo(PASSAGES_KEY, lambda m: words_of_passages(m.text))


def draw_record(
    entries: Sequence[Entry],
    *,
    budget: int,
    lines: CallLines | None = None,
    already: str = "",
    earlier: str = "",
    has_addresses: bool = True,
    dialogue_level: float | None = None,
) -> str:
    """Draw the record of the entries once; see `RecordSource.draw`."""
    source = RecordSource(entries, lines, earlier=earlier, has_addresses=has_addresses, dialogue_level=dialogue_level)
    return source.draw(budget, already)


class RecordSource:
    """A stretch of the log whose record is drawn in several budgets: what these share is computed once.

    `earlier` is the record of messages that cannot be read any more: its lines come before the entries, at a lower
    resolution. `dialogue_level` is the `dialogue_share` of the entries, if computed.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        lines: CallLines | None = None,
        *,
        earlier: str = "",
        has_addresses: bool = True,
        dialogue_level: float | None = None,
    ) -> None:
        self._entries = entries
        self._lines = call_lines(entries) if lines is None else lines
        self._earlier = earlier
        self._has_addresses = has_addresses
        self._level = dialogue_share(entries, self._lines) if dialogue_level is None else dialogue_level
        self._drawings: dict[str, Drawing] = {}

    def draw(self, budget: int, already: str = "") -> str:
        """Draw the record in at most `budget` (see `size_of`); "" where nothing fits.

        Long passages that `already` has are left out.
        """
        root = self._root
        header = _HEADER + (f" {_RELATIVE}{root}" if root else "")
        room = budget - len(header) - 1
        reports = written_reports(self._entries, self._lines, room) if self._is_research else {}
        instructions = share_instructions(self._instructions, room)
        drawing = self._drawing(already)
        text = drawing.with_documents({**instructions, **reports}).fill(room)
        if (self._is_research or size_of(text) < _FULL_SHARE * room) and (documents := self._documents):
            # The pages that were read are what the work is about, also where little else was done.
            bare = {**dict.fromkeys(documents, QuotedDocument(())), **reports}
            is_same = not instructions and not reports and drawing.has_same_options(bare)
            remaining = room - size_of(text if is_same else drawing.with_documents(bare).fill(room))
            remaining = max(remaining, int(_PAGES_SHARE * room)) if self._is_research else remaining
            text = drawing.with_documents({**share_documents(documents, room, remaining), **reports}).fill(room)
        return f"{header}\n{text}" if text else ""

    def _drawing(self, already: str) -> Drawing:
        """The drawing without documents beside a text; the last one is kept for another budget."""
        if already not in self._drawings:
            self._drawings = {already: Drawing.read(self._outline, already)}
        return self._drawings[already]

    @cached_property
    def _root(self) -> str:
        return common_root(line.target for line in self._lines.values())

    @cached_property
    def _outline(self) -> Outline:
        entries, level = self._entries, self._level
        dialogue = Dialogue.read(entries, list(map(statement_of, entries)), level) if level else None
        return Outline.read(
            entries,
            self._lines,
            root=self._root,
            earlier=self._earlier,
            has_addresses=self._has_addresses,
            dialogue=dialogue,
        )

    @cached_property
    def _is_research(self) -> bool:
        return is_research(self._lines.values())

    @cached_property
    def _reads(self) -> Mapping[str, CallLine]:
        """The calls that may have read a text, by each of their ids."""
        return {
            i: line
            for entry in self._entries
            for call in entry.message.tool_calls
            if (line := self._lines.get((entry.seq, call.id))) is not None and line.kind in _READING
            for i in call.ids
        }

    @cached_property
    def _instructions(self) -> Mapping[str, QuotedDocument]:
        return find_instructions(self._entries, self._reads)

    @cached_property
    def _documents(self) -> Mapping[str, QuotedDocument]:
        return find_documents(self._entries, self._reads, self._instructions)
