"""Draw the record of a stretch of the log: what was said and done, in order, within a budget."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from perdure.context.record.calls import describe_call
from perdure.context.record.decisions import prepare_reading, user_reading
from perdure.context.record.entries import count_chars, redact_entries, redacted
from perdure.context.record.messages import (
    CALL,
    LABELS,
    Speaker,
    Statement,
    carried_statement,
    parse_record,
    read_statement,
)
from perdure.context.record.pages import QuotedDocument, find_documents, read_instructions, share_documents
from perdure.context.record.task import CallKind, CallLine, parse_steps
from perdure.context.text import Passage, clip, join_passages, size_of, split_passages
from perdure.core.messages import Entry

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
_OPENING_LINES = 5
_LONG_OPENING_CHARS = 600
# A record that fills less than this share of its budget also quotes the documents that were read.
_FULL_SHARE = 0.8
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
# Exponent of the size in a score: 1 prefers short texts strongly, 0 ignores the size.
_SIZE_EXPONENT = 0.35
_LEAST_SIZE = 30
# A root that fewer paths share is not worth a line.
_FEWEST_PATHS = 4
_LONGEST_TARGET = 400
_PATH = re.compile(r"(?<![\w./:])/(?:[\w.@+-]+/)+[\w.@+-]+")
_HEADER = "In order, as it was said and done; … marks omissions, → a tool call with its outcome."
_RELATIVE = "Paths in calls are relative to "
# What an earlier record has at a lower resolution already.
_EARLIER_FACTOR = 0.5
_EARLIER_CALL = 0.1


@dataclass(slots=True)
class Option:
    """A step that adds detail to the record; it is taken after the one it needs."""

    size: int
    score: float
    # Index of the option that has to be taken first; -1 for none.
    needs: int = -1


def score(worth: float, size: int) -> float:
    """Return the score of an option: its worth, lower for a longer text."""
    return worth / math.pow(max(size, _LEAST_SIZE), _SIZE_EXPONENT)


def age_factor(distance: float, half_life: float) -> float:
    """How much text at a distance from the end counts: 1 at the end, falling slowly like a power of the distance."""
    return 1.0 / math.sqrt(1.0 + distance / half_life)


def rank(options: Sequence[Option]) -> list[int]:
    """Return the indexes of the options that may be taken, best score first."""
    return sorted((i for i, o in enumerate(options) if o.score > 0), key=lambda i: -options[i].score)


def choose(options: Sequence[Option], budget: int, order: Sequence[int] | None = None) -> set[int]:
    """Return the indexes of the options to take, best score first, each with the ones it needs."""
    taken: set[int] = set()
    remaining = budget
    for index in rank(options) if order is None else order:
        if index in taken:
            continue
        chain = _untaken(options, index, taken)
        cost = sum(options[i].size for i in chain)
        if cost <= remaining:
            taken.update(chain)
            remaining -= cost
    return taken


def _untaken(options: Sequence[Option], index: int, taken: set[int]) -> list[int]:
    """An option and those it needs, as far as they are not taken yet."""
    chain = []
    while index >= 0 and index not in taken:
        chain.append(index)
        index = options[index].needs
    return chain


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


def statement_of(entry: Entry) -> Statement:
    """Return the cached statement of an entry."""
    statement: Statement | None = entry.memoized("statement")
    if statement is not None:
        return statement
    reading = user_reading(entry) if entry.message.is_real_user else None
    return entry.memo("statement", lambda _: read_statement(redacted(entry), reading))


def call_lines(entries: Sequence[Entry]) -> dict[tuple[int, str], CallLine]:
    """Return the line of each call; cached with the entry that made it."""
    lines: dict[tuple[int, str], CallLine] = {}
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
            cached = (behind - at, _describe_calls(entry, entries[at + 1 : behind]))
            entry.set_memo("call_lines", cached)
        seq = entry.seq
        for call, line in zip(calls, cached[1], strict=True):
            if line.line:
                lines[seq, call.id] = line
    return lines


def _describe_calls(entry: Entry, behind: Sequence[Entry]) -> tuple[CallLine, ...]:
    results: dict[str, Entry] = {}
    for result in behind:
        results.setdefault(result.message.tool_call_id or "", result)
    lines: list[CallLine] = []
    for call in redacted(entry).tool_calls:
        answer = next((results[i] for i in call.ids if i in results), None)
        text, state = (redacted(answer).text, answer.message.tool_state) if answer is not None else (None, None)
        lines.append(describe_call(call, text, state))
    return tuple(lines)


def prepare(entries: Sequence[Entry]) -> None:
    """Compute what the record needs of each entry, ahead of a compaction."""
    redact_entries(entries)
    for entry in entries:
        statement_of(entry)
        prepare_reading(entry)
    call_lines(entries)


def draw_record(
    entries: Sequence[Entry],
    *,
    budget: int,
    lines: CallLines | None = None,
    already: str = "",
    earlier: str = "",
    has_addresses: bool = True,
) -> str:
    """Draw the record of the entries in at most `budget` bytes; "" where nothing fits.

    Long passages that `already` has are left out. `earlier` is the record of messages that cannot be read any more:
    its lines come before the entries, at a lower resolution.
    """
    if lines is None:
        redact_entries(entries)
        lines = call_lines(entries)
    root = common_root(line.target for line in lines.values())
    header = _HEADER + (f" {_RELATIVE}{root}" if root else "")
    room = budget - len(header) - 1
    reads = {i: line.facts.read_files for i, line in _by_id(entries, lines) if line.kind in _READING}

    def draw(documents: Mapping[str, QuotedDocument]) -> str:
        drawing = _Drawing(root=root, has_addresses=has_addresses, already=already)
        drawing.add_earlier(earlier)
        drawing.add_entries(entries, lines, documents)
        return _fill(drawing, room)

    text = draw(read_instructions(entries, reads, room))
    if size_of(text) < _FULL_SHARE * room and (documents := find_documents(entries, reads)):
        # Little was said and done, as in research: the pages that were read are what the work is about.
        left = room - size_of(draw({i: QuotedDocument(()) for i in documents}))
        text = draw(share_documents(documents, room, left))
    return f"{header}\n{text}" if text else ""


def _by_id(entries: Sequence[Entry], lines: CallLines) -> Iterator[tuple[str, CallLine]]:
    """Yield the line of each call by each id of the call."""
    for entry in entries:
        for call in entry.message.tool_calls:
            if (line := lines.get((entry.seq, call.id))) is not None:
                yield from ((i, line) for i in call.ids)


def _fill(drawing: _Drawing, room: int) -> str:
    """Render what fits. The sizes of options are estimates: labels, gaps and merged lines change the sum a little."""
    order = rank(drawing.options)
    budget, step = room, 20
    while budget > 0:
        text = drawing.render(choose(drawing.options, budget, order))
        over = size_of(text) - room
        if over <= 0:
            return text
        # Steps grow, for a smaller budget may choose other options that are larger than estimated, too.
        budget -= over + step
        step *= 2
    return ""


@dataclass(frozen=True, slots=True)
class _Said:
    """A statement of the stretch and the index of its first option, its label."""

    # None for one carried over from an earlier record.
    seq: int | None
    statement: Statement
    first: int
    # Position of the message with the same text.
    repeats: int | None = None


@dataclass(frozen=True, slots=True)
class _Done:
    """A call of the stretch: its texts of growing size, and the index of its first option."""

    texts: tuple[str, ...]
    first: int


class _Drawing:
    """The statements and calls of a stretch, and the options to show them."""

    def __init__(self, *, root: str, has_addresses: bool, already: str) -> None:
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
        # What the sections list as done, step by step.
        self._subjects = frozenset(s for steps in parse_steps(already) for s in steps.subjects)

    def add_earlier(self, record: str) -> None:
        """Add the lines of an earlier record."""
        for label, text in parse_record(record):
            if label == CALL:
                line = text.partition("\n")[0]
                self._add_texts((clip(line, _BRIEF_CHARS), line, text), _EARLIER_CALL)
            else:
                self._add_statement(None, carried_statement(label, text), _EARLIER_FACTOR, is_old=False)

    def add_entries(
        self, entries: Sequence[Entry], lines: CallLines, documents: Mapping[str, QuotedDocument] | None = None
    ) -> None:
        """Add the statements and calls of entries; of `documents`, by the ids of their calls, also the text."""
        own = [lines[e.seq, c.id] for e in entries for c in e.message.tool_calls if (e.seq, c.id) in lines]
        self._changed = frozenset(c.target for c in own if c.kind in ("edit", "write"))
        self._newest_plan = next((c for c in reversed(own) if c.facts.plan), None)
        distances = _distances(entries)
        statements = [e.memoized("statement") or statement_of(e) for e in entries]
        agreed = _agreed(statements)
        self._templates.update(
            p.text.translate(_NO_DIGITS)
            for s in statements
            if s.is_final and s.speaker == "assistant"
            for p in s.passages
        )
        fine_from = len(entries) - _FINE_ENTRIES
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
        label = len(self.options)
        if statement.speaker == "user":
            statement = self._without_quoted(statement)
        weight = _weight(statement, age)
        repeats = None
        if statement.fingerprint and seq is not None:
            first = self._fingerprints.setdefault(statement.fingerprint, seq)
            repeats = first if first != seq else None
        said = _Said(seq, statement, label, repeats)
        self._items.append(said)
        self.options.append(Option(size_of(self._label(said)) + 1, 0.0))
        if repeats is not None:
            self.options[label] = Option(size_of(self._label(said)) + 60, score(weight * _REPEATED_FACTOR, 60))
            return
        least = 0.0 if statement.speaker == "user" else _LEAST_WORTH
        if is_old and statement.speaker != "user":
            least = max(least, _least_worth(statement.passages))
        best = max(p.worth for p in statement.passages) if statement.is_final else math.inf
        shorts: list[int] = []
        for passage in statement.passages:
            is_noise = passage.worth < least or self._is_repeated(passage, statement)
            worth = 0.0 if is_noise else weight * passage.worth
            if passage.worth >= best and statement.speaker == "assistant":
                worth *= _BEST_FACTOR
                best = math.inf
            if (times := self._templates.get(passage.text.translate(_NO_DIGITS), 1)) > _MOST_ALIKE:
                worth /= math.sqrt(times)
            shorts.append(len(self.options))
            needs = label if passage.lead < 0 else shorts[passage.lead]
            size = size_of(passage.short)
            more = size_of(passage.text) - size
            self.options.append(Option(size + 3, score(worth, size), needs))
            self._add_step(worth * _REST_FACTOR, size + more, more, shorts[-1])

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
        texts = (brief, whole, *_openings(detail), detail) if has_detail else (brief, whole)
        is_looked_at = line.kind == "read" and line.target in self._changed
        is_binding = line.user_words and f"“{line.user_words}”" not in self._already
        weight = _BINDING_WEIGHT if is_binding else age * (_OLD_PLAN_FACTOR if is_old_plan else 1.0)
        if self._subjects and line.repeatable is not None and not self._subjects.isdisjoint(line.repeatable.values):
            weight *= _REPEATED_FACTOR
        self._add_texts(
            texts,
            weight * line.worth,
            brief_worth=0.0 if is_looked_at else weight * _LEAST_CALL_WORTH,
            detail_weight=_NEWEST_DETAIL_WEIGHT if is_newest else _DETAIL_WEIGHT,
        )
        if document is not None and document.passages:
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

    # -- rendering ---------------------------------------------------------------------------------------------------

    def render(self, taken: set[int]) -> str:
        """Render the taken options in order; neighbouring brief calls share a line."""
        out: list[str] = []
        brief: list[str] = []
        for item in self._items:
            if item.first not in taken:
                continue
            if isinstance(item, _Done):
                level = next((n for n in range(len(item.texts) - 1, 0, -1) if item.first + n in taken), 0)
                if level == 0:
                    brief.append(item.texts[0])
                    continue
                text = f"{CALL} {item.texts[level]}"
            else:
                text = self._statement_text(item, taken)
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
        title = f" ({said.statement.title})" if said.statement.title else ""
        return f"{LABELS[said.statement.speaker]}{title} {self._address(said.seq)}".rstrip() + ":"

    def _address(self, seq: int | None) -> str:
        return f"[{seq}]" if self._has_addresses and seq is not None else ""


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


def _openings(detail: str) -> Iterator[str]:
    """Yield beginnings of a detail: its first lines, and before them the first row where those are long."""
    lines = detail.split("\n")
    opening = "\n".join(lines[:_OPENING_LINES])
    if len(opening) > _LONG_OPENING_CHARS and len(lines) > 2:
        yield "\n".join((*lines[:2], "  …"))
    if len(lines) > _OPENING_LINES:
        yield f"{opening}\n  …"


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
