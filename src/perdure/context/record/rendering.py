"""The options to show the statements and calls of a stretch of the log, and the text of those that fit a budget.

A `Drawing` has the options beside the text of the sections. The one that also quotes documents is derived from it, for
most of its options stay the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import groupby

from perdure.context.fitting import Options, fill_budget, score
from perdure.context.record.documents import QuotedDocument
from perdure.context.record.outline import (
    AGREED_FACTOR,
    BRIEF_CHARS,
    CallMoment,
    CarriedCall,
    Outline,
    QuotedWords,
    StatementMoment,
    ToldLines,
)
from perdure.context.record.statements import CALL, LABELS, OPENING, Speaker, Statement, announces_end
from perdure.context.task_state.state import parse_steps
from perdure.context.text import Passage, clip, join_passages, size_of, split_passages
from perdure.context.tool_calls.call_line import CallKind, CallLine
from perdure.context.tool_calls.compose import openings
from perdure.context.tool_calls.output import (
    LINE_CHARS,
)
from perdure.core.messages import ToolCall

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
# A consent or a limit in a few words, which ages slowly.
_FEW_WORDS_WEIGHT = 14.0
# "Go on", "thanks": of use beside what they refer to.
_BARE_WEIGHT = 0.3
# The best sentence of a reply: a question means little without its answer.
_BEST_FACTOR = 2.5
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
_OLD_PASSAGES = 2
# A passage of this length is shown once.
_REPEATABLE_CHARS = 80
_MOST_FILLS = 2
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
_VERB_NAMES = frozenset(_VERBS.values())
# Changes and tests since the user's last request have a line each, in this share of the room.
_STEP_KINDS = frozenset[CallKind](("edit", "write", "delete", "test", "build"))
_RECENT_STEPS_SHARE = 0.15
# Calls whose target is a path.
_FILE_KINDS = frozenset[CallKind](("read", "write", "edit", "delete"))
# A longer path is clipped in a line.
_PATH_CHARS = 80
_EARLIER_CALL = 0.1


@dataclass(slots=True)
class _Said:
    """A statement to show; its first option is its label."""

    seq: int | None
    statement: Statement
    # Position of the message with the same text.
    repeats: int | None = None
    # Another conversation begins with it.
    is_opening: bool = False


@dataclass(slots=True)
class _Done:
    """A call to show: its texts of growing size, an option each; the first is its target, or its line."""

    texts: tuple[str, ...]
    is_line_first: bool = False
    # A change or a test since the user's last request.
    is_recent_step: bool = False


@dataclass(slots=True)
class _CallSpan:
    """The position of a call among the items and options of a drawing."""

    moment: CallMoment
    item: int
    first: int
    end: int


@dataclass(slots=True)
class Drawing:
    """The statements and calls of an outline, and the options to show them beside the text of the sections."""

    outline: Outline
    already: str
    options: Options = field(default_factory=Options)
    _items: list[_Said | _Done] = field(default_factory=list)
    # Index of the first option of each item.
    _firsts: list[int] = field(default_factory=list)
    # Long passages that are shown, by the index of the first item; and those of the user, which do not count as shown.
    _passages: dict[str, int] = field(default_factory=dict)
    _user_passages: set[str] = field(default_factory=set)
    _fingerprints: dict[int, int] = field(default_factory=dict)
    # The option that shows the last sentence of each message of a dialogue.
    _last_sentences: dict[int, int] = field(default_factory=dict)
    # What the sections list as done, step by step.
    _subjects: frozenset[str] = frozenset()
    # What they quote of the user's words.
    _quoted: QuotedWords = field(default_factory=QuotedWords)
    _calls: list[_CallSpan] = field(default_factory=list)
    # Index of the item and the moment of each statement of the user.
    _requests: list[tuple[int, StatementMoment]] = field(default_factory=list)

    @classmethod
    def read(
        cls, outline: Outline, already: str = "", documents: Mapping[str, QuotedDocument] | None = None
    ) -> Drawing:
        """Add the options of an outline; of `documents`, by the ids of their calls, also the text."""
        drawing = cls(outline, already, _subjects=_subjects_in(already), _quoted=QuotedWords.of(already))
        for moment in outline.moments:
            if type(moment) is StatementMoment:
                if moment.statement.speaker == "user":
                    drawing._requests.append((len(drawing._items), moment))
                drawing._add_statement(moment.seq, moment.statement, moment.age, is_old=moment.is_old)
            elif type(moment) is CallMoment:
                drawing._add_call(moment, _document_of(moment.call, documents) if documents else None)
            elif type(moment) is CarriedCall:
                drawing._add_texts(moment.texts, _EARLIER_CALL)
        return drawing

    def fill(self, room: int) -> str:
        """Return the text of the best options that fits the room; "" where none does."""
        first = self._recent_steps(int(_RECENT_STEPS_SHARE * room))
        text, chosen = fill_budget(self.options, room, self.render, first=first)
        told = ToldLines.read(self.already)
        for _ in range(_MOST_FILLS if self.already else 0):
            if not self._leave_out_told(chosen, told):
                break
            text, chosen = fill_budget(self.options, room, self.render, first=first)
        return text

    def _leave_out_told(self, chosen: set[int], told: ToldLines) -> bool:
        """Leave out the chosen passages, a few of thousands, that the sections tell already; whether there are any."""
        scores, count = self.options.scores, 0
        for item, label in zip(self._items, self._firsts, strict=True):
            if label not in chosen or type(item) is not _Said or item.repeats is not None:
                continue
            if item.statement.speaker == "user" or item.statement.is_binding:
                continue
            for at, passage in zip(range(label + 1, len(scores), 2), item.statement.passages, strict=False):
                if at in chosen and scores[at] and told.have(passage.text):
                    scores[at] = scores[at + 1] = 0.0
                    count += 1
        return count > 0

    def _recent_steps(self, room: int) -> list[int]:
        """Return the options of the lines of the newest changes and tests that fit."""
        chosen: list[int] = []
        for item, first in zip(reversed(self._items), reversed(self._firsts), strict=True):
            if type(item) is _Done and item.is_recent_step:
                room -= size_of(item.texts[1]) + len(CALL) + 2
                if room < 0:
                    break
                chosen.append(first + 1)
        return chosen

    def with_documents(self, documents: Mapping[str, QuotedDocument]) -> Drawing:
        """Return the drawing that also quotes documents; itself where it shows none of their calls."""
        if not documents:
            return self
        quoted = [(span, d) for span in self._calls if (d := _document_of(span.moment.call, documents)) is not None]
        if not quoted:
            return self
        if self.outline.dialogue is not None:
            return Drawing.read(self.outline, self.already, documents)
        passages = {p.text for _, d in quoted for p in d.passages}
        if not passages.isdisjoint(self._passages.keys()) or not passages.isdisjoint(self._user_passages):
            # What a document shows, later messages do not show again.
            return Drawing.read(self.outline, self.already, documents)
        drawing = self._part()
        item = option = 0
        for span, document in quoted:
            drawing._copy(self, (item, span.item), (option, span.first))
            drawing._add_call(span.moment, document)
            item, option = span.item + 1, span.end
        drawing._copy(self, (item, len(self._items)), (option, len(self.options)))
        return drawing

    def beside(self, already: str) -> Drawing:
        """Return the drawing beside the text of the sections, of one that was read without them.

        Only what the sections show differs, and every item keeps its number of options.
        """
        if self.already or self.outline.dialogue is not None:
            return Drawing.read(self.outline, already)
        drawing = Drawing(
            self.outline,
            already,
            Options([*self.options.sizes], [*self.options.scores], self.options.needs),
            [*self._items],
            self._firsts,
            {text: item for text, item in self._passages.items() if text not in already},
            self._user_passages,
            _subjects=_subjects_in(already),
            _quoted=QuotedWords.of(already),
            _calls=self._calls,
        )
        shown = self._passages.keys() - drawing._passages.keys()
        for item, first in zip(self._items, self._firsts, strict=True) if shown else ():
            if type(item) is _Said and item.repeats is None and item.statement.speaker != "user":
                drawing._leave_out(shown, item.statement, first)
        for at, moment in self._requests:
            if drawing._quoted.has_rule_of(moment.seq) or any(p.text in already for p in moment.statement.passages):
                part = drawing._part()
                # What was said before it.
                texts = (p.text for p in moment.statement.passages)
                part._passages = {text: n for text in texts if (n := self._passages.get(text, at)) < at}
                part._fingerprints = self._fingerprints
                part._add_statement(moment.seq, moment.statement, moment.age, is_old=moment.is_old)
                drawing._replace(at, part)
        for span in self._calls:
            if span.moment.line.user_words or drawing._is_listed(span.moment.line):
                part = drawing._part()
                part._add_call(span.moment, None)
                drawing._replace(span.item, part)
        return drawing

    def _part(self) -> Drawing:
        """Return an empty drawing for one item."""
        return Drawing(self.outline, self.already, _subjects=self._subjects, _quoted=self._quoted)

    def _replace(self, at: int, part: Drawing) -> None:
        """Replace an item by that of another drawing, which has as many options."""
        first, count = self._firsts[at], len(part.options)
        self._items[at] = part._items[0]
        self.options.sizes[first : first + count] = part.options.sizes
        self.options.scores[first : first + count] = part.options.scores

    def _leave_out(self, texts: Set[str], statement: Statement, label: int) -> None:
        """Leave out some passages of a statement."""
        scores = self.options.scores
        for at, passage in enumerate(statement.passages):
            if passage.text in texts:
                scores[label + 1 + 2 * at] = scores[label + 2 + 2 * at] = 0.0

    def has_same_options(self, documents: Mapping[str, QuotedDocument]) -> bool:
        """Whether a drawing that leaves out the details of the documents' calls shows the same."""
        quoted = (span for span in self._calls if _document_of(span.moment.call, documents) is not None)
        # The options of a call are its target and its line, then its details.
        return not any(any(self.options.scores[span.first + 2 : span.end]) for span in quoted)

    def _copy(self, other: Drawing, items: tuple[int, int], options: tuple[int, int]) -> None:
        """Append a range of the items and options of another drawing."""
        lo, hi = options
        shift = len(self.options) - lo
        self._items += other._items[slice(*items)]
        self._firsts += [first + shift for first in other._firsts[slice(*items)]]
        self.options.sizes += other.options.sizes[lo:hi]
        self.options.scores += other.options.scores[lo:hi]
        # An option needs others of its own item only.
        self.options.needs += [n if n < 0 else n + shift for n in other.options.needs[lo:hi]]

    # -- options -----------------------------------------------------------------------------------------------------

    def _add_statement(self, seq: int | None, statement: Statement, age: float, *, is_old: bool) -> None:
        dialogue = self.outline.dialogue
        if seq is None or dialogue is None or statement.speaker not in ("user", "assistant") or not dialogue.has(seq):
            dialogue = None
        if dialogue is not None and seq is not None:
            statement = dialogue.statement(seq)
        options, label = self.options, len(self.options)
        if self.already and statement.speaker == "user":
            statement = self._quoted.without(seq, statement)
        weight = _weight(statement, age)
        if seq is None and self.outline.dialogue is not None and not statement.is_binding:
            # Lines of an earlier record count like those of the dialogue, no matter who wrote them.
            weight += (age - weight) * self.outline.dialogue.level
        repeats = None
        if statement.fingerprint and seq is not None:
            first = self._fingerprints.setdefault(statement.fingerprint, seq)
            repeats = first if first != seq else None
        item = _Said(seq, statement, repeats, dialogue is not None and seq in dialogue.openings)
        self._items.append(item)
        self._firsts.append(label)
        if repeats is not None:
            options.add(size_of(self._label(item)) + 60, score(weight * _REPEATED_FACTOR, 60))
            return
        options.add(size_of(self._label(item)) + 1, 0.0)
        worths = self._worths(statement, weight, is_old=is_old, is_carried=seq is None)
        if dialogue is not None and seq is not None and not statement.is_binding:
            worths = [dialogue.blend(w, info * age) for w, info in zip(worths, dialogue.worths(seq), strict=True)]
            options.needs[label] = self._last_sentences.get(dialogue.question_of(seq), -1)
            # A polite phrase that is left out is no omission.
            passages = (replace(p, worth=min(p.worth, w)) for p, w in zip(statement.passages, worths, strict=True))
            self._items[-1] = replace(item, statement=replace(statement, passages=tuple(passages)))
        self._add_passages(statement, worths, label)
        if dialogue is not None and seq is not None:
            self._last_sentences[seq] = len(options) - 2

    def _worths(self, statement: Statement, weight: float, *, is_old: bool, is_carried: bool) -> list[float]:
        """Return what each passage of a statement counts; 0 for noise and for what is shown already."""
        least = 0.0 if statement.speaker == "user" else _LEAST_WORTH
        if is_old and statement.speaker != "user":
            least = max(least, _least_worth(statement.passages))
        best = math.inf
        if statement.is_final and statement.speaker == "assistant":
            best = max(p.worth for p in statement.passages)
        # What an earlier record shows was selected before.
        frequency = self.outline.frequency if not is_carried and self.outline.frequency else None
        worths = []
        for passage in statement.passages:
            worth = passage.worth
            is_noise = worth < least or (
                len(passage.text) >= _REPEATABLE_CHARS and self._is_repeated(passage, statement)
            )
            total = 0.0 if is_noise else weight * worth
            if worth >= best:
                total *= _BEST_FACTOR
                best = math.inf
            if frequency is not None and (times := frequency.of(passage.text)):
                total /= math.sqrt(times)
            worths.append(total)
        return worths

    def _add_passages(self, statement: Statement, worths: Sequence[float], label: int) -> None:
        """Add two options for each passage, its short form and the rest, below its lead or the label."""
        options = self.options
        first = at = len(options)
        for passage, worth in zip(statement.passages, worths, strict=True):
            text, short, lead = passage.text, passage.short, passage.lead
            size = len(short) if short.isascii() else size_of(short)
            options.add(size + 3, score(worth, size) if worth else 0.0, label if lead < 0 else first + 2 * lead)
            whole = size if text is short else size_of(text)
            if whole > size and worth:
                options.add(whole - size, score(worth * _REST_FACTOR, whole), at)
            else:
                options.add(max(whole - size, 0), 0.0, at)
            at += 2

    def _is_repeated(self, passage: Passage, statement: Statement) -> bool:
        """Whether the passage is shown already: by the sections, or by an earlier message that is not the user's."""
        if len(passage.text) < _REPEATABLE_CHARS:
            return False
        if passage.text in self._passages or passage.text in self.already:
            return True
        if statement.speaker == "user":
            self._user_passages.add(passage.text)
        else:
            self._passages[passage.text] = len(self._items) - 1
        return False

    def _add_call(self, moment: CallMoment, document: QuotedDocument | None) -> None:
        seq, line, age = moment.seq, moment.line, moment.age
        if line.report:
            title = clip(line.target, 60)
            report = Statement("report", split_passages(line.report), is_final=True, title=title)
            # A plan that the user read binds like a reply they agreed to.
            self._add_statement(seq, report, age * (AGREED_FACTOR if line.kind == "task" else 1.0), is_old=False)
            return
        brief, whole = self._brief(line), self._local_line(line)
        detail = whole if line.detail in ("", line.line) else self._local(line.detail)
        if line.kind == "search" and len(first_line := detail.partition("\n")[0]) <= LINE_CHARS:
            whole = first_line  # its path is not clipped
        if elsewhere := self._elsewhere(line):
            whole, detail = (
                f"{whole}{elsewhere}",
                "\n".join((detail.partition("\n")[0] + elsewhere, *detail.split("\n")[1:])),
            )
        # An earlier plan is represented by its line; the newest has its items.
        is_newest_plan = line is self.outline.newest_plan
        is_old_plan = bool(line.facts.plan) and not is_newest_plan
        has_detail = (line.kind != "task" or is_newest_plan) and document is None
        if mark := self.outline.undone.get((seq, moment.call.id)):
            brief, whole, has_detail = f"{brief} ({mark})", f"{whole} ({mark})", False
        has_detail = has_detail and (seq, moment.call.id) not in self.outline.unused
        texts = (brief, whole, *openings(detail), detail) if has_detail else (brief, whole)
        is_looked_at = line.kind == "read" and line.target in self.outline.changed
        is_binding = line.user_words and f"“{line.user_words}”" not in self.already
        weight = _BINDING_WEIGHT if is_binding else age * (_OLD_PLAN_FACTOR if is_old_plan else 1.0)
        has_values = len(line.line) > LINE_CHARS
        if self._is_listed(line):
            weight *= _REPEATED_FACTOR
        item, first = len(self._items), len(self.options)
        # How many lines of a file were read adds nothing to its name, which shares a line with those of its neighbours.
        is_read = line.kind == "read" and line.outcome == "ok" and detail == whole and whole.startswith("read ")
        self._add_texts(
            texts,
            0.0 if is_read else weight * line.worth,
            brief_worth=0.0 if is_looked_at else weight * _LEAST_CALL_WORTH,
            detail_weight=(_NEWEST_DETAIL_WEIGHT if moment.is_newest else _DETAIL_WEIGHT)
            * (_KNOWN_DETAIL_FACTOR if has_values else 1.0),
            is_recent_step=moment.is_newest and line.kind in _STEP_KINDS and not self._is_listed(line),
        )
        self._calls.append(_CallSpan(moment, item, first, len(self.options)))
        if document is not None and document.is_report:
            report = Statement("report", document.passages, is_final=True, title=clip(self._local(line.target), 60))
            self._add_statement(seq, report, age, is_old=False)
        elif document is not None and document.passages:
            speaker: Speaker = "instructions" if document.is_instructions else "document"
            title = clip(self._local(line.target), 60)
            self._add_statement(seq, Statement(speaker, document.passages, title=title), age, is_old=False)

    def _is_listed(self, line: CallLine) -> bool:
        """Whether the sections list a call as done."""
        step = line.repeatable if self._subjects else None
        return step is not None and len(line.line) <= LINE_CHARS and not self._subjects.isdisjoint(step.values)

    def _add_texts(
        self,
        texts: tuple[str, ...],
        worth: float,
        *,
        brief_worth: float = 0.0,
        detail_weight: float = _DETAIL_WEIGHT,
        is_recent_step: bool = False,
    ) -> None:
        """Add a call by its texts: its target among those of its neighbours, its line, and steps of detail."""
        options, first = self.options, len(self.options)
        brief, whole, *details = map(size_of, texts)
        is_line_first = whole <= brief and worth > 0
        if is_line_first:
            # The line has the outcome in no more room than the bare target.
            options.add(whole + 3, score(max(worth * _LINE_WEIGHT, brief_worth * _BRIEF_WEIGHT), whole))
            options.add(0, 0.0, first)
        else:
            worth_of_target = _BRIEF_WEIGHT * max(worth, brief_worth) if brief_worth else 0.0
            options.add(brief + 2, score(worth_of_target, brief))
            options.add_step(worth * _LINE_WEIGHT, whole, whole + 4 - brief, first)
        texts = (texts[1], *texts[1:]) if is_line_first else texts
        self._items.append(_Done(texts, is_line_first, is_recent_step))
        self._firsts.append(first)
        size, weight = whole, worth * detail_weight
        for step, more in enumerate(details, 1):
            options.add_step(weight, more - size, more - size, first + step)
            size, weight = more, worth * detail_weight * _REST_FACTOR

    def _brief(self, line: CallLine) -> str:
        verb = _VERBS.get(line.kind, line.name if line.kind == "other" else "")
        return clip(f"{verb} {self._local(line.target)}".strip() or line.name, BRIEF_CHARS)

    def _elsewhere(self, line: CallLine) -> str:
        """Return the folder of a commit or a push in another place than most of the work."""
        folder, root = line.facts.folder, self.outline.root
        is_act = line.facts.commit is not None or line.facts.pushed is not None
        if (
            not is_act
            or not folder
            or (folder[0] == "/" and (not root or folder.startswith(root) or root.startswith(folder)))
        ):
            return ""
        return "" if folder in line.line else f" (in {folder})"

    def _local_line(self, line: CallLine) -> str:
        """Return the line of a call below the common root; a path that was clipped for it is named from there on."""
        path = self._local(line.target) if line.kind in _FILE_KINDS else ""
        if path and path != line.target and len(path) <= _PATH_CHARS:
            what, arrow, outcome = line.line.partition(" → ")
            verb, _, shown = what.partition(" ")
            if shown != line.target and line.target.endswith(shown.rpartition("…")[2].strip()):
                return f"{verb} {path}{arrow}{self._local(outcome)}"
        return self._local(line.line)

    def _local(self, text: str) -> str:
        root = self.outline.root
        return text.replace(root, "") if root else text

    # -- rendering ---------------------------------------------------------------------------------------------------

    def render(self, chosen: set[int]) -> str:
        """Render the taken options in order; neighbouring brief calls share a line."""
        out: list[str] = []
        brief: list[str] = []
        is_opening = False
        for item, first in zip(self._items, self._firsts, strict=True):
            is_opening = is_opening or (type(item) is _Said and item.is_opening)
            if first not in chosen:
                continue
            if type(item) is _Done:
                level = next((n for n in range(len(item.texts) - 1, 0, -1) if first + n in chosen), 0)
                if level == 0 and not item.is_line_first:
                    brief.append(item.texts[0])
                    continue
                text = self.outline.with_one_base(f"{CALL} {item.texts[level]}")
            else:
                assert isinstance(item, _Said)
                displayed = replace(item, is_opening=is_opening) if is_opening != item.is_opening else item
                text = self._statement_text(displayed, first, chosen)
                is_opening = is_opening and not text
            if text:
                _flush(out, brief)
                out.append(text)
        _flush(out, brief)
        return "\n".join(_merge_equal(out))

    def _statement_text(self, item: _Said, first: int, chosen: set[int]) -> str:
        label, passages = self._label(item), item.statement.passages
        if item.repeats is not None:
            where = self._address(item.repeats) or "before"
            return f"{label} [the same text as {where}: {clip(passages[0].short, 50)}]"
        levels = [(at in chosen) + (at + 1 in chosen) for at in range(first + 1, first + 1 + 2 * len(passages), 2)]
        if sum(map(bool, levels)) == 1 < len(levels) and levels[0] and announces_end(passages[0].text):
            return ""
        # Only labels and calls begin at the margin: no text can imitate another speaker.
        text = join_passages(passages, levels).replace("\n", "\n ")
        return f"{label} {text}" if text else ""

    def _label(self, item: _Said) -> str:
        if item.statement.speaker == "document":
            return "  excerpts:"
        if item.statement.speaker == "instructions":
            return f"  rules of {item.statement.title}:"
        title = item.statement.title or (OPENING if item.is_opening else "")
        title = f" ({title})" if title else ""
        return f"{LABELS[item.statement.speaker]}{title} {self._address(item.seq)}".rstrip() + ":"

    def _address(self, seq: int | None) -> str:
        return f"[{seq}]" if self.outline.has_addresses and seq is not None else ""


def _subjects_in(already: str) -> frozenset[str]:
    return frozenset(s for steps in parse_steps(already) for s in steps.subjects)


def _document_of(call: ToolCall, documents: Mapping[str, QuotedDocument]) -> QuotedDocument | None:
    return next((documents[i] for i in call.ids if i in documents), None)


def _weight(statement: Statement, age: float) -> float:
    if statement.is_binding:
        return _BINDING_WEIGHT
    if statement.is_brief:
        return _FEW_WORDS_WEIGHT * math.sqrt(age)
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
    for text in dict.fromkeys(brief):
        verb, _, target = text.partition(" ")
        verb, target = (verb, target) if verb in _VERB_NAMES else ("", text)
        if verb and groups and groups[-1][0] == verb:
            groups[-1][1].append(target)
        else:
            groups.append((verb, [target]))
    brief.clear()
    out.append(f"{CALL} " + "; ".join(f"{verb} {', '.join(targets)}".strip() for verb, targets in groups))
