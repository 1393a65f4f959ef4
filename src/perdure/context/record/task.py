"""What the modules of the record exchange: lines of calls, repeated steps, and the typed state of a task.

Every item of the state names the log positions it was read from.

"Do this for each of these modules" leaves hundreds of calls that differ in a name or two. Each alone is worth little,
but an agent that cannot see for which names they succeeded does the work again, so `RepeatedSteps` lists them together:
which tool, what came of it, for which subjects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from perdure.context.text import beginning
from perdure.redaction import redact

CallKind = Literal[
    "read", "search", "edit", "write", "delete", "test", "build", "git", "shell", "task", "delegate", "web", "other"
]
Outcome = Literal["ok", "failed", "refused", "interrupted", "unknown"]


@dataclass(frozen=True, slots=True)
class Commit:
    hash: str
    title: str = ""
    branch: str = ""


@dataclass(frozen=True, slots=True)
class TestRun:
    """The totals of a test run or a build, and what failed in it, with file:line where the output has it."""

    passed: int | None = None
    failed: int | None = None
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallFacts:
    """Facts about the state of the work that a call changed or showed; empty where there are none."""

    folder: str = ""
    branch: str = ""
    commit: Commit | None = None
    # Where a merge, a pull, a rebase or a reset left HEAD: hash and title, or that its hash was not printed.
    head: str = ""
    # The newest commit of a log that begins at HEAD.
    shown_head: str = ""
    # True after a push that succeeded, False after one that was rejected.
    pushed: bool | None = None
    tests: TestRun | None = None
    changed_files: tuple[str, ...] = ()
    read_files: tuple[str, ...] = ()
    deleted_files: tuple[str, ...] = ()
    # Old and new path of each file that was moved.
    moved_files: tuple[tuple[str, str], ...] = ()
    # Things that were created, each as "PR #12: title", "task 3: title", "comment 4411".
    created: tuple[str, ...] = ()
    # Open and finished items of a plan or todo list, as the newest call shows them.
    plan: tuple[tuple[str, bool], ...] = ()
    started_process: str = ""
    stopped_process: str = ""
    error: str = ""


NO_FACTS = CallFacts()


@dataclass(frozen=True, slots=True)
class RepeatableCall:
    """A call that may be one of many alike: its shape, the words it consists of, and its outcome."""

    # Calls with equal keys have the same number of words.
    key: tuple[str, ...]
    words: tuple[str, ...]
    outcome: str
    is_ok: bool

    @property
    def values(self) -> Iterator[str]:
        """The words, of `name=value` the value."""
        return (w.partition("=")[2] or w for w in self.words)


@dataclass(frozen=True, slots=True)
class CallLine:
    """A tool call and its result, as the record describes them."""

    kind: CallKind
    name: str
    # What it worked on: a path, a command, a pattern; neighbours with the same kind may be merged by it.
    target: str
    outcome: Outcome
    # One line of at most about 160 characters: what, on what, what came of it.
    line: str
    # The same with what a reader needs later: failing tests, both sides of an edit, the rows of a status. Several lines
    # are allowed; at most about 1,200 characters, 2,000 of data. Equal to `line` where there is nothing more to tell.
    detail: str
    # 0 (a listing) to 1 (a refusal with its reason, a failing test that is still open).
    worth: float
    # The reason the user gave for refusing the call, word for word; "" otherwise.
    user_words: str = ""
    # The result is prose with findings (a delegated agent, a reviewer): rendered like a conclusion of the assistant.
    report: str = ""
    facts: CallFacts = field(default_factory=CallFacts)
    repeatable: RepeatableCall | None = None

    @property
    def is_told(self) -> bool:
        """Whether there is anything to tell of the call."""
        return bool(self.line)


class PendingCallLine(CallLine):
    """A call that succeeded, whose texts are composed when they are first read: old looks and edits are never shown."""

    __slots__ = ("_composed",)
    _composed: CallLine | Callable[[], CallLine]

    def __init__(
        self, kind: CallKind, name: str, target: str, worth: float, facts: CallFacts, compose: Callable[[], CallLine]
    ) -> None:
        for field_name, value in zip(_PENDING_FIELDS, (kind, name, target, "ok", worth, facts, compose), strict=True):
            object.__setattr__(self, field_name, value)
        for field_name, empty in (("user_words", ""), ("report", ""), ("repeatable", None)):
            object.__setattr__(self, field_name, empty)

    @property
    def line(self) -> str:
        return self._texts().line

    @property
    def detail(self) -> str:
        return self._texts().detail

    @property
    def is_told(self) -> bool:
        return True

    def _texts(self) -> CallLine:
        composed = self._composed
        if not isinstance(composed, CallLine):
            composed = composed()
            object.__setattr__(self, "_composed", composed)
        return composed


_PENDING_FIELDS = ("kind", "name", "target", "outcome", "worth", "facts", "_composed")

# Kinds of calls that neither the files nor the commits of a task represent.
_STEPS: frozenset[CallKind] = frozenset(("other", "shell", "test", "build"))
# Tools that look at something and leave nothing done.
_LOOKS = re.compile(
    r"(?i)(?:\w+__)?(?:get|read|fetch|list|search|view|find|query|open|show|browse|inspect|calculate|compute|think)"
)
_FEWEST_SUBJECTS = 3
_LONGEST_CALL = 160
_LONGEST_SUBJECT = 60
_MOST_WORDS = 12
_OUTCOME_CHARS = 90
_PLACEHOLDER = "…"
# An outcome with as many differs in all its values.
_MOST_PLACEHOLDERS = 3
_WORDS = re.compile(r"[^\s,`“”\"']+")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z:-]*")
_NUMBERED = re.compile(r"[\w.-]*\d[\w.-]*")
STEP_MARK = "DONE "
_LISTED = re.compile(
    rf"^{STEP_MARK}(?P<steps>[^\n]{{1,200}}?) ×\d+(?: → (?P<outcome>[^\n]{{1,200}}?))?: (?P<subjects>[^\n]+)$", re.M
)
# A member of a JSON result whose value is left out.
_UNSTATED = re.compile(rf"(?:^|, )\w+: {_PLACEHOLDER}(?=,|$)")
_MORE = re.compile(r"^… \d+ more …$")


@dataclass(frozen=True, slots=True)
class RepeatedSteps:
    """Steps that succeeded for several subjects in the same way."""

    # Names of the tools or commands, in the order of their use; the last one's outcome is told.
    steps: tuple[str, ...]
    outcome: str
    # In the order of the log.
    subjects: tuple[str, ...]
    seq: int

    def describe(self, room: int) -> str:
        """One line within about `room` characters; of many subjects the first and the last are listed."""
        outcome = f" → {self.outcome}" if self.outcome else ""
        head = f"{STEP_MARK}{', '.join(self.steps)} ×{len(self.subjects)}{outcome}: "
        return head + ", ".join(_elide(self.subjects, room - len(head)))


def parse_steps(section: str) -> Iterator[RepeatedSteps]:
    """Yield the repeated steps that a section of an earlier handoff lists."""
    for listed in _LISTED.finditer(section):
        subjects = tuple(s for s in listed["subjects"].split(", ") if not _MORE.match(s))
        yield RepeatedSteps(tuple(listed["steps"].split(", ")), listed["outcome"] or "", subjects, -1)


def read_repeatable(line: CallLine) -> RepeatableCall | None:
    """Split a call into the words that may vary and its outcome; None for calls that are told otherwise."""
    if line.kind not in _STEPS or line.report or line.user_words or line.facts.commit or line.facts.created:
        return None
    what, _, outcome = line.line.partition(" → ")
    words = tuple(_WORDS.findall(what)) if len(what) <= _LONGEST_CALL else ()
    if not 2 <= len(words) <= _MOST_WORDS or (line.kind == "other" and _LOOKS.match(line.name)):
        return None
    names = (w.partition("=")[0] if "=" in w else "" for w in words[1:])
    action = words[1] if len(words) > 2 and _PLAIN.fullmatch(words[1]) else ""
    return RepeatableCall((line.name, words[0], action, *names), words, outcome, is_ok=line.outcome == "ok")


@dataclass(slots=True)
class StepLog:
    """The calls of a stretch that may be steps of a repeated work."""

    _calls: dict[tuple[str, ...], list[tuple[int, RepeatableCall]]] = field(default_factory=dict)
    _carried: list[RepeatedSteps] = field(default_factory=list)

    def carry(self, section: str) -> None:
        """Start from the steps that an earlier handoff lists."""
        self._carried += parse_steps(section)

    def add(self, seq: int, call: RepeatableCall) -> None:
        self._calls.setdefault(call.key, []).append((seq, call))

    def groups(self) -> tuple[RepeatedSteps, ...]:
        """Return the groups of at least three subjects, each subject by the step that was done last on it."""
        done: dict[str, list[_Step]] = {}
        for calls in self._calls.values():
            for step in _newest_steps(calls):
                done.setdefault(step.subject, []).append(step)
        for step in self._single_steps():
            if step.subject in done:
                done[step.subject].append(step)
        groups: dict[tuple[str, str], list[_Step]] = {}
        for steps in done.values():
            last = max(steps, key=lambda s: s.seq)
            if last.is_ok:
                groups.setdefault((last.name, last.shape), []).append(last)
        repeated = [
            _group(sorted(members, key=lambda s: s.seq), done)
            for members in groups.values()
            if len(members) >= _FEWEST_SUBJECTS
        ]
        return tuple(sorted(_merge_carried(self._carried, repeated), key=lambda g: g.seq))

    def _single_steps(self) -> Iterator[_Step]:
        """Yield the calls that were not repeated: one of them may have changed what was done before."""
        for calls in self._calls.values():
            for seq, call in calls if len(calls) < _FEWEST_SUBJECTS else ():
                name = " ".join(call.words)
                yield from (_Step(name, value, "", name, seq, call.is_ok) for value in call.values)


@dataclass(frozen=True, slots=True)
class _Step:
    """The newest call of one tool on one subject."""

    name: str
    subject: str
    # The outcome without the words of the call, and the same without numbers.
    outcome: str
    shape: str
    seq: int
    is_ok: bool


def _newest_steps(calls: Sequence[tuple[int, RepeatableCall]]) -> Iterator[_Step]:
    """Yield the newest step on each subject, where calls of the same shape vary in a word."""
    if len(calls) < _FEWEST_SUBJECTS:
        return
    words = [call.words for _, call in calls]
    counts = [len(set(column)) for column in zip(*words, strict=True)]
    most = max(counts)
    if most < _FEWEST_SUBJECTS:
        return
    # Of a name and its value the name comes first, though a retry may have another value.
    at = next(i for i, n in enumerate(counts) if 2 * n >= most)
    varying = [i for i, n in enumerate(counts) if n > 1]
    fixed = [w for w, n in zip(words[0], counts, strict=True) if n == 1 and "=" not in w and any(map(str.isalnum, w))]
    name = " ".join(fixed) or words[0][0]
    newest = {call.words[at]: (seq, call) for seq, call in calls}
    for word, (seq, call) in newest.items():
        subject = word.partition("=")[2] or word
        if len(subject) > _LONGEST_SUBJECT:
            continue
        outcome = _without(call.outcome, [call.words[i] for i in varying])
        yield _Step(name, subject, outcome, _NUMBERED.sub("#", outcome), seq, call.is_ok)


def _without(outcome: str, words: Sequence[str]) -> str:
    """The outcome with a placeholder for what the call already names."""
    values = sorted({v for w in words if len(v := w.partition("=")[2] or w) > 1}, key=len, reverse=True)
    for value in values:
        outcome = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", _PLACEHOLDER, outcome)
    return outcome


def _group(members: Sequence[_Step], done: Mapping[str, Sequence[_Step]]) -> RepeatedSteps:
    """Join steps with one outcome; steps before them are named where all subjects had them."""
    from perdure.context.user_intent import is_directive  # slow to import

    last = members[-1]
    earlier = [{s.name: s.seq for s in done[m.subject] if s.is_ok and s is not m} for m in members]
    shared = [name for name in earlier[-1] if all(name in names for names in earlier)]
    shared.sort(key=lambda name: earlier[-1][name])
    outcomes = {m.outcome for m in members}
    text = last.outcome if len(outcomes) == 1 else _NUMBERED.sub(_PLACEHOLDER, last.outcome)
    text = _UNSTATED.sub("", text.removeprefix(f"{_PLACEHOLDER}: ")).strip(" ,")
    if text.count(_PLACEHOLDER) >= _MOST_PLACEHOLDERS:
        text = ""
    text = beginning(redact(text), _OUTCOME_CHARS)
    subjects = tuple(redact(m.subject) for m in members)
    return RepeatedSteps((*shared, last.name), "" if is_directive(text) else text, subjects, last.seq)


def _merge_carried(carried: Sequence[RepeatedSteps], groups: Sequence[RepeatedSteps]) -> Iterator[RepeatedSteps]:
    """Yield the groups, each with the subjects that an earlier handoff lists for the same steps."""
    newer = {subject for group in groups for subject in group.subjects}
    before = {(g.steps[-1], g.outcome): g for g in carried}
    for group in groups:
        known = before.pop((group.steps[-1], group.outcome), None)
        earlier = tuple(s for s in known.subjects if s not in group.subjects) if known else ()
        yield RepeatedSteps(group.steps, group.outcome, (*earlier, *group.subjects), group.seq)
    for rest in before.values():
        if subjects := tuple(s for s in rest.subjects if s not in newer):
            yield RepeatedSteps(rest.steps, rest.outcome, subjects, rest.seq)


def _elide(subjects: Sequence[str], room: int) -> Sequence[str]:
    """All subjects where they fit; else the first and the last, with the number of those between."""
    if sum(len(s) + 2 for s in subjects) <= room:
        return subjects
    first: list[str] = []
    last: list[str] = []
    left = room - 16
    for at in range(len(subjects)):
        is_first = at % 2 == 0
        subject = subjects[at // 2] if is_first else subjects[-1 - at // 2]
        if (left := left - len(subject) - 2) < 0:
            break
        (first if is_first else last).append(subject)
    more = len(subjects) - len(first) - len(last)
    return [*first, f"… {more} more …", *reversed(last)]


# Position of what an earlier handoff quotes, whose messages cannot be read.
BEFORE_LOG = -1
RequestStatus = Literal["open", "answered", "cancelled", "replaced"]
# A requirement was stated with one piece of work, which is done.
InstructionKind = Literal["rule", "correction", "refusal", "requirement"]
FileStatus = Literal["changed", "moved", "deleted", "read"]


@dataclass(frozen=True, slots=True)
class UserRequest:
    """A request of the user, word for word; one that quotes or pastes other text has it in `text`, too."""

    text: str
    seq: int
    status: RequestStatus = "open"
    # Position of the reply or of the later message that closed it.
    closed_seq: int | None = None
    # The words of the request that the user typed themselves; what is around them was pasted.
    own_words: str = ""
    # The assistant's question that it answers, and what it takes up of the assistant's proposal or list.
    answers: str = ""
    about: str = ""


@dataclass(frozen=True, slots=True)
class StandingInstruction:
    """A sentence of the user that binds later work: a rule or preference, a correction, the reason of a refusal."""

    text: str
    seq: int
    kind: InstructionKind = "rule"
    # What a refusal was about: the call, in one line.
    about: str = ""


@dataclass(frozen=True, slots=True)
class TaskDecision:
    """A decision of the user or the assistant; a superseded one names the message that replaced it."""

    text: str
    seq: int
    is_by_user: bool = False
    superseded_seq: int | None = None
    # What of the assistant's proposals a short answer takes up.
    about: str = ""


@dataclass(frozen=True, slots=True)
class TouchedFile:
    """A file and the last thing that happened to it; a changed file stays changed when it is read again."""

    path: str
    status: FileStatus
    seqs: tuple[int, ...]
    # Where it was before it was moved.
    moved_from: str = ""
    # Position of the newest call that changed it.
    changed_seq: int | None = None


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value of the environment, such as the folder or a created item, and where it was seen last."""

    value: str
    seq: int


