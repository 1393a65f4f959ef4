"""The typed state of a task, as read from the log. Every item names the log positions it was read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perdure.context.record.steps import RepeatedSteps
from perdure.context.record.types import Commit, TestRun

# Position of what an earlier handoff quotes, whose messages cannot be read.
BEFORE_LOG = -1
RequestStatus = Literal["open", "answered", "cancelled", "replaced"]
# A remark may bind: neither a question nor a request for one step, but without a wording that shows it.
InstructionKind = Literal["rule", "correction", "refusal", "remark"]
FileStatus = Literal["changed", "deleted", "read"]


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
    # The assistant's question that it answers.
    answers: str = ""


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


@dataclass(frozen=True, slots=True)
class TouchedFile:
    """A file and the last thing that happened to it; a changed file stays changed when it is read again."""

    path: str
    status: FileStatus
    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value of the environment, such as the folder or a created item, and where it was seen last."""

    value: str
    seq: int


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
    """A question of the user and the beginning of the reply."""

    question: str
    answer: str
    seq: int
    answer_seq: int


@dataclass(frozen=True, slots=True)
class TaskState:
    """What is true of the task at the end of the log; lists are in the order of the log."""

    requests: tuple[UserRequest, ...] = ()
    goal: SourcedValue | None = None
    instructions: tuple[StandingInstruction, ...] = ()
    decisions: tuple[TaskDecision, ...] = ()
    questions: tuple[AnsweredQuestion, ...] = ()
    files: tuple[TouchedFile, ...] = ()
    commits: tuple[CommitRecord, ...] = ()
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
    # The assistant's last words and the last call, for what was under way.
    last_words: SourcedValue | None = None
    last_call: SourcedValue | None = None

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
