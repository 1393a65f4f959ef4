"""Read the typed state of a task from the log: a fold over its messages and the lines of its calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perdure.context.analysis import PLAN, sentences
from perdure.context.facts.quoting import beginning, ending, tidy
from perdure.context.record.decisions import DecisionLog
from perdure.context.record.requests import RequestLog
from perdure.context.record.task import (
    AnsweredQuestion,
    CommitRecord,
    FileStatus,
    LastTestRun,
    PlanItem,
    SourcedValue,
    StandingInstruction,
    TaskError,
    TaskState,
    TouchedFile,
    UserRequest,
)
from perdure.context.record.types import CallFacts, CallLine
from perdure.context.user_intent import LISTED_RULE, corrections_in, parse_active_task, remarks_in, rules_in
from perdure.core.messages import Entry, Message
from perdure.redaction import redact

# The line of each call, by the position of the message that made it and the id of the call.
CallLines = Mapping[tuple[int, str], CallLine]

# Position of what an earlier handoff quotes, whose messages cannot be read.
BEFORE_LOG = -1
# A folder for a moment: of `mktemp`, of a test run, or in a variable.
_TEMPORARY = re.compile(
    r"^(?:/private)?/(?:tmp|var/tmp|var/folders)(?:/|$)|^\$|^[\"']?\$\(|\bmktemp\b|/pytest-of-|/T/tmp|AppData.Local.Temp",
    re.IGNORECASE,
)
_STILL_FAILS = re.compile(
    r"\b(?:still (?:fail|broken|red|not work)|could ?n[o']t|cannot|can't|unable to|blocked"
    r"|not (?:yet )?(?:fixed|solved)|remains? (?:broken|open|unsolved)|fail(?:s|ing|ed) (?:with|because)"
    r"|schlägt (?:weiter|noch)|funktioniert nicht|ne (?:marche|fonctionne) pas|sigue fallando|не работает)\b"
    r"|仍然|还是(?:失败|报错)|まだ|失敗|여전히|실패",
    re.IGNORECASE,
)
_IN_TEMPORARY = re.compile(r"\bcd [\"']?(?:/private)?/(?:tmp|var/tmp|var/folders)\b|\bcd [\"']?\$|\bmktemp\b|\$\{?TMP")
# A final reply with none of these leaves nothing of the plan open.
_MORE_TO_DO = re.compile(
    r"\b(?:remain\w*|next|still|to-?do|left|later|pending|not yet|follow-?up|noch|nächste|reste|queda"
    r"|pendiente|осталось)\b|接下来|下一步|还需|剩|残り|次に|まだ|다음|남은|아직",
    re.IGNORECASE,
)
_TASK = re.compile(r"^task (\w+): (.+)", re.DOTALL)
_TASK_ENDED = re.compile(r"\bstatus\W{1,3}(?:completed?|done|cancell?ed|deleted|closed)\b", re.IGNORECASE)
# Commands that look and change nothing: their failure blocks nothing.
_LOOKS = frozenset(("read", "search", "web"))
_ANSWER_CHARS = 220
_LAST_CHARS = 400
_SHORTEST_PLAN = 12
_QUESTION = re.compile(r"[?？]\s*$")


def read_state(entries: Sequence[Entry], lines: CallLines, *, previous: Mapping[str, str] | None = None) -> TaskState:
    """Read the state at the end of `entries`.

    `previous` are the sections of an earlier handoff of ours whose messages cannot be read any more.
    """
    fold = _StateFold()
    fold.carry(previous or {})
    for entry in entries:
        fold.add(entry, lines)
    return fold.state()


@dataclass(slots=True)
class _StateFold:
    """The state so far, updated by one message at a time."""

    requests: RequestLog = field(default_factory=RequestLog)
    decisions: DecisionLog = field(default_factory=DecisionLog)
    work: _WorkFold = field(default_factory=lambda: _WorkFold())
    goal: SourcedValue | None = None
    instructions: dict[str, StandingInstruction] = field(default_factory=dict)
    questions: list[AnsweredQuestion] = field(default_factory=list)
    plans: list[PlanItem] = field(default_factory=list)
    last_words: SourcedValue | None = None

    def carry(self, previous: Mapping[str, str]) -> None:
        """Start from the requests and instructions that an earlier handoff quotes."""
        quoted = parse_active_task(previous.get("Active Task", ""))
        self.requests.requests += [UserRequest(t, BEFORE_LOG, own_words=t) for t in quoted.open]
        self.requests.requests += [UserRequest(t, BEFORE_LOG, "answered", own_words=t) for t in quoted.closed]
        for rule in LISTED_RULE.findall(previous.get("Constraints & Preferences", "")):
            self._instruct(StandingInstruction(rule, BEFORE_LOG))
        if goal := previous.get("Goal"):
            self.goal = SourcedValue(goal, BEFORE_LOG)

    def add(self, entry: Entry, lines: CallLines) -> None:
        message = entry.message
        if message.role == "tool" or message.kind in ("handoff", "note", "system"):
            return
        waiting = self.requests.open
        self.requests.add(entry)
        if message.is_real_user:
            self._add_user(entry)
        elif message.kind == "assistant":
            self.decisions.add_assistant(entry)
            self._add_assistant(entry, waiting)
            for call in message.tool_calls:
                if (line := lines.get((entry.seq, call.id))) is not None:
                    self._add_call(entry.seq, line)

    def _add_user(self, entry: Entry) -> None:
        if self.goal is None and (request := self._request_at(entry.seq)) is not None and request.own_words:
            self.goal = SourcedValue(redact(request.own_words), entry.seq)
        self.decisions.add_user(entry)
        for rule in entry.memo("rules", rules_in):
            self._instruct(StandingInstruction(redact(rule), entry.seq))
        for text in entry.memo("corrections", corrections_in):
            self._instruct(StandingInstruction(redact(text), entry.seq, "correction"))
        for text in entry.memo("remarks", remarks_in):
            if redact(text) not in self.instructions:
                self._instruct(StandingInstruction(redact(text), entry.seq, "remark"))

    def _request_at(self, seq: int) -> UserRequest | None:
        last = self.requests.requests[-1] if self.requests.requests else None
        return last if last is not None and last.seq == seq else None

    def _instruct(self, instruction: StandingInstruction) -> None:
        # A repeated instruction moves to its last position.
        self.instructions.pop(instruction.text, None)
        self.instructions[instruction.text] = instruction

    def _add_assistant(self, entry: Entry, waiting: Sequence[UserRequest]) -> None:
        text = entry.message.text.strip()
        if not text:
            return
        self.last_words = SourcedValue(entry.memo("last words", _last_words), entry.seq)
        planned = entry.memo("plans", _plans_in)
        if planned or not entry.message.tool_calls:  # a final reply without a plan ends the one before
            self.plans = [PlanItem(redact(p), is_done=False, seq=entry.seq) for p in planned]
        if entry.message.tool_calls:
            return
        still_open = {r.seq for r in self.requests.open}
        closed = [r for r in waiting if r.seq not in still_open]
        if closed:
            self._answer(entry, closed)
        self.work.end_turn(entry.seq, may_be_open=not closed or _STILL_FAILS.search(text) is not None)
        if closed and not self.requests.open and not _MORE_TO_DO.search(text):
            self.work.plan.clear()

    def _answer(self, entry: Entry, closed: Iterable[UserRequest]) -> None:
        answer = entry.memo("answer", _answer_of)
        # One reply to several requests answers the newest; the others were steps on the way.
        request = max(closed, key=lambda r: r.seq)
        if request.own_words and _QUESTION.search(request.own_words):
            question = beginning(redact(request.own_words), _ANSWER_CHARS)
            self.questions.append(AnsweredQuestion(question, answer, request.seq, entry.seq))

    def _add_call(self, seq: int, line: CallLine) -> None:
        if line.user_words or line.outcome == "refused":
            reason = redact(line.user_words.strip())
            if reason:
                self._instruct(StandingInstruction(reason, seq, "refusal", about=line.target or line.name))
            return
        self.work.add(seq, line)

    def state(self) -> TaskState:
        work = self.work
        return TaskState(
            requests=tuple(self.requests.requests),
            goal=self.goal,
            instructions=tuple(self.instructions.values()),
            decisions=self.decisions.decisions,
            questions=tuple(self.questions),
            files=tuple(work.files.values()),
            commits=tuple(work.commits),
            created=tuple(work.created.values()),
            folder=work.folder or work.temporary_folder,
            branch=work.branch,
            is_pushed=work.is_pushed,
            tests=work.tests,
            processes=tuple(work.processes.values()),
            errors=tuple(work.errors),
            plan=tuple(work.plan.values()) if work.plan else tuple(self.plans),
            pending_question=SourcedValue(asked, self.requests.question_seq)
            if (asked := self.requests.question)
            else None,
            last_words=self.last_words,
            last_call=work.last_call,
        )


@dataclass(slots=True)
class _WorkFold:
    """What the calls did so far."""

    files: dict[str, TouchedFile] = field(default_factory=dict)
    commits: list[CommitRecord] = field(default_factory=list)
    created: dict[str, SourcedValue] = field(default_factory=dict)
    folder: SourcedValue | None = None
    temporary_folder: SourcedValue | None = None
    branch: SourcedValue | None = None
    is_pushed: bool | None = None
    tests: LastTestRun | None = None
    processes: dict[str, SourcedValue] = field(default_factory=dict)
    errors: list[TaskError] = field(default_factory=list)
    plan: dict[str, PlanItem] = field(default_factory=dict)
    last_call: SourcedValue | None = None
    # Titles of created tasks by their ids.
    _tasks: dict[str, str] = field(default_factory=dict)
    # The newest change, which may have solved an error.
    _change: str = ""
    # Kind of each error's call, parallel to `errors`.
    _kinds: list[str] = field(default_factory=list)

    def add(self, seq: int, line: CallLine) -> None:
        facts = line.facts
        self.last_call = SourcedValue(line.line, seq)
        if not _IN_TEMPORARY.search(line.target):  # a scratch repository is not the work
            self._add_environment(seq, facts)
            self._add_commit(seq, facts)
            self._add_files(seq, facts)
        elif facts.folder.startswith("/"):  # where the shell is again afterwards
            self._set_folder(seq, facts.folder)
        if facts.tests is not None and (line.kind == "test" or self.tests is None or not self.tests.is_suite):
            is_ok = line.outcome == "ok" and not facts.tests.failed and not facts.tests.failures
            self.tests = LastTestRun(facts.tests, line.target, seq, is_ok, is_suite=line.kind == "test")
        self._add_plan(seq, facts.plan)
        for text in facts.created:
            if task := _TASK.match(text):
                self._tasks[task[1]] = task[2]
            else:
                self.created[text] = SourcedValue(text, seq)
        if line.kind == "task" and _TASK_ENDED.search(line.line) and (title := self._tasks.get(line.target, "")):
            self._add_plan(seq, ((title, True),))
        self._add_outcome(seq, line)

    def _add_environment(self, seq: int, facts: CallFacts) -> None:
        self._set_folder(seq, facts.folder.strip().strip("\"'"))
        if facts.branch and (self.branch is None or self.branch.value != facts.branch):
            self.branch = SourcedValue(facts.branch, seq)
        if facts.started_process:
            self.processes[facts.started_process] = SourcedValue(facts.started_process, seq)
        if stopped := facts.stopped_process:
            names = [n for n in self.processes if n == stopped or stopped in n or n in stopped]
            for name in names:
                del self.processes[name]

    def _set_folder(self, seq: int, folder: str) -> None:
        if folder and _TEMPORARY.search(folder):
            self.temporary_folder = SourcedValue(folder, seq)
        elif folder and (self.folder is None or not _is_relative(folder) or _is_relative(self.folder.value)):
            self.folder = SourcedValue(folder, seq)

    def _add_commit(self, seq: int, facts: CallFacts) -> None:
        if (commit := facts.commit) is not None:
            self.commits = [c for c in self.commits if not _is_amended(c, commit.hash, commit.title)]
            self.commits.append(CommitRecord(commit, seq))
            self.is_pushed = False
            if commit.branch:
                self.branch = SourcedValue(commit.branch, seq)
        if facts.pushed is not None:
            self.is_pushed = facts.pushed
            if facts.pushed:
                self.commits = [replace(c, is_pushed=True) for c in self.commits]

    def _add_files(self, seq: int, facts: CallFacts) -> None:
        for path in facts.read_files:
            self._touch(path, "read" if path not in self.files else self.files[path].status, seq)
        for path in facts.changed_files:
            self._touch(path, "changed", seq)
        for path in facts.deleted_files:
            self._touch(path, "deleted", seq)

    def _touch(self, path: str, status: FileStatus, seq: int) -> None:
        before = self.files.pop(path, None)
        seqs = (*(before.seqs if before else ()), seq)
        # Re-inserted, so that the order is that of the last use.
        self.files[path] = TouchedFile(path, status, seqs[-8:])

    def _add_plan(self, seq: int, plan: Sequence[tuple[str, bool]]) -> None:
        """Replace the plan by a newer list; a call about a single item updates that item."""
        if not plan:
            return
        items = {text: PlanItem(redact(text), is_done, seq) for text, is_done in plan}
        is_update = len(items) == 1 or bool(items.keys() & self.plan.keys() and len(items) < len(self.plan) / 2)
        self.plan = {**self.plan, **items} if is_update else items

    def _add_outcome(self, seq: int, line: CallLine) -> None:
        if line.outcome == "failed":
            text = redact(line.facts.error or line.line)
            same = [i for i in self._open_errors() if _is_same_work(self._kinds[i], self.errors[i].target, line)]
            for i in reversed(same):  # a repeated failure is listed once, in its newest form
                del self.errors[i], self._kinds[i]
            self.errors.append(TaskError(text, line.target, seq, line.line))
            self._kinds.append(line.kind)
        elif line.outcome == "ok":
            for i in self._open_errors():
                if _is_same_work(self._kinds[i], self.errors[i].target, line):
                    self._solve(i, seq, self._change or line.line)
        if line.outcome == "ok" and line.kind in ("edit", "write", "delete"):
            self._change = line.line

    def _open_errors(self) -> list[int]:
        return [i for i, e in enumerate(self.errors) if e.is_open]

    def _solve(self, index: int, seq: int, by: str) -> None:
        self.errors[index] = replace(self.errors[index], solved_by=by, solved_seq=seq)

    def end_turn(self, seq: int, *, may_be_open: bool) -> None:
        """At a final reply, forget failures that the work went past; a test run stays open until one passes."""
        for i in self._open_errors():
            is_lasting = self._kinds[i] in ("test", "build", "git") and may_be_open
            if self._kinds[i] in _LOOKS or not (may_be_open or is_lasting):
                self._solve(i, seq, "")
        self._change = ""


def _is_same_work(kind: str, target: str, line: CallLine) -> bool:
    """Whether a later call is about what failed: the same target, file, test runner or command."""
    if kind == line.kind and kind in ("read", "search", "web"):
        return True  # another look succeeded
    if kind in ("edit", "write"):
        return line.kind in ("edit", "write") and line.target == target
    if kind in ("test", "build") and line.kind == kind:
        return True
    return line.target == target or (kind == line.kind and _command(line.target) == _command(target) != "")


_PREFIX = re.compile(r"^(?:cd \S+ *(?:&&|;) *|\w+=\S+ +|sudo +|time +|timeout \S+ +)*")


def _command(target: str) -> str:
    """Return the program and subcommand of a command line: `git push`, `npm install`."""
    words = _PREFIX.sub("", target).split()
    return " ".join(w for w in words[:2] if not w.startswith("-"))


def _is_amended(record: CommitRecord, new_hash: str, title: str) -> bool:
    return record.commit.hash == new_hash or (bool(title) and record.commit.title == title and not record.is_pushed)


def _is_relative(folder: str) -> bool:
    return not folder.startswith(("/", "~", "\\")) and folder[1:2] != ":"


def _plans_in(message: Message) -> tuple[str, ...]:
    """Return the open steps that an assistant message lists."""
    planned = PLAN.among(sentences(message.text), message.text)
    return tuple(redact(tidy(s.lstrip("-*#> "))) for s in planned if _SHORTEST_PLAN < len(s) <= _LAST_CHARS)[:8]


def _last_words(message: Message) -> str:
    return ending(redact(message.text.strip()), _LAST_CHARS)


def _answer_of(message: Message) -> str:
    return beginning(redact(" ".join(_first_paragraph(message.text))), _ANSWER_CHARS)


def _first_paragraph(text: str) -> Iterator[str]:
    """Return the first lines with words of their own, headings left out."""
    for line in text.strip().splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "```", "|")):
            yield line.strip()
            if len(line) > 60:
                return
