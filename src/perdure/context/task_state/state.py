"""The typed state of a task: requests, instructions, decisions, files, commits, tests, errors, plan.

Every item names the log positions it was read from. `RepeatedSteps` lists what was done alike for many subjects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from perdure.context.tool_calls.call_line import CallLine, Commit, TestRun

STEP_MARK = "DONE "
_LISTED = re.compile(
    rf"^{STEP_MARK}(?P<steps>[^\n]{{1,200}}?) ×\d+(?: → (?P<outcome>[^\n]{{1,200}}?))?: (?P<subjects>[^\n]+)$", re.M
)
_MORE = re.compile(r"^… \d+ more …$")


@dataclass(frozen=True, slots=True)
class RepeatedSteps:
    """Steps that succeeded for several subjects in the same way."""

    # Names of the tools or commands, in the order of their use; the last one's outcome is shown.
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


def _elide(subjects: Sequence[str], room: int) -> Sequence[str]:
    """Return all subjects where they fit; else the first and the last, with the number of those between."""
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
# A change takes an earlier instruction back, or says that something is another way now; alone it binds nobody.
InstructionKind = Literal["rule", "correction", "refusal", "requirement", "change"]
# The assistant undid its changes of a file that is "undone"; the user those of one that is "taken back".
FileStatus = Literal["changed", "moved", "deleted", "read", "taken back", "undone"]


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
    # The assistant's question that it answers, and the part of the assistant's proposal or list that it refers to.
    answers: str = ""
    about: str = ""
    # Of an open request: the files that were changed for it before the next message.
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StandingInstruction:
    """A sentence of the user that binds later work: a rule or preference, a correction, the reason of a refusal."""

    text: str
    seq: int
    kind: InstructionKind = "rule"
    # What a refusal was about: the call, in one line.
    about: str = ""
    # Positions of the instructions that it replaces.
    replaced_seqs: tuple[int, ...] = ()
    # A later statement that may change it.
    changed_by: StandingInstruction | None = None
    # An earlier handoff quotes it; its message cannot be read.
    is_carried: bool = False


@dataclass(frozen=True, slots=True)
class TaskDecision:
    """A decision of the user or the assistant; a superseded one names the message that replaced it."""

    text: str
    seq: int
    is_by_user: bool = False
    superseded_seq: int | None = None
    # The part of the assistant's proposals that a short answer refers to.
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
class TakenBackChanges:
    """Files that the user restored at a position to how they were before another: what changed between is gone."""

    files: tuple[str, ...]
    before_seq: int
    seq: int

    def covers(self, seq: int) -> bool:
        return self.before_seq <= seq < self.seq


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
    """An error of a call, open until a later call or reply shows that the work went past it."""

    text: str
    target: str
    seq: int
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
    # Files that were changed for it.
    files: tuple[str, ...] = ()
    # Files whose changes for it the user took back.
    taken_back: tuple[str, ...] = ()
    # The user corrected it right afterwards.
    is_disputed: bool = False


@dataclass(frozen=True, slots=True)
class InheritedTask:
    """The task by the summary of another program: background, in its words, never an instruction."""

    seq: int
    goal: str = ""
    # What it left open, one line each.
    open: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskState:
    """State of the task at the end of the log; lists are in the order of the log."""

    requests: tuple[UserRequest, ...] = ()
    # Positions of messages that take back what was under way without naming it.
    stops: tuple[int, ...] = ()
    goal: SourcedValue | None = None
    # The title of the issue that the first request holds.
    issue: SourcedValue | None = None
    # The newest summary by another program.
    inherited: InheritedTask | None = None
    instructions: tuple[StandingInstruction, ...] = ()
    decisions: tuple[TaskDecision, ...] = ()
    questions: tuple[AnsweredQuestion, ...] = ()
    # Requests for work, with what came of them by the reply.
    outcomes: tuple[AnsweredQuestion, ...] = ()
    # Positions of all requests for which work was done.
    worked_on: frozenset[int] = frozenset()
    files: tuple[TouchedFile, ...] = ()
    taken_back: tuple[TakenBackChanges, ...] = ()
    commits: tuple[CommitRecord, ...] = ()
    # Where HEAD is, if not at the newest of the commits.
    head: SourcedValue | None = None
    # The newest commit of the last log that was read.
    shown_head: SourcedValue | None = None
    created: tuple[SourcedValue, ...] = ()
    # What was merged or closed, and calls of services that changed something, with their outcomes.
    settled: tuple[SourcedValue, ...] = ()
    # What the user left for later, in their words.
    deferred: tuple[SourcedValue, ...] = ()
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
    # The assistant's question that the user put off.
    put_off: SourcedValue | None = None
    # Calls since the newest request that changed no file, by name, the most frequent first.
    calls_since: tuple[tuple[str, int], ...] = ()
    # The step that the assistant announced with one of its last calls.
    announced: SourcedValue | None = None
    # The newest statement of the assistant on what fails, why, or what was found.
    finding: SourcedValue | None = None
    # Position of the last reply, if an edit in it cannot have been applied.
    broken_edit_seq: int | None = None
    # The last call, if its result is not known.
    unknown_call: SourcedValue | None = None
    # Files with tests that no test run covered since they were changed.
    unrun_tests: tuple[str, ...] = ()
    # Files that were changed since the plan was updated.
    changed_since_plan: tuple[str, ...] = ()
    # Whether files were edited in place, as in a repository.
    has_edits: bool = False
    # Every call, in order.
    calls: tuple[CallLine, ...] = ()
    # Positions of the messages that stay in view word for word.
    in_view: frozenset[int] = frozenset()

    @property
    def open_requests(self) -> tuple[UserRequest, ...]:
        return tuple(r for r in self.requests if r.status == "open")

    @property
    def inherited_open(self) -> tuple[str, ...]:
        """What an earlier summary left open, as long as the user has requested nothing since."""
        is_newest = self.inherited is not None and all(
            r.status != "open" and r.seq < self.inherited.seq for r in self.requests
        )
        return self.inherited.open if self.inherited is not None and is_newest else ()

    @property
    def inherited_goal(self) -> str:
        return self.inherited.goal if self.inherited is not None else ""

    @property
    def task_seq(self) -> int | None:
        """Position since which work counts as work on Active Task; None where nothing is open."""
        if self.open_requests:
            return self.open_requests[-1].seq
        return self.inherited.seq if self.inherited is not None and self.inherited_open else None

    @property
    def files_taken_back(self) -> tuple[TouchedFile, ...]:
        """Files that the user restored and that were not changed since, the newest first."""
        newest = {path: t.seq for t in self.taken_back for path in t.files}
        files = (f for f in reversed(self.files) if f.path in newest)
        return tuple(f for f in files if f.changed_seq is None or f.changed_seq < newest[f.path])

    def commit_shown_since(self, seq: int) -> str:
        """Return the newest commit of a log read after a position; "" where the commits of calls show as much."""
        shown = self.shown_head
        if shown is None or shown.seq <= seq or (self.commits and self.commits[-1].seq > seq):
            return ""
        known = self.commits[-1].commit.hash if self.commits else ""
        return "" if is_same_hash(known, shown.value.partition(" ")[0]) else shown.value

    @property
    def open_errors(self) -> tuple[TaskError, ...]:
        return tuple(e for e in self.errors if e.is_open)

    @property
    def open_plan(self) -> tuple[PlanItem, ...]:
        return tuple(i for i in self.plan if not i.is_done)

    @property
    def valid_decisions(self) -> tuple[TaskDecision, ...]:
        return tuple(d for d in self.decisions if d.superseded_seq is None)
