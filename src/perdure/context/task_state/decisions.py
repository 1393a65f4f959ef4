"""Read from messages what belongs to the state of a task: decisions, plans and rules the user sets.

Each message is read once and the result is cached with its entry. `DecisionLog` follows the decisions of a conversation
and marks those that a later message replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from perdure.context.patterns import PatternMatcher
from perdure.context.redacted_entries import redact_part
from perdure.context.task_state.proposals import may_take_up
from perdure.context.task_state.state import TaskDecision
from perdure.context.text import is_narration, sentences, tidy
from perdure.context.user_text.intent import (
    NO_SENTENCES,
    carries_text,
    changes_among,
    corrections_among,
    is_bare,
    may_lay_down,
    own_words,
    read_sentences,
    rules_among,
    typed_text,
)
from perdure.core.messages import SUMMARY_OPENINGS, Entry, Message, TextPart, ToolCall
from perdure.redaction import redact

# A choice between ways, in the assistant's words.
CHOICE = PatternMatcher(
    marks=(
        "deci", "chose", "instead of", "rather than", "opted", "going with", "go with", "let's use", "ll use",
        "root cause", "agreed", "settled", "entschieden", "décid", "реш",
    ),
    pattern=re.compile(
        r"\b(?:(?:we|I|you|was|were|been|user|team)(?:'ve| have)? (?:decided|chose|opted|agreed|settled)"
        r"|the decision (?:is|was)|(?:I'm|we're|am|are) going with|let's (?:use|go with)"
        r"|we(?:'ll| will) (?:use|go with)|root cause (?:is|was)"
        r"|instead of|rather than|haben uns entschieden|avons décidé|hemos decidido|решили)\b",
        re.IGNORECASE,
    ),
    cjk=re.compile("决定|改用|选择了|根本原因|に決め|ことにし|根本原因|결정했|하기로|근본 원인"),
)  # fmt: skip
# "Instead of" and "rather than" count as a choice only beside a subject or a verb of change.
_COMPARES = re.compile(r"\b(?:instead of|rather than)\b", re.IGNORECASE)
_CHANGES = re.compile(
    r"\b(?:we|I|now|changed|switched|moved|uses?|using|kept|stores?|stored|returns?|returned)\b.{3,120}"
    r"\b(?:instead of|rather than)\b",
    re.IGNORECASE,
)
_GUESSES = re.compile(
    r"\b(?:I bet|maybe|perhaps|might|may|probably|possibly|would|could|suppose|seems?|likely|if)\b", re.IGNORECASE
)
# A choice in the user's words: shorter, often without a word for deciding.
_USER_CHOICE = re.compile(
    r"^(?:(?:ok(?:ay)?|yes|yeah|no|so|then|actually|hm+|and|but)[,.! ]+)*"
    r"(?:let'?s (?!see|look|check|try\b(?! implement))|go with|use |do nothing|skip |keep (?!in mind)"
    r"|drop |remove |revert |I (?:think|guess) (?:we|you|it|that) (?:should|can|could|is)"
    r"|I(?:'d| would) (?:rather|prefer|go)|we (?:should|will|can (?:drop|remove|skip|ignore|leave))|option \w"
    r"|the (?:first|second|last) (?:one|option)|don't |not )"
    r"|\binstead(?: of)?\b|\brather than\b|\b(?:wir nehmen|lieber|stattdessen|mejor|plutôt|лучше)\b"
    r"|用.{1,20}吧|改用|改成|不用了|选|就.{0,10}吧|にして|ではなく|にしよう|으로 (?:하자|해)|대신",
    re.IGNORECASE,
)
# The phrase after these names what is given up.
_INSTEAD_OF = re.compile(
    r"\b(?:instead of|rather than|no longer|not|replac(?:e|ed|es|ing)|drop(?:ped)?|remov(?:e|ed|ing)|revert(?:ed)?|undo"
    r"|(?:switch|move|chang|migrat)\w* (?:away )?from|statt|anstatt|anstelle von|au lieu d[e']|en lugar de|вместо)\s+"
    r"(.{3,80}?)(?=[,.;:)!?]|\b(?:because|since|to|and|with|weil)\b|$)",
    re.IGNORECASE,
)
_INSTEAD_OF_CJK = re.compile(
    "(?:不再用|不用|弃用|代替|从)(.{1,20}?)(?:改|换|，|。|$)|(.{1,20}?)(?:ではなく|の代わりに|대신)"
)
# "No, remove this again": gives up what the message before it decided or proposed.
_TAKES_BACK = re.compile(
    r"^(?:(?:ok(?:ay)?|hm+|ah|sorry|wait)[,.! ]+)*(?:no\b.{0,40}\b(?:remove|revert|undo|back)|(?:remove|revert|undo)\b"
    r".{0,20}\b(?:this|that|it|again)|scratch that|let'?s not|不要了|撤销|やめ|되돌려|mach das rückgängig"
    r"|nein,? doch nicht)",
    re.IGNORECASE,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that carry nothing about the subject of a decision.
_COMMON = _words(
    """the and for that this with use using used instead rather than lets let not from into because will would should
    can could are was were has have had our your its but then all any keep kept going decided decision chose choose
    option think guess one two also just only now again please out off over they them what when which who how why
    implement implemented add added make made change changed"""
)
_WORD = re.compile(r"[^\W_]{3,}")
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD_OR_CJK = re.compile(rf"[^\W_{_CJK}]{{3,}}|[{_CJK}]")
_LONGEST = 300
_SHORTEST = 30
_MOST = 60
_SAME_SHARE = 0.75
_SHORT_TOPIC = 6
_QUESTION = re.compile(
    r"[?？]\s*$|^\W*(?:can|could|would|should|shall|is|are|does|do you|did|why|how|what|which|who|when|where)\b",
    re.IGNORECASE,
)
# A choice without a topic ("ok, let's do this") is not useful alone.
_FEWEST_WORDS = 2
_FEWEST_SUBJECT_WORDS = 4


@dataclass(slots=True)
class DecisionLog:
    """Decisions in order, updated by one message at a time."""

    _decisions: list[TaskDecision] = field(default_factory=list)
    # The topic of each decision, parallel to them.
    _topics: list[frozenset[str]] = field(default_factory=list)
    _last_user_seq: int = -1

    @property
    def decisions(self) -> tuple[TaskDecision, ...]:
        return tuple(self._decisions)

    def add_user(self, seq: int, choices: Sequence[str], *, takes_back: bool, about: str = "") -> None:
        """Add the user's choices; `about` is the part of the assistant's proposals that they refer to."""
        if takes_back:
            self._decisions = [
                replace(d, superseded_seq=seq) if d.seq >= self._last_user_seq and not d.superseded_seq else d
                for d in self._decisions
            ]
        for text in choices:
            self._add(TaskDecision(text, seq, is_by_user=True, about=about))
        self._last_user_seq = seq

    def undo(self, seqs: Collection[int], *, by_seq: int) -> None:
        """Mark what was decided at some positions as replaced, because its edits were undone."""
        self._decisions = [
            replace(d, superseded_seq=by_seq) if d.seq in seqs and d.superseded_seq is None else d
            for d in self._decisions
        ]

    def add_assistant(self, seq: int, choices: Sequence[str]) -> None:
        for text in choices:
            self._add(TaskDecision(text, seq))

    def _add(self, decision: TaskDecision) -> None:
        words = topic_words(f"{decision.text} {decision.about}")
        dropped = [topic_words(phrase) for phrase in find_abandoned(decision.text)]
        for i, earlier in enumerate(self._decisions):
            if earlier.superseded_seq is None and _is_superseded(self._topics[i], words, dropped):
                self._decisions[i] = replace(earlier, superseded_seq=decision.seq)
        self._decisions.append(decision)
        self._topics.append(words)
        if len(self._decisions) > 2 * _MOST:
            self._decisions = _newest_valid(self._decisions)
            self._topics = [topic_words(d.text) for d in self._decisions]


def _newest_valid(decisions: Sequence[TaskDecision]) -> list[TaskDecision]:
    """Return the newest decisions that still hold, at most `_MOST` each of the user and the assistant, in order."""
    valid = [d for d in decisions if d.superseded_seq is None]
    others = [d for d in valid if not d.is_by_user][-_MOST:]
    users = [d for d in valid if d.is_by_user][-_MOST:]
    return sorted((*others, *users), key=lambda d: d.seq)


def find_abandoned(text: str) -> list[str]:
    """Return the phrases of a text that name what is no longer wanted."""
    phrases = [m[1] for m in _INSTEAD_OF.finditer(text)]
    return phrases if text.isascii() else phrases + [m[1] or m[2] for m in _INSTEAD_OF_CJK.finditer(text)]


def _is_superseded(earlier: frozenset[str], words: frozenset[str], dropped: Sequence[frozenset[str]]) -> bool:
    """Whether a decision is about what a later one gives up, or is the same one reworded."""
    if not earlier:
        return False
    # A single word proves little against a long decision.
    if any(phrase <= earlier for phrase in dropped if len(phrase) > (len(earlier) > _SHORT_TOPIC)):
        return True
    return len(earlier & words) / len(earlier | words) >= _SAME_SHARE if words else False


def topic_words(text: str) -> frozenset[str]:
    return content_words(text) - _COMMON


def content_words(text: str) -> frozenset[str]:
    """Return the words of the beginning of a text, CJK by character."""
    opening = text[:2_000]
    return frozenset(w.lower() for w in (_WORD if opening.isascii() else _WORD_OR_CJK).findall(opening))


def has_subject(text: str) -> bool:
    """Return whether a request names what it is about, which "do it again" does not."""
    words = topic_words(text)
    return len(words) >= (_FEWEST_SUBJECT_WORDS if text.isascii() else 2 * _FEWEST_SUBJECT_WORDS)


def choices_among(sentences: Sequence[str]) -> tuple[str, ...]:
    """Return the decisions among a user's sentences; a question decides nothing."""
    # A line that introduces something pasted decides nothing.
    lines = (s for s in sentences if len(s) <= _LONGEST and not _QUESTION.search(s) and s[-1] not in ":：")
    chosen = (s for s in lines if _USER_CHOICE.search(s) and len(topic_words(s)) >= _FEWEST_WORDS)
    return tuple(islice(chosen, 3))


