"""Draw the record of a stretch of the log: what was said and done, in order, within a budget."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, partial
from itertools import pairwise

from perdure.context.edit_blocks import find_undone_replies
from perdure.context.record.documents import (
    QuotedDocument,
    find_documents,
    find_instructions,
    is_research,
    share_documents,
    share_instructions,
    written_reports,
)
from perdure.context.record.outline import (
    FINE_ENTRIES,
    OLD_CALL_WORTH,
    CallLines,
    Outline,
    shorten_undone,
    without_request_mark,
)
from perdure.context.record.rendering import Drawing
from perdure.context.record.statements import Dialogue, dialogue_share, statement_of
from perdure.context.redacted_entries import (
    are_redacted,
    count_chars,
    is_changed,
    is_redacted,
    redact_entries,
    redact_entry,
    redact_message,
)
from perdure.context.summary_check import words_of_passages
from perdure.context.task_state.replies import own_text, prepare_reading
from perdure.context.text import size_of
from perdure.context.tool_calls.call_line import NO_FACTS, CallFacts, CallLine, PendingCallLine
from perdure.context.tool_calls.describe import describe_call, is_only_counted
from perdure.context.tool_calls.wrapped_calls import is_wrapped_in
from perdure.core.messages import Entry, Message, ToolCall, ToolState
from perdure.redaction import are_clean

# Memo key of the words of the passages of a message, with which a summary is compared.
PASSAGES_KEY = "passage words"
# Memo key of the lines of an entry's calls, with the number of entries they depend on.
_KEY = "call_lines"
# Lines by the call and its result.
_Described = dict[tuple[str, str, str | None, ToolState | None], CallLine]
# The newest entries, whose texts are read: those that the record shows in detail, and what comes after them.
_NEWEST_ENTRIES = FINE_ENTRIES + 500
# A record that fills less than this share of its budget also quotes the documents that were read.
_FULL_SHARE = 0.8
# The share of pages in the record of a research session, at least.
_PAGES_SHARE = 0.25
# Calls whose result may be a text that was read.
_READING = frozenset(("read", "shell", "web", "other"))
# Calls of a shell that merely look at something, unless a fact is known of them.
_LOOKING = frozenset(("read", "search", "git"))
_HEADER = "In order, as it was said and done; … marks omissions, → a tool call with its outcome."
_RELATIVE = "Paths in calls are relative to "


def call_lines(entries: Sequence[Entry]) -> dict[tuple[int, str], CallLine]:
    """Return the line of each call; cached with the entry that made it.

    Entries are redacted before they are rendered; results that are merely counted are left as they are.
    """
    newest = max(0, len(entries) - _NEWEST_ENTRIES)
    # The results of a call are what lies between its message and the next one that is no result.
    starts = [at for at, entry in enumerate(entries) if entry.message.role != "tool"]
    known: list[tuple[int, tuple[CallLine, ...]] | None] = Entry.get_memos(map(entries.__getitem__, starts), _KEY)
    # The same call with the same result is described once.
    described: _Described = {}
    unread = [at for at, cached in zip(starts, known, strict=True) if cached is None and at < newest]
    old = _OldCalls.read(entries[:newest], unread, described)
    if old.to_redact or not all(are_redacted(entries[newest:])):
        # Together, for equal texts are scanned once.
        redact_entries([*old.to_redact, *_entries_to_redact(entries[newest:])])
    old.cache_lines(described)
    lines: dict[tuple[int, str], CallLine] = {}
    unknown: list[tuple[int, int, int]] = []
    for (at, behind), before in zip(pairwise([*starts, len(entries)]), known, strict=True):
        entry = entries[at]
        calls = entry.message.tool_calls
        if not calls:
            continue
        cached: tuple[int, tuple[CallLine, ...]] | None = before or entry.get_memo(_KEY)
        if cached is None or cached[0] != behind - at:
            # A call may be described before its result arrives.
            cached = (behind - at, _describe_calls(entry, entries[at + 1 : behind], described))
            entry.set_memo(_KEY, cached)
        seq = entry.seq
        for n, (call, line) in enumerate(zip(calls, cached[1], strict=True)):
            if line.is_told:
                lines[seq, call.id] = line
                if line.outcome == "unknown":
                    unknown.append((at, n, behind))
    for at, n, behind in unknown:
        _merge_wrapped(lines, entries, at, n, behind)
    return lines


def _merge_wrapped(
    lines: dict[tuple[int, str], CallLine], entries: Sequence[Entry], at: int, n: int, behind: int
) -> None:
    """Describe a call without a result by that of the call behind it, if that one wraps it, and drop the wrapper."""
    wrapper = entries[behind] if behind < len(entries) else None
    if wrapper is None or len(wrapper.message.tool_calls) != 1 or wrapper.message.text.strip():
        return
    call, outer = entries[at].message.tool_calls[n], wrapper.message.tool_calls[0]
    if (wrapper.seq, outer.id) not in lines or not is_wrapped_in(call, outer):
        return
    ((_, answer),) = _with_results((outer,), _results_behind(entries, behind))
    lines[entries[at].seq, call.id] = describe_call(
        redact_entry(entries[at]).tool_calls[n], *_text_and_state(outer, answer)
    )
    del lines[wrapper.seq, outer.id]


def _results_behind(entries: Sequence[Entry], at: int) -> Sequence[Entry]:
    """Return the results of the calls of an entry."""
    end, behind = len(entries), at + 1
    while behind < end and entries[behind].message.role == "tool":
        behind += 1
    return entries[at + 1 : behind]


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


class _OldCalls:
    """The calls of old entries that are not described yet, and the entries to redact before that.

    Most of the text is in looks and edits, whose lines are pending: of old entries they are not read. What such a line
    is composed of is redacted when it is composed.
    """

    def __init__(self) -> None:
        self.to_redact: list[Entry] = []
        self._found: list[tuple[Entry, Sequence[Entry], list[tuple[CallLine, Entry | None]]]] = []

    @classmethod
    def read(cls, entries: Sequence[Entry], unread: Iterable[int], described: _Described) -> _OldCalls:
        """Read the entries at the indexes `unread`, none of which is a result."""
        old = cls()
        for at in unread:
            entry = entries[at]
            if is_redacted(entry):
                continue
            if not entry.message.tool_calls:
                old.to_redact.append(entry)
            else:
                behind = _results_behind(entries, at)
                lines = list(_describe_as_is(entry, behind, described))
                told = [answer for line, answer in lines if type(line) is not PendingCallLine]
                old.to_redact += [entry, *filter(None, told)] if told else ()
                old._found.append((entry, behind, lines))
        return old

    def cache_lines(self, described: _Described) -> None:
        """Cache the lines with their entries; those of texts with secrets are described again without them."""
        secret_names = _secrets_among({_names_in(line) for _, _, lines in self._found for line, _ in lines})
        for entry, behind, lines in self._found:
            is_clean = not is_changed(entry) and not any(a is not None and is_changed(a) for _, a in lines)
            if not is_clean or (secret_names and any(_names_in(line) in secret_names for line, _ in lines)):
                told = _describe_calls(entry, behind, described)
            else:
                told = tuple(line for line, _ in lines)
            entry.set_memo(_KEY, (len(behind) + 1, told))


def _secrets_among(names: Set[str]) -> Set[str]:
    return frozenset() if are_clean(names) else {name for name in names if not are_clean((name,))}


def _names_in(line: CallLine) -> str:
    """Return what a pending line tells before it is composed; "" for others."""
    if type(line) is not PendingCallLine:
        return ""
    facts = line.facts
    return "\n".join((line.target, facts.folder, *facts.read_files, *facts.changed_files))


def _describe_as_is(
    entry: Entry, behind: Sequence[Entry], described: _Described
) -> Iterator[tuple[CallLine, Entry | None]]:
    """Yield the line of each call with its result, of messages that are not redacted yet."""
    for n, (call, answer) in enumerate(_with_results(entry.message.tool_calls, behind)):
        text, state = (answer.message.text, answer.message.tool_state) if answer is not None else (None, None)
        key = (call.name, call.arguments, text, state)
        if (line := described.get(key)) is None:
            line = describe_call(call, text, state)
            if type(line) is not PendingCallLine:
                described[key] = line
        # Of the messages: an entry that its own line refers to would outlive its history.
        compose = partial(_describe_redacted, entry.message, n, answer.message if answer is not None else None)
        if isinstance(line, PendingCallLine):
            line.compose_by(compose)
        elif line.worth < OLD_CALL_WORTH and line.kind in _LOOKING and _is_uneventful(line):
            line = PendingCallLine(line.kind, line.name, line.target, line.worth, line.facts, compose)
        yield line, answer


def _is_uneventful(line: CallLine) -> bool:
    """Return whether a call succeeded and no fact is known of it but the paths of files."""
    facts = line.facts
    if line.outcome != "ok" or line.user_words or line.report or line.repeatable is not None:
        return False
    if facts is NO_FACTS:
        return True
    return facts == CallFacts(folder=facts.folder, read_files=facts.read_files, changed_files=facts.changed_files)


def _describe_redacted(message: Message, n: int, answer: Message | None) -> CallLine:
    call = redact_message(message).tool_calls[n]
    if answer is None:
        return describe_call(call, None)
    is_counted = is_only_counted(call, answer.text, answer.tool_state)
    return describe_call(call, answer.text if is_counted else redact_message(answer).text, answer.tool_state)


def _describe_calls(entry: Entry, behind: Sequence[Entry], described: _Described) -> tuple[CallLine, ...]:
    lines: list[CallLine] = []
    for call, answer in _with_results(redact_entry(entry).tool_calls, behind):
        key = (call.name, call.arguments, *_text_and_state(call, answer))
        if (line := described.get(key)) is None:
            line = described[key] = describe_call(call, *key[2:])
        lines.append(line)
    return tuple(lines)


def _with_results(calls: Sequence[ToolCall], behind: Sequence[Entry]) -> Iterator[tuple[ToolCall, Entry | None]]:
    results: dict[str, Entry] = {}
    for result in behind:
        results.setdefault(result.message.tool_call_id or "", result)
    return ((call, _result_of(call, results)) for call in calls)


def _result_of(call: ToolCall, results: Mapping[str, Entry]) -> Entry | None:
    if call.id and call.id in results:  # as almost every one
        return results[call.id]
    return next((results[i] for i in call.ids if i in results), None)


def _text_and_state(call: ToolCall, answer: Entry | None) -> tuple[str | None, ToolState | None]:
    """Return the redacted text of a result, as it is where it is merely counted, and how the call ended."""
    if answer is None:
        return None, None
    text, state = answer.message.text, answer.message.tool_state
    return (text if is_only_counted(call, text, state) else redact_entry(answer).text), state


def text_to_check(entry: Entry) -> str:
    """Return the text of a message with which a summary is compared: of a user's, their own words."""
    return own_text(entry) if entry.message.is_real_user else entry.message.text