def is_same_hash(one: str, other: str) -> bool:
    """Whether two abbreviated hashes may be of the same commit."""
    return bool(one and other) and (one.startswith(other) or other.startswith(one))


@dataclass(frozen=True, slots=True)
class CommitRecord:
    commit: Commit
    seq: int
    is_pushed: bool = False


@dataclass(frozen=True, slots=True)
class LastTestRun:
    """The newest test run or build: its totals, its command, and whether it succeeded."""

    run: TestRun
    target: str
    seq: int
    is_ok: bool
    # A test run; a build or linter replaces it only where no test ran.
    is_suite: bool = True
    # Files that were changed after it.
    changed_since: tuple[str, ...] = ()
    # It was run again, with an outcome that cannot be read.
    is_outdated: bool = False
    # It fails by tests that were written before the change.
    is_expected: bool = False


@dataclass(frozen=True, slots=True)
class TaskError:
    """An error of a call; once solved, with the line of the call that solved it."""

    text: str
    target: str
    seq: int
    # The call as rendered in the record.
    line: str = ""
    solved_by: str = ""
    solved_seq: int | None = None

    @property
    def is_open(self) -> bool:
        return self.solved_seq is None


@dataclass(frozen=True, slots=True)
class PlanItem:
    text: str
    is_done: bool
    seq: int


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question or request of the user and what the reply says."""

    question: str
    answer: str
    seq: int
    answer_seq: int
    # The user corrected it right afterwards.
    is_disputed: bool = False


@dataclass(frozen=True, slots=True)
class TaskState:
    """State of the task at the end of the log; lists are in the order of the log."""

    requests: tuple[UserRequest, ...] = ()
    # Positions of messages that take back what was under way without naming it.
    stops: tuple[int, ...] = ()
    goal: SourcedValue | None = None
    instructions: tuple[StandingInstruction, ...] = ()
    decisions: tuple[TaskDecision, ...] = ()
    questions: tuple[AnsweredQuestion, ...] = ()
    # Requests for work, with what came of them by the reply.
    outcomes: tuple[AnsweredQuestion, ...] = ()
    # Positions of all requests for which work was done.
    worked_on: frozenset[int] = frozenset()
    files: tuple[TouchedFile, ...] = ()
    commits: tuple[CommitRecord, ...] = ()
    # Where HEAD is, if not at the newest of the commits.
    head: SourcedValue | None = None
    created: tuple[SourcedValue, ...] = ()
    folder: SourcedValue | None = None
    branch: SourcedValue | None = None
    # None where no push was seen, or something was committed after the last one.
    is_pushed: bool | None = None
    tests: LastTestRun | None = None
    processes: tuple[SourcedValue, ...] = ()
    errors: tuple[TaskError, ...] = ()
    plan: tuple[PlanItem, ...] = ()
    # What was done in the same way for several subjects.
    steps: tuple[RepeatedSteps, ...] = ()
    # The assistant's question that waits for an answer.
    pending_question: SourcedValue | None = None
    # Calls since the newest request that changed no file, by name, the most frequent first.
    calls_since: tuple[tuple[str, int], ...] = ()
    # The step that the assistant announced with one of its last calls.
    announced: SourcedValue | None = None
    # The last call, if its result is not known.
    unknown_call: SourcedValue | None = None
    # Files with tests that no test run covered since they were changed.
    unrun_tests: tuple[str, ...] = ()
    # Whether files were edited in place, as in a repository.
    has_edits: bool = False
    # Positions of the messages that stay in view word for word.
    in_view: frozenset[int] = frozenset()

    @property
    def open_requests(self) -> tuple[UserRequest, ...]:
        return tuple(r for r in self.requests if r.status == "open")

    @property
    def open_errors(self) -> tuple[TaskError, ...]:
        return tuple(e for e in self.errors if e.is_open)

    @property
    def open_plan(self) -> tuple[PlanItem, ...]:
        return tuple(i for i in self.plan if not i.is_done)

    @property
    def valid_decisions(self) -> tuple[TaskDecision, ...]:
        return tuple(d for d in self.decisions if d.superseded_seq is None)
