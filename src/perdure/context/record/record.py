"""Draw the record of a stretch of the log: what was said and done, in order, within a budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from perdure.context.record.call_logs import is_log
from perdure.context.record.call_output import LINE_CHARS
from perdure.context.record.call_text import common_root, openings
from perdure.context.record.calls import describe_call, is_only_counted
from perdure.context.record.decisions import prepare_reading, user_reading
from perdure.context.record.dialogue import Dialogue, dialogue_share
from perdure.context.record.entries import count_chars, is_redacted, redact_entries, redacted
from perdure.context.record.messages import (
    CALL,
    LABELS,
    NOTHING_STATED,
    OPENING,
    Speaker,
    Statement,
    carried_statement,
    parse_items,
    read_statement,
)
from perdure.context.record.pages import (
    QuotedDocument,
    find_documents,
    is_research,
    read_instructions,
    share_documents,
    written_reports,
)
from perdure.context.record.selection import Option, age_factor, fill_budget, score
from perdure.context.record.task import CallKind, CallLine, parse_steps
from perdure.context.text import Passage, clip, join_passages, size_of, split_passages
from perdure.core.messages import SUMMARY_OPENINGS, Entry, Message, ToolCall, ToolState

# The line of each call, by the position of the message that made it and the id of the call.
CallLines = Mapping[tuple[int, str], CallLine]

# What the words of each speaker count.
_WEIGHTS: Mapping[Speaker, float] = {
    "user": 7.0,
    "assistant": 0.9,
    "report": 0.75,
    "note": 0.6,
    "document": 0.4,
    "instructions": 1.0,
}
_FINAL_WEIGHT = 1.6
_BINDING_WEIGHT = 60.0
# "Go on", "thanks": of use beside what they refer to.
_BARE_WEIGHT = 0.3
# Sentences that differ only in their numbers count less each from this many on.
_MOST_ALIKE = 4
_NO_DIGITS = str.maketrans("", "", "0123456789")
# The best sentence of a reply: a question means little without its answer.
_BEST_FACTOR = 2.5
# A reply that the user agreed to with a word or two.
_AGREED_FACTOR = 1.6
# The rest of a long passage, after its first clause.
_REST_FACTOR = 0.7
_REPEATED_FACTOR = 0.3
# The progress of a plan that a newer call shows.
_OLD_PLAN_FACTOR = 0.4
# A call by its target alone, by its line, and in detail.
_BRIEF_WEIGHT = 0.6
_LINE_WEIGHT = 1.7
_DETAIL_WEIGHT = 1.0
# The detail of a longer line, which has most of its values.
_KNOWN_DETAIL_FACTOR = 0.25
# Of the work since the user's last request.
_NEWEST_DETAIL_WEIGHT = 1.25
_LEAST_CALL_WORTH = 0.2
# Narration and filler are left out whatever the room.
_LEAST_WORTH = 0.15
# Characters of the log after which text counts about 70% of the newest.
_HALF_LIFE_CHARS = 120_000
# Entries with all their options; of older ones only what the user said and what weighs most.
_FINE_ENTRIES = 1_500
_OLD_CALL_WORTH = 0.75
_OLD_PASSAGES = 2
_BRIEF_CHARS = 90
# A record that fills less than this share of its budget also quotes the documents that were read.
_FULL_SHARE = 0.8
# The share of pages in the record of a research session, at least.
_PAGES_SHARE = 0.25
# A passage of this length is shown once.
_REPEATABLE_CHARS = 80
_QUOTED_CHARS = 78
# Calls whose result may be a text that was read.
_READING = frozenset(("read", "shell", "web", "other"))
_VERBS: Mapping[CallKind, str] = {
    "read": "read",
    "search": "searched",
    "edit": "edited",
    "write": "wrote",
    "delete": "deleted",
    "web": "opened",
    "task": "planned",
    "delegate": "delegated",
}
_HEADER = "In order, as it was said and done; … marks omissions, → a tool call with its outcome."
_RELATIVE = "Paths in calls are relative to "
# What an earlier record has at a lower resolution already.
_EARLIER_FACTOR = 0.5
_EARLIER_CALL = 0.1


def statement_of(entry: Entry) -> Statement:
    """Return the cached statement of an entry."""
    statement: Statement | None = entry.memoized("statement")
    if statement is not None:
        return statement
    if entry.message.role == "tool":
        return NOTHING_STATED
    reading = user_reading(entry) if entry.message.is_real_user else None
    return entry.memo("statement", lambda _: read_statement(redacted(entry), reading))


def call_lines(entries: Sequence[Entry]) -> dict[tuple[int, str], CallLine]:
    """Return the line of each call; cached with the entry that made it.

    Entries are redacted before they are told; results that are merely counted are left as they are.
    """
    redact_entries(_told(entries))
    lines: dict[tuple[int, str], CallLine] = {}
    # The same call with the same result is described once.
    known: dict[tuple[str, str, str | None, ToolState | None], CallLine] = {}
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
            cached = (behind - at, _describe_calls(entry, entries[at + 1 : behind], known))
            entry.set_memo("call_lines", cached)
        seq = entry.seq
        for call, line in zip(calls, cached[1], strict=True):
            if line.line:
                lines[seq, call.id] = line
    return lines


def _told(entries: Iterable[Entry]) -> Iterator[Entry]:
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
    entry: Entry, behind: Sequence[Entry], known: dict[tuple[str, str, str | None, ToolState | None], CallLine]
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
        if (line := known.get(key)) is None:
            line = known[key] = describe_call(call, text, state)
        lines.append(line)
    return tuple(lines)


def prepare(entries: Sequence[Entry]) -> None:
    """Compute what the record needs of each entry, ahead of a compaction."""
    call_lines(entries)
    for entry in entries:
        statement_of(entry)
        prepare_reading(entry)


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
    """Draw the record of the entries in at most `budget` (see `size_of`); "" where nothing fits.

    Long passages that `already` has are left out. `earlier` is the record of messages that cannot be read any more:
    its lines come before the entries, at a lower resolution. `dialogue_level` is their `dialogue_share`, if computed.
    """
    if lines is None:
        lines = call_lines(entries)
    level = dialogue_share(entries, lines) if dialogue_level is None else dialogue_level
    dialogue = Dialogue.read(entries, list(map(statement_of, entries)), level) if level else None
    root = common_root(line.target for line in lines.values())
    header = _HEADER + (f" {_RELATIVE}{root}" if root else "")
    room = budget - len(header) - 1
    texts = ((i, line) for i, line in _by_id(entries, lines) if line.kind in _READING and not is_log(line.line))
    reads = {i: line.facts.read_files for i, line in texts}

    def draw(documents: Mapping[str, QuotedDocument]) -> str:
        drawing = _Drawing(root=root, has_addresses=has_addresses, already=already, dialogue=dialogue)
        drawing.add_earlier(earlier)
        drawing.add_entries(entries, lines, documents)
        return fill_budget(drawing.options, room, drawing.render)

    is_about_pages = is_research(lines.values())
    reports = written_reports(entries, lines, room) if is_about_pages else {}
    text = draw({**read_instructions(entries, reads, room), **reports})
    if (is_about_pages or size_of(text) < _FULL_SHARE * room) and (documents := find_documents(entries, reads)):
        # The pages that were read are what the work is about, also where little else was done.
        left = room - size_of(draw({**{i: QuotedDocument(()) for i in documents}, **reports}))
        left = max(left, int(_PAGES_SHARE * room)) if is_about_pages else left
        text = draw({**share_documents(documents, room, left), **reports})
    return f"{header}\n{text}" if text else ""


def _by_id(entries: Sequence[Entry], lines: CallLines) -> Iterator[tuple[str, CallLine]]:
    """Yield the line of each call by each id of the call."""
    for entry in entries:
        for call in entry.message.tool_calls:
            if (line := lines.get((entry.seq, call.id))) is not None:
                yield from ((i, line) for i in call.ids)


@dataclass(frozen=True, slots=True)
class _Said:
    """A statement of the stretch and the index of its first option, its label."""

    # None for one carried over from an earlier record.
    seq: int | None
    statement: Statement
    first: int
    # Position of the message with the same text.
    repeats: int | None = None
    # Another conversation begins with it.
    is_opening: bool = False


@dataclass(frozen=True, slots=True)
class _Done:
    """A call of the stretch: its texts of growing size, and the index of its first option."""

    texts: tuple[str, ...]
    first: int


class _Drawing:
    """The statements and calls of a stretch, and the options to show them."""

    def __init__(self, *, root: str, has_addresses: bool, already: str, dialogue: Dialogue | None = None) -> None:
        self.options: list[Option] = []
        self._items: list[_Said | _Done] = []
        self._root = f"{root}/" if root else ""
        self._has_addresses = has_addresses
        self._already = already
        self._passages: set[str] = set()
        # How often a passage occurs, whatever numbers are in it.
        self._templates: Counter[str] = Counter()
        self._fingerprints: dict[int, int] = {}
        self._changed: frozenset[str] = frozenset()
        self._newest_plan: CallLine | None = None
        self._dialogue = dialogue
        # The option that shows the last sentence of each message of a dialogue.
        self._last_sentences: dict[int, int] = {}
        # What the sections list as done, step by step.
        self._subjects = frozenset(s for steps in parse_steps(already) for s in steps.subjects)

    def add_earlier(self, record: str) -> None:
        """Add the lines of an earlier record."""
        for label, title, text in parse_items(record):
            if label == CALL:
                line = text.partition("\n")[0]
                self._add_texts((clip(line, _BRIEF_CHARS), line, text), _EARLIER_CALL)
            else:
                statement = replace(carried_statement(label, text), title=title)
                self._add_statement(None, statement, _EARLIER_FACTOR, is_old=False)

    def add_entries(
        self, entries: Sequence[Entry], lines: CallLines, documents: Mapping[str, QuotedDocument] | None = None
    ) -> None:
        """Add the statements and calls of entries; of `documents`, by the ids of their calls, also the text."""
        own = [lines[e.seq, c.id] for e in entries for c in e.message.tool_calls if (e.seq, c.id) in lines]
        self._changed = frozenset(c.target for c in own if c.kind in ("edit", "write"))
        self._newest_plan = next((c for c in reversed(own) if c.facts.plan), None)
        distances = _distances(entries)
        fine_from = len(entries) - _FINE_ENTRIES
        statements = [
            e.memoized("statement") or (NOTHING_STATED if at < fine_from and _is_faint(e.message) else statement_of(e))
            for at, e in enumerate(entries)
        ]
        agreed = _agreed(statements)
        self._templates.update(
            p.text.translate(_NO_DIGITS)
            for s in statements
            if s.is_final and s.speaker == "assistant"
            for p in s.passages
        )
        requests = (at for at, s in enumerate(statements) if s.speaker == "user" and not s.is_bare)
        asked_at = max(requests, default=len(entries))
        for at, (entry, statement) in enumerate(zip(entries, statements, strict=True)):
            is_old = at < fine_from
            if statement.passages and (statement.is_final or not is_old):
                age = age_factor(distances[at], _HALF_LIFE_CHARS) * (_AGREED_FACTOR if at in agreed else 1.0)
                self._add_statement(entry.seq, statement, age, is_old=is_old)
            for call in entry.message.tool_calls:
                line = lines.get((entry.seq, call.id))
                if line is not None and (not is_old or line.worth >= _OLD_CALL_WORTH):
                    document = next((documents[i] for i in call.ids if i in documents), None) if documents else None
                    age = age_factor(distances[at], _HALF_LIFE_CHARS)
                    self._add_call(entry.seq, line, age, document, is_newest=at > asked_at)

    # -- options -----------------------------------------------------------------------------------------------------

    def _add_statement(self, seq: int | None, statement: Statement, age: float, *, is_old: bool) -> None:
        dialogue = self._dialogue
        if seq is None or dialogue is None or statement.speaker not in ("user", "assistant") or not dialogue.has(seq):
            dialogue = None
        if dialogue is not None and seq is not None:
            statement = dialogue.statement(seq)
        label = len(self.options)
        if statement.speaker == "user":
            statement = self._without_quoted(statement)
        weight = _weight(statement, age)
        if seq is None and self._dialogue is not None and not statement.is_binding:
            # Lines of an earlier record count like those of the dialogue, whoever wrote them.
            weight += (age - weight) * self._dialogue.level
        repeats = None
        if statement.fingerprint and seq is not None:
            first = self._fingerprints.setdefault(statement.fingerprint, seq)
            repeats = first if first != seq else None
        said = _Said(seq, statement, label, repeats, dialogue is not None and seq in dialogue.openings)
        self._items.append(said)
        self.options.append(Option(size_of(self._label(said)) + 1, 0.0))
        if repeats is not None:
            self.options[label] = Option(size_of(self._label(said)) + 60, score(weight * _REPEATED_FACTOR, 60))
            return
        worths = self._worths(statement, weight, is_old=is_old)
        if dialogue is not None and seq is not None and not statement.is_binding:
            worths = [dialogue.blend(w, info * age) for w, info in zip(worths, dialogue.worths(seq), strict=True)]
            self.options[label].needs = self._last_sentences.get(dialogue.question_of(seq), -1)
            # A polite phrase that is left out is no omission.
            passages = (replace(p, worth=min(p.worth, w)) for p, w in zip(statement.passages, worths, strict=True))
            self._items[-1] = replace(said, statement=replace(statement, passages=tuple(passages)))
        self._add_passages(statement, worths, label)
        if dialogue is not None and seq is not None:
            self._last_sentences[seq] = len(self.options) - 2

    def _worths(self, statement: Statement, weight: float, *, is_old: bool) -> list[float]:
        """Return what each passage of a statement counts; 0 for noise and for what is shown already."""
        least = 0.0 if statement.speaker == "user" else _LEAST_WORTH
        if is_old and statement.speaker != "user":
            least = max(least, _least_worth(statement.passages))
        best = max(p.worth for p in statement.passages) if statement.is_final else math.inf
        worths = []
        for passage in statement.passages:
            is_noise = passage.worth < least or self._is_repeated(passage, statement)
            worth = 0.0 if is_noise else weight * passage.worth
            if passage.worth >= best and statement.speaker == "assistant":
                worth *= _BEST_FACTOR
                best = math.inf
            if (times := self._templates.get(passage.text.translate(_NO_DIGITS), 1)) > _MOST_ALIKE:
                worth /= math.sqrt(times)
            worths.append(worth)
        return worths

    def _add_passages(self, statement: Statement, worths: Sequence[float], label: int) -> None:
        """Add two options for each passage, its short form and the rest, below its lead or the label."""
        first = len(self.options)
        for passage, worth in zip(statement.passages, worths, strict=True):
            needs = label if passage.lead < 0 else first + 2 * passage.lead
            size = size_of(passage.short)
            more = size_of(passage.text) - size
            self.options.append(Option(size + 3, score(worth, size), needs))
            self._add_step(worth * _REST_FACTOR, size + more, more, len(self.options) - 1)

    def _without_quoted(self, statement: Statement) -> Statement:
        """Return the statement with its place in the record, but only the first words of what the sections quote."""
        quoted = [f"“{p.text}”" in self._already for p in statement.passages]
        if not any(quoted):
            return statement
        passages = tuple(
            Passage(clip(p.text, _QUOTED_CHARS), clip(p.text, _QUOTED_CHARS), p.worth, p.joint, p.lead) if q else p
            for p, q in zip(statement.passages, quoted, strict=True)
        )
        return replace(statement, passages=passages, is_binding=statement.is_binding and not all(quoted))

    def _is_repeated(self, passage: Passage, statement: Statement) -> bool:
        """Whether the passage is shown already: by the sections, or by an earlier message that is not the user's."""
        if len(passage.text) < _REPEATABLE_CHARS:
            return False
        if passage.text in self._passages or passage.text in self._already:
            return True
        if statement.speaker == "user":
            return False
        self._passages.add(passage.text)
        return False

    def _add_call(
        self, seq: int, line: CallLine, age: float, document: QuotedDocument | None, *, is_newest: bool
    ) -> None:
        if line.report:
            title = clip(line.target, 60)
            report = Statement("report", split_passages(line.report), is_final=True, title=title)
            # A plan that the user read binds like a reply they agreed to.
            self._add_statement(seq, report, age * (_AGREED_FACTOR if line.kind == "task" else 1.0), is_old=False)
            return
        brief, whole, detail = self._brief(line), self._local(line.line), self._local(line.detail or line.line)
        # An earlier plan is represented by its line; the newest has its items.
        is_old_plan = bool(line.facts.plan) and line is not self._newest_plan
        has_detail = (line.kind != "task" or line is self._newest_plan) and document is None
        texts = (brief, whole, *openings(detail), detail) if has_detail else (brief, whole)
        is_looked_at = line.kind == "read" and line.target in self._changed
        is_binding = line.user_words and f"“{line.user_words}”" not in self._already
        weight = _BINDING_WEIGHT if is_binding else age * (_OLD_PLAN_FACTOR if is_old_plan else 1.0)
        has_values = len(line.line) > LINE_CHARS
        step = None if has_values else line.repeatable
        if self._subjects and step is not None and not self._subjects.isdisjoint(step.values):
            weight *= _REPEATED_FACTOR
        self._add_texts(
            texts,
            weight * line.worth,
            brief_worth=0.0 if is_looked_at else weight * _LEAST_CALL_WORTH,
            detail_weight=(_NEWEST_DETAIL_WEIGHT if is_newest else _DETAIL_WEIGHT)
            * (_KNOWN_DETAIL_FACTOR if has_values else 1.0),
        )
        if document is not None and document.is_report:
            report = Statement("report", document.passages, is_final=True, title=clip(self._local(line.target), 60))
            self._add_statement(seq, report, age, is_old=False)
        elif document is not None and document.passages:
            speaker: Speaker = "instructions" if document.is_instructions else "document"
            self._add_statement(seq, Statement(speaker, document.passages), age, is_old=False)

    def _add_texts(
        self,
        texts: tuple[str, ...],
        worth: float,
        *,
        brief_worth: float = 0.0,
        detail_weight: float = _DETAIL_WEIGHT,
    ) -> None:
        """Add a call by its texts: its target among those of its neighbours, its line, and steps of detail."""
        first = len(self.options)
        self._items.append(_Done(texts, first))
        brief, whole, *details = map(size_of, texts)
        worth_of_target = _BRIEF_WEIGHT * max(worth, brief_worth) if brief_worth else 0.0
        self.options.append(Option(brief + 2, score(worth_of_target, brief)))
        self._add_step(worth * _LINE_WEIGHT, whole, whole + 4 - brief, first)
        size, weight = whole, worth * detail_weight
        for step, more in enumerate(details, 1):
            self._add_step(weight, more - size, more - size, first + step)
            size, weight = more, worth * detail_weight * _REST_FACTOR

    def _add_step(self, worth: float, size: int, more: int, needs: int) -> None:
        self.options.append(Option(max(more, 0), score(worth, size) if more > 0 else 0.0, needs))

    def _brief(self, line: CallLine) -> str:
        verb = _VERBS.get(line.kind, line.name if line.kind == "other" else "")
        return clip(f"{verb} {self._local(line.target)}".strip() or line.name, _BRIEF_CHARS)

    def _local(self, text: str) -> str:
        return text.replace(self._root, "") if self._root else text

    # -- rendering
    def render(self, taken: set[int]) -> str:
        """Render the taken options in order; neighbouring brief calls share a line."""
        out: list[str] = []
        brief: list[str] = []
        is_opening = False
        for item in self._items:
            is_opening = is_opening or (isinstance(item, _Said) and item.is_opening)
            if item.first not in taken:
                continue
            if isinstance(item, _Done):
                level = next((n for n in range(len(item.texts) - 1, 0, -1) if item.first + n in taken), 0)
                if level == 0:
                    brief.append(item.texts[0])
                    continue
                text = f"{CALL} {item.texts[level]}"
            else:
                text = self._statement_text(replace(item, is_opening=is_opening), taken)
                is_opening = is_opening and not text
            if text:
                _flush(out, brief)
                out.append(text)
        _flush(out, brief)
        return "\n".join(_merge_equal(out))

    def _statement_text(self, said: _Said, taken: set[int]) -> str:
        label, passages = self._label(said), said.statement.passages
        if said.repeats is not None:
            where = self._address(said.repeats) or "before"
            return f"{label} [the same text as {where}: {clip(passages[0].short, 50)}]"
        levels = [
            (at in taken) + (at + 1 in taken) for at in range(said.first + 1, said.first + 1 + 2 * len(passages), 2)
        ]
        # Only labels and calls begin at the margin: no text can pass for the words of somebody else.
        text = join_passages(passages, levels).replace("\n", "\n ")
        return f"{label} {text}" if text else ""

    def _label(self, said: _Said) -> str:
        if said.statement.speaker == "document":
            return "  excerpts:"
        if said.statement.speaker == "instructions":
            return "  its rules:"
        title = said.statement.title or (OPENING if said.is_opening else "")
        title = f" ({title})" if title else ""
        return f"{LABELS[said.statement.speaker]}{title} {self._address(said.seq)}".rstrip() + ":"

    def _address(self, seq: int | None) -> str:
        return f"[{seq}]" if self._has_addresses and seq is not None else ""