def takes_back(own: str) -> bool:
    """Whether a user message gives up what was decided right before it."""
    return _TAKES_BACK.match(own) is not None


def assistant_choices(message: Message) -> tuple[str, ...]:
    """Return the decisions of one assistant message, without narration of what comes next."""
    if not CHOICE.may_be_in(message.text):
        return ()
    lines = [s for s in sentences(message.text) if _is_statement(s)]
    if message.tool_calls:  # what the next call does is no choice
        lines = [s for s in lines if not is_narration(s) and not s.startswith(("Let's", "Let’s", "Thought:"))]
    chosen = (s for s in CHOICE.among(lines, message.text) if not _COMPARES.search(s) or _is_change(s))
    return tuple(redact(tidy(s.lstrip("-*#> "))) for s in chosen)[:4]


def _is_change(sentence: str) -> bool:
    """Whether a comparison tells what was chosen: no guess, and no quotation."""
    return (
        _CHANGES.search(sentence) is not None and not _GUESSES.search(sentence) and sentence.lstrip()[0] not in "\"“>'"
    )


def _is_statement(sentence: str) -> bool:
    """Return whether a sentence is long enough to be understood, and no heading or question."""
    least = _SHORTEST if sentence.isascii() else _SHORTEST // 3
    return least < len(sentence) <= _LONGEST and not sentence.rstrip("*_ ").endswith(("?", "？", ":", "："))


