"""The outline of a stretch of the log: what its messages state and its calls do, in order, without a budget."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, groupby, pairwise

from perdure.context.fitting import age_factor
from perdure.context.record.statements import (
    CALL,
    NOTHING_STATED,
    Dialogue,
    Statement,
    carried_statement,
    parse_items,
    statement_of,
)
from perdure.context.task_state.instructions import find_listed
from perdure.context.text import Passage, clip, sentences
from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.undone_edits import UNDONE, CallKey, UndoneEdits
from perdure.core.messages import SUMMARY_OPENINGS, Entry, Message, ToolCall

# The line of each call, by the position of the message that made it and the id of the call.
CallLines = Mapping[tuple[int, str], CallLine]

# In the place of the newest request, which is in view word for word below the handoff.
REQUEST_MARK = "[the newest request, which follows these notes word for word; what comes next was done for it]"
# A call by its target, in characters.
BRIEF_CHARS = 90
# A reply that the user agreed to with a word or two.
AGREED_FACTOR = 1.6
# Of words that the sections quote, the first ones remain; fewer of an instruction, which stands there for good.
_QUOTED_CHARS = 78
_RULE_CHARS = 32
_GAP = "…"
_RULES_HEADING = "## Constraints & Preferences\n"
_POSITIONS = re.compile(r"\bm:([\d,]+)")
# Sentences that differ only in their numbers count less each from this many on.
_MOST_ALIKE = 4
_DIGITS = re.compile(r"[0-9]+")
_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))
# By its end a passage is told from most others.
_ENDING_CHARS = 4
# Characters of the log after which text counts about 70% of the newest.
_HALF_LIFE_CHARS = 120_000
# Entries with all their options; of older ones only what the user said and what weighs most.
FINE_ENTRIES = 1_500
OLD_CALL_WORTH = 0.75
# Of so many moments the searches are compared with what came after them; fewer in a row are no hunt.
_HUNTED_MOMENTS = 240
_FEWEST_SEARCHES = 4
# The worth of words that say more than what is done next.
_LEAST_CONCLUSION = 0.3
_HIT_FILE = re.compile(r"[\w.@+-]+\.\w{1,8}(?=[:\s]|$)")
# A reply that was taken back.
_UNDONE_CHARS = 120
_UNDONE_WORTH = 0.5
# What an earlier record has at a lower resolution already.
_EARLIER_FACTOR = 0.5


@dataclass(slots=True)
class StatementMoment:
    """A message that states something, and how much its age leaves of its weight."""

    # None for one carried over from an earlier record.
    seq: int | None
    statement: Statement
    age: float
    is_old: bool = False


@dataclass(slots=True)
class CallMoment:
    """A call with its line."""

    seq: int
    call: ToolCall
    line: CallLine
    age: float
    # Made since the user's last request.
    is_newest: bool


@dataclass(frozen=True, slots=True)
class CarriedCall:
    """A call of an earlier record: its texts of growing size."""

    texts: tuple[str, str, str]


Moment = StatementMoment | CallMoment | CarriedCall


@dataclass(frozen=True, slots=True)
class PassageFrequency:
    """The number of occurrences of frequent passages of replies; those that differ only in digits count as one."""

    _templates: Mapping[str, str]
    _times: Mapping[str, int]
    # The last characters of the frequent passages, without digits.
    _endings: Set[str]

    @classmethod
    def count(cls, statements: Sequence[Statement]) -> PassageFrequency:
        replies = (s for s in statements if s.is_final and s.speaker == "assistant")
        texts = Counter(p.text for s in replies for p in s.passages)
        templates = {text: _without_digits(text) for text in texts}
        times: Counter[str] = Counter()
        for text, count in texts.items():
            times[templates[text]] += count
        frequent = {template: count for template, count in times.items() if count > _MOST_ALIKE}
        return cls(templates, frequent, frozenset(template[-_ENDING_CHARS:] for template in frequent))

    def __bool__(self) -> bool:
        return bool(self._times)

    def of(self, text: str) -> int | None:
        """Return the number of occurrences of a frequent passage; None for others."""
        template = self._templates.get(text)
        if template is None:
            ending = text[-_ENDING_CHARS:]
            if ending not in self._endings and _DIGITS.search(ending) is None:
                return None
            template = _without_digits(text)
        return self._times.get(template)


_CODE = re.compile(r"`[^`\n]+`|\w+(?:[./_]\w+)+")
_TOLD_WORDS = re.compile(r"[^\W\d_]{4,}|\w*\d\w*")
_STEM_CHARS = 6
# Fewer words are in any text.
_FEWEST_TOLD = 4
_TOLD_SHARE = 0.8
# Of these, in one line: words from all over tell nothing.
_SAME_LINE_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class ToldLines:
    """The words of the lines of the sections, to leave out of the record what they tell in other words."""

    _lines: Sequence[frozenset[str]]
    _stems: frozenset[str]
    _words: frozenset[str]

    @classmethod
    def read(cls, sections: str) -> ToldLines:
        lines = [stems for line in sections.splitlines() if len(stems := _stems_in(line)) >= _FEWEST_TOLD]
        return cls(lines, frozenset().union(*lines), frozenset(_TOLD_WORDS.findall(sections)))

    def have(self, text: str) -> bool:
        """Whether the sections have most words of a text, and all its numbers and code; most of them in one line."""
        stems = _stems_in(text)
        missing = stems - self._stems
        if len(stems) < _FEWEST_TOLD or len(missing) > (1 - _TOLD_SHARE) * len(stems):
            return False
        if any(map(_DIGITS.search, missing)) or not self._words.issuperset(_words_of_code(text)):
            return False
        return any(len(stems & line) >= _SAME_LINE_SHARE * len(stems) for line in self._lines)


def _stems_in(text: str) -> frozenset[str]:
    words = _TOLD_WORDS.findall(text)
    if _DIGITS.search(text) is None:  # as of most
        return frozenset(w.lower()[:_STEM_CHARS] for w in words)
    return frozenset(w.lower() if _DIGITS.search(w) else w.lower()[:_STEM_CHARS] for w in words)


def _words_of_code(text: str) -> Iterator[str]:
    return (word for code in _CODE.findall(text) for word in _TOLD_WORDS.findall(code))


def _without_digits(text: str) -> str:
    # Several times faster than a pattern, but in ASCII only.
    return text.translate(_NO_DIGITS) if text.isascii() else _DIGITS.sub("", text)


@dataclass(frozen=True, slots=True)
class Outline:
    """Statements and calls of a stretch in order, before a budget chooses among them."""

    moments: Sequence[Moment]
    root: str
    has_addresses: bool
    dialogue: Dialogue | None
    # Files that were edited or written.
    changed: frozenset[str]
    newest_plan: CallLine | None
    # Edits that later work took back, with the words for it.
    undone: Mapping[CallKey, str]
    # Searches of a hunt whose hits nothing used.
    unused: Set[CallKey]
    # How often a passage occurs, digits ignored.
    frequency: PassageFrequency

    @classmethod
    def read(
        cls,
        entries: Sequence[Entry],
        lines: CallLines,
        *,
        root: str,
        earlier: str = "",
        sizes: Sequence[int],
        has_addresses: bool = True,
        dialogue: Dialogue | None = None,
        undone_replies: Set[int] = frozenset(),
    ) -> Outline:
        """Read the statements and calls of entries of these sizes; the lines of the record `earlier` come before.

        Of `undone_replies`, by their positions, the first words are shown.
        """
        fine_from = len(entries) - FINE_ENTRIES
        statements = [
            NOTHING_STATED
            if e.message.role == "tool"
            else e.get_memo("statement")
            or (NOTHING_STATED if at < fine_from and _is_faint(e.message) else statement_of(e))
            for at, e in enumerate(entries)
        ]
        requests = (at for at, s in enumerate(statements) if s.speaker == "user" and not s.is_bare)
        asked_at = max(requests, default=len(entries))
        agreed, distances = _find_agreed(statements), _distances(sizes)
        moments: list[Moment] = list(_parse_record(earlier)) if earlier else []
        changed: set[str] = set()
        newest_plan: CallLine | None = None
        for at, (entry, statement) in enumerate(zip(entries, statements, strict=True)):
            is_old = at < fine_from
            if entry.seq in undone_replies:
                statement = shorten_undone(statement)
            if statement.passages and (statement.is_final or not is_old):
                age = age_factor(distances[at], _HALF_LIFE_CHARS) * (AGREED_FACTOR if at in agreed else 1.0)
                moments.append(StatementMoment(entry.seq, statement, age, is_old))
            for call in entry.message.tool_calls:
                line = lines.get((entry.seq, call.id))
                if line is None or (at + 1 == len(entries) and line.outcome != "unknown"):
                    # The result of the last message is behind the stretch, in view.
                    continue
                if line.kind in ("edit", "write"):
                    changed.add(line.target)
                if line.facts.plan:
                    newest_plan = line
                if not is_old or line.worth >= OLD_CALL_WORTH:
                    age = age_factor(distances[at], _HALF_LIFE_CHARS)
                    moments.append(CallMoment(entry.seq, call, line, age, at > asked_at))
        return cls(
            moments,
            f"{root}/" if root else "",
            has_addresses,
            dialogue,
            frozenset(changed),
            newest_plan,
            _find_undone(entries, lines),
            _find_unused_searches(moments),
            PassageFrequency.count(statements),
        )

    def with_one_base(self, text: str) -> str:
        """Return the rows of a search with their paths below the root, which may have a part of it before them."""
        if "\n" not in text or not self.root or not text.startswith(f"{CALL} search"):
            return text
        return _base_pattern(self.root).sub("", text)

    def with_request_mark(self, seq: int) -> Outline:
        """Return the outline with a line where the newest request is, which is in view elsewhere."""
        later = (n for n, m in enumerate(self.moments) if not isinstance(m, CarriedCall) and _is_after(m.seq, seq))
        at = next(later, None)
        if at is None:  # nothing was done after it
            return self
        mark = Statement("user", (Passage(REQUEST_MARK, REQUEST_MARK, 1.0),), is_binding=True)
        return replace(self, moments=[*self.moments[:at], StatementMoment(seq, mark, 1.0), *self.moments[at:]])


def _find_undone(entries: Sequence[Entry], lines: CallLines) -> Mapping[CallKey, str]:
    """Return the edits that later calls took back; the results of the last message are behind the stretch."""
    edits = UndoneEdits()
    for entry in entries[:-1]:
        for call in entry.message.tool_calls:
            if (line := lines.get((entry.seq, call.id))) is not None:
                edits.add(entry.seq, call, line)
    return edits.marks


def shorten_undone(statement: Statement) -> Statement:
    """Return the best sentence of a reply whose edits were taken back."""
    best = max(statement.passages, key=lambda p: p.worth, default=None)
    words = f"({UNDONE}) {clip(best.text, _UNDONE_CHARS) if best is not None else ''}".rstrip()
    return replace(statement, passages=(Passage(words, words, _UNDONE_WORTH),), is_final=True, fingerprint=0)


@lru_cache(maxsize=16)
def _base_pattern(root: str) -> re.Pattern[str]:
    """Return the pattern of the ends of a root, of two folders or more, before the path of a row."""
    folders = root.strip("/").split("/")
    ends = ("/".join(folders[n:]) for n in range(1, len(folders) - 1))
    return re.compile(rf"(?m)(?<=^  )(?:{'|'.join(map(re.escape, ends))})/" if len(folders) > 2 else r"(?!)")


def _find_unused_searches(moments: Sequence[Moment]) -> Set[CallKey]:
    """Return the searches of a hunt of which no later call names a file that they found; of the newest calls.

    A hunt that goes on behind the stretch is not judged, nor a search from which the assistant concluded something.
    """
    newest = moments[-_HUNTED_MOMENTS:]
    calls = [m for m in newest if type(m) is CallMoment]
    concluded = {m.seq for m, after in pairwise(newest) if type(m) is CallMoment and _is_conclusion(after)}
    unused: set[CallKey] = set()
    names: set[str] = set()
    for is_hunt, group in groupby(reversed(calls), key=lambda m: m.line.kind in ("search", "read")):
        hunt = list(group)
        if hunt[0] is calls[-1]:
            is_hunt = False
        searches = sum(m.line.kind == "search" for m in hunt)
        for moment in hunt:
            line = moment.line
            if line.kind == "search" and line.outcome == "ok":
                is_judged = is_hunt and searches >= _FEWEST_SEARCHES and moment.seq not in concluded
                if is_judged and names.isdisjoint(_HIT_FILE.findall(line.detail)):
                    unused.add((moment.seq, moment.call.id))
            else:
                facts = line.facts
                paths = (line.target, *facts.read_files, *facts.changed_files)
                names.update(path.rpartition("/")[2] for path in paths)
    return unused


def _is_conclusion(moment: Moment) -> bool:
    return type(moment) is StatementMoment and any(p.worth >= _LEAST_CONCLUSION for p in moment.statement.passages)


def _is_after(seq: int | None, other: int) -> bool:
    return seq is not None and seq > other


def without_request_mark(record: str) -> str:
    """Return a record without the line that marks the newest request of its time."""
    return "\n".join(line for line in record.split("\n") if REQUEST_MARK not in line) if record else ""


def _parse_record(record: str) -> Iterator[Moment]:
    """Yield the items of an earlier record."""
    for label, title, text in parse_items(record):
        if label == CALL:
            line = text.partition("\n")[0]
            yield CarriedCall((clip(line, BRIEF_CHARS), line, text))
        else:
            statement = replace(carried_statement(label, text), title=title)
            yield StatementMoment(None, statement, _EARLIER_FACTOR)


def _is_faint(message: Message) -> bool:
    """Whether an old message shows nothing but its calls: its text need not be parsed."""
    return bool(message.tool_calls) or message.text.startswith(SUMMARY_OPENINGS)


def _find_agreed(statements: Sequence[Statement]) -> set[int]:
    """Return the indexes of the replies that the user agreed to or chose from with a word or two."""
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


def _distances(sizes: Sequence[int]) -> list[int]:
    """Characters of the log between each entry and its end."""
    return list(accumulate(reversed(sizes), initial=0))[-2::-1]


@dataclass(frozen=True, slots=True)
class QuotedWords:
    """The text of the sections, and the instructions of the user that they quote, with the positions of those."""

    text: str = ""
    rules: frozenset[str] = frozenset()
    seqs: frozenset[int] = frozenset()

    @classmethod
    def of(cls, text: str) -> QuotedWords:
        section = text.partition(_RULES_HEADING)[2].partition("\n## ")[0]
        listed = list(find_listed(section))
        seqs = {int(n) for _, where in listed for m in _POSITIONS.finditer(where) for n in m[1].split(",") if n}
        return cls(text, frozenset(rule for rule, _ in listed), frozenset(seqs))

    def has_rule_of(self, seq: int | None) -> bool:
        """Return whether a message may have an instruction among them; of an earlier record that is not known."""
        return bool(self.rules) and (seq is None or seq in self.seqs)

    def without(self, seq: int | None, statement: Statement) -> Statement:
        """Return the statement with its place in the record, but only the first words of what the sections quote."""
        is_quoted = [f"“{p.text}”" in self.text for p in statement.passages]
        has_rule = self.has_rule_of(seq)
        if not any(is_quoted) and not has_rule:
            return statement
        passages = []
        for passage, is_whole in zip(statement.passages, is_quoted, strict=True):
            shorter = self._without_rules(passage) if has_rule else passage
            if is_whole and shorter is passage:
                text = clip(passage.text, _QUOTED_CHARS)
                shorter = replace(passage, text=text, short=text)
            passages.append(shorter)
        is_binding = statement.is_binding and not all(is_quoted)
        return replace(statement, passages=tuple(passages), is_binding=is_binding)

    def _without_rules(self, passage: Passage) -> Passage:
        """Return a passage with `…` in the place of instructions; of one that is nothing else, the first words."""
        if " ".join(passage.text.split()) in self.rules:
            text = clip(passage.text, _RULE_CHARS)
            return replace(passage, text=text, short=text)
        pieces = [_GAP if " ".join(s.split()) in self.rules else s for s in sentences(passage.text)]
        if _GAP not in pieces:
            return passage
        text = " ".join(s for s, _ in groupby(pieces))
        return replace(passage, text=text, short=clip(text, len(passage.short)))