def _is_faint(message: Message) -> bool:
    """Whether an old message shows nothing but its calls: its text need not be parsed."""
    return bool(message.tool_calls) or message.text.startswith(SUMMARY_OPENINGS)


def _weight(statement: Statement, age: float) -> float:
    if statement.is_binding:
        return _BINDING_WEIGHT
    if statement.is_bare:
        return _BARE_WEIGHT * age
    weight = _WEIGHTS[statement.speaker] * age
    return weight * _FINAL_WEIGHT if statement.speaker == "assistant" and statement.is_final else weight


def _least_worth(passages: Sequence[Passage]) -> float:
    """Return the worth that the few best passages have."""
    return sorted((p.worth for p in passages), reverse=True)[:_OLD_PASSAGES][-1]


def _merge_equal(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, equal neighbours once with their number."""
    for line, group in groupby(lines):
        times = sum(1 for _ in group)
        yield f"{line} (×{times})" if times > 1 else line


def _flush(out: list[str], brief: list[str]) -> None:
    """Append the brief calls as one line, each target once and equal verbs named once."""
    if not brief:
        return
    groups: list[tuple[str, list[str]]] = []
    verbs = frozenset(_VERBS.values())
    for text in dict.fromkeys(brief):
        verb, _, target = text.partition(" ")
        verb, target = (verb, target) if verb in verbs else ("", text)
        if verb and groups and groups[-1][0] == verb:
            groups[-1][1].append(target)
        else:
            groups.append((verb, [target]))
    brief.clear()
    out.append(f"{CALL} " + "; ".join(f"{verb} {', '.join(targets)}".strip() for verb, targets in groups))


def _agreed(statements: Sequence[Statement]) -> set[int]:
    """Indexes of the replies that the user agreed to or chose from with a word or two."""
    agreed: set[int] = set()
    last = -1
    for at, statement in enumerate(statements):
        if not statement.passages:
            continue
        if statement.speaker == "assistant" and statement.is_final:
            last = at
        elif statement.speaker == "user":
            if statement.is_bare and last >= 0:
                agreed.add(last)
            last = -1
    return agreed


def _distances(entries: Sequence[Entry]) -> list[int]:
    """Characters of the log between each entry and its end."""
    distances = [0] * len(entries)
    distance = 0
    for at in range(len(entries) - 1, -1, -1):
        distances[at] = distance
        distance += entries[at].memoized("chars") or entries[at].memo("chars", count_chars)
    return distances