_LAST_CHARS = 400
_SHORTEST_PLAN = 12
PLAN = PatternMatcher(
    marks=("next", "then", "remain", "still", "to do", "todo", "[ ] "),
    pattern=re.compile(
        r"^(?:\W*(?:next(?: steps?)?|then|remaining|still (?:need|to do|left)|to ?do|left to do)\b|\W*\[ \] "
        r"|.*\b(?:remains to be|still needs? to)\b)",
        re.IGNORECASE,
    ),
    cjk=re.compile("接下来|下一步|还需要|次に|残り|まだ|다음(?:으로|은)|남은"),
)
_LONGEST_ANNOUNCEMENT = 160
_ANNOUNCED = re.compile(r"[\w./:=-]+")
# Words that say nothing beside the call that follows.
_ANNOUNCING = frozenset(
    re.findall(
        r"[\w']+",
        "next now then first finally let me let's i i'll ll will am going to the a an for of on in and with it this "
        "that its again also step call calling run running read reading check checking set setting use using do doing "
        "open opening write writing update updating create creating look looking at file module tool command go ahead",
    )
)
# What a client writes before the words of a user who stopped a turn.
_INTERRUPTION = re.compile(r"\A\[(?:Request )?interrupted by (?:the )?user[^\]\n]{0,40}\]\s*(?=\S)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UserReading:
    """A user message: its text as a request, the user's own words, and the rules and decisions in them."""

    text: str
    own_words: str
    is_bare: bool
    rules: tuple[str, ...] = ()
    corrections: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    takes_back: bool = False
    # It may state a rule, but also holds a text: it is quoted as it is, and no instruction is extracted.
    may_bind: bool = False
    carries_text: bool = False
    # Short enough for an answer, it agrees, declines or chooses.
    may_answer: bool = False


def user_reading(entry: Entry) -> UserReading:
    reading: UserReading | None = entry.get_memo("user reading")
    return reading or entry.memo("user reading", lambda m: read_user(m, partial(redact_part, entry)))


def revisions_of(entry: Entry) -> tuple[str, ...]:
    """Return the cached statements of a user message that may take back or change an instruction, and are none."""
    return entry.memo("revisions", lambda _: _read_revisions(user_reading(entry)))


def _read_revisions(reading: UserReading) -> tuple[str, ...]:
    is_own = not reading.is_bare and not reading.carries_text
    return changes_among(reading.own_words, reading.rules) if is_own else ()


def decisions_of(entry: Entry) -> tuple[str, ...]:
    """Return the cached decisions of an assistant message."""
    return entry.memo("decisions", assistant_choices)


def plan_of(entry: Entry) -> tuple[str, ...]:
    """Return the open steps that an assistant message lists."""
    return entry.memo("plan", _read_plan)


def announcement_of(entry: Entry) -> str:
    """Return the last sentence of an assistant message, which announces its calls; "" for a long one."""
    return entry.memo("announcement", _read_announcement)


def _read_announcement(message: Message) -> str:
    ending = sentences(message.text)[-1:]
    last = redact(tidy(ending[0].strip(" *_-#>"))) if ending else ""
    is_step = bool(ending) and (ending[0].startswith(("**", "#")) or last.endswith((":", "：")) or is_narration(last))
    return last if is_step and _SHORTEST_PLAN <= len(last) <= _LONGEST_ANNOUNCEMENT else ""


def request_text(message: Message) -> str:
    """Return the text of a user message as a request; "" for markup of a client or a summary of another system."""
    text = typed_text(message)
    return "" if text.startswith(SUMMARY_OPENINGS) else text


def _without_interruption(message: Message) -> Message:
    """Return a message without a client's mark of an interrupted turn before what the user typed next."""
    content = message.content
    if isinstance(content, str) and (marker := _INTERRUPTION.match(content)) is not None:
        return message.with_content(content[marker.end() :])
    if isinstance(content, tuple) and len(content) > 1 and isinstance(first := content[0], TextPart):
        # Messages of a user that follow each other are parts of one.
        return message.with_content(content[1:]) if INTERRUPTED.match(first.text.strip()) else message
    return message


def read_user(message: Message, redact: Callable[[str], str] = redact) -> UserReading:
    """Read a user message. Pure, so the result can be cached; `redact` may know that it holds no secret."""
    message = _without_interruption(message)
    asked = request_text(message)
    text = redact(asked)
    if not text:
        return UserReading("", "", is_bare=False)
    if is_bare(text):
        return UserReading(text, text, is_bare=True, may_answer=may_take_up(text))
    typed = own_words(message)
    own = text if typed == asked else redact(typed)  # mostly the same
    user = read_sentences(own) if may_lay_down(own, _USER_CHOICE.search) else NO_SENTENCES
    if carries_text(message, own):
        return UserReading(
            text,
            own,
            is_bare=False,
            takes_back=takes_back(own),
            may_bind=bool(rules_among(user)),
            carries_text=True,
            may_answer=may_take_up(own),
        )
    return UserReading(
        text,
        own,
        is_bare=False,
        rules=rules_among(user),
        corrections=corrections_among(user.sentences),
        choices=choices_among(user.sentences),
        takes_back=takes_back(own),
        may_answer=may_take_up(own),
    )


def announces(text: str, calls: Sequence[ToolCall]) -> bool:
    """Whether a sentence before calls merely names what they do ("Next: read billing.py")."""
    if not calls or len(text) > _LONGEST_ANNOUNCEMENT:
        return False
    call_text = " ".join(f"{c.name} {c.arguments[:2_000]}" for c in calls[:8]).lower()
    words = (w.rstrip(".:-") for w in _ANNOUNCED.findall(text.lower()))
    return all(w in _ANNOUNCING or w in call_text for w in words if w)


def _read_plan(message: Message) -> tuple[str, ...]:
    # What the calls of the message do is no longer to be done.
    ahead = [s for s in sentences(message.text) if not announces(s, message.tool_calls)]
    planned = PLAN.among(ahead, message.text)
    return tuple(redact(tidy(s.lstrip("-*#> "))) for s in planned if _SHORTEST_PLAN < len(s) <= _LAST_CHARS)[:8]


# What a client writes in the user's place when a turn is stopped.
INTERRUPTED = re.compile(r"^\[(?:Request )?interrupted by (?:the )?user[^\]]*\]$", re.IGNORECASE)