def prepare(entries: Sequence[Entry]) -> None:
    """Compute what the record needs of each entry, ahead of a compaction."""
    redact_entries(_entries_to_redact(entries))
    for line in call_lines(entries).values():
        _ = line.line, line.detail  # composed now rather than during the compaction
    for entry in entries:
        statement_of(entry)
        prepare_reading(entry)
        is_said = entry.message.kind in ("user", "assistant") and entry.get_memo(PASSAGES_KEY) is None
        if is_said and (text := text_to_check(entry)):
            entry.set_memo(PASSAGES_KEY, words_of_passages(text))


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
    resolution. `request_seq` is the position of the newest request, if it is in view elsewhere. `dialogue_level` is the
    `dialogue_share` of the entries and `root` that of the lines, if computed.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        lines: CallLines | None = None,
        *,
        earlier: str = "",
        request_seq: int | None = None,
        has_addresses: bool = True,
        dialogue_level: float | None = None,
        root: str | None = None,
    ) -> None:
        self._entries = entries
        self._lines = call_lines(entries) if lines is None else lines
        self._earlier = without_request_mark(earlier)
        self._request_seq = request_seq
        self._has_addresses = has_addresses
        self._level = dialogue_share(entries, self._lines) if dialogue_level is None else dialogue_level
        self._drawings: dict[str, Drawing] = {}
        self._given_root = root

    def draw(self, budget: int, already: str = "") -> str:
        """Draw the record in at most `budget` (see `size_of`); "" where nothing fits.

        Long passages that `already` has are left out.
        """
        root = self.root
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
        """Return the drawing without documents beside a text; the last one is kept for another budget."""
        if already not in self._drawings:
            bare = self._drawings.get("")
            drawing = bare.beside(already) if bare is not None else Drawing.read(self._outline, already)
            self._drawings = {already: drawing}
        return self._drawings[already]

    @cached_property
    def root(self) -> str:
        """The folder that the paths of the calls have in common."""
        if self._given_root is not None:
            return self._given_root
        return common_root(line.target for line in self._lines.values())

    @cached_property
    def _sizes(self) -> list[int]:
        cached: list[int | None] = Entry.get_memos(self._entries, "chars")
        return [size or e.memo("chars", count_chars) for e, size in zip(self._entries, cached, strict=True)]

    @property
    def chars(self) -> int:
        """The characters of the stretch."""
        return sum(self._sizes)

    @cached_property
    def _outline(self) -> Outline:
        entries, level = self._entries, self._level
        undone = find_undone_replies(entries)
        dialogue = None
        if level:
            statements = [shorten_undone(statement_of(e)) if e.seq in undone else statement_of(e) for e in entries]
            dialogue = Dialogue.read(entries, statements, level)
        outline = Outline.read(
            entries,
            self._lines,
            root=self.root,
            sizes=self._sizes,
            earlier=self._earlier,
            has_addresses=self._has_addresses,
            dialogue=dialogue,
            undone_replies=undone,
        )
        return outline if self._request_seq is None else outline.with_request_mark(self._request_seq)

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


# A root that fewer paths share is not worth a line.
_FEWEST_PATHS = 4
_LONGEST_TARGET = 400
# Begins with the character that is searched for; what must not precede it is checked behind it.
_PATH = re.compile(r"/(?<![\w./:]/)(?:[\w.@+-]+/)+[\w.@+-]+")


def common_root(targets: Iterable[str]) -> str:
    """Return the folder whose name saves most characters when targets omit it; "" where none is worth it."""
    folders: Counter[str] = Counter(
        path.rpartition("/")[0]
        for target in targets
        if "/" in target
        for path in _PATH.findall(target[:_LONGEST_TARGET])
    )
    counts: Counter[str] = Counter()
    for folder, times in folders.items():
        while folder.count("/") >= 2:
            counts[folder] += times
            folder = folder.rpartition("/")[0]
    best = max(counts, key=lambda f: (counts[f] * len(f), len(f)), default="")
    return best if best and counts[best] >= _FEWEST_PATHS else ""
