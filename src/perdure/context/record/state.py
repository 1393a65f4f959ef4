"""Read the typed state of a task from the log: a fold over its messages and the lines of its calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perdure.context.authorship import before_fiction
from perdure.context.record.decisions import (
    DecisionLog,
    UserReading,
    content_words,
    decisions_of,
    last_words_of,
    plan_of,
    topic_words,
    user_reading,
)
from perdure.context.record.material import carried_words, read_report
from perdure.context.record.proposals import proposal_of, taken_up
from perdure.context.record.requests import RequestLog, answer_of, reply_reading
from perdure.context.record.sections import parse_instructions
from perdure.context.record.task import (
    BEFORE_LOG,
    NO_FACTS,
    AnsweredQuestion,
    CallFacts,
    CallLine,
    CommitRecord,
    FileStatus,
    LastTestRun,
    PlanItem,
    SourcedValue,
    StandingInstruction,
    StepLog,
    TaskError,
    TaskState,
    TouchedFile,
    UserRequest,
)
from perdure.context.summary_check import MARK
from perdure.context.text import beginning, sentences, tidy
from perdure.context.user_intent import is_directive, parse_active_task
from perdure.core.messages import Entry, Message
from perdure.redaction import redact

# The line of each call, by the position of the message that made it and the id of the call.
CallLines = Mapping[tuple[int, str], CallLine]

# A folder for a moment: of `mktemp`, of a test run, or in a variable.
_TEMPORARY = re.compile(
    r"^(?:/private)?/(?:tmp|var/tmp|var/folders)(?:/|$)|^\$|^[\"']?\$\(|\bmktemp\b|/pytest-of-|/T/tmp|AppData.Local.Temp",
    re.IGNORECASE,
)
# Delegated agents have reported by the end of the turn.
_DELEGATED = "agent "
# What a client writes in the user's place when work in the background ends.
_ENDED = re.compile(
    r"<status>(?:completed|failed|killed|stopped)</status>\s*<summary>[^\"<]{0,40}\"([^\"<]{1,200})\"", re.IGNORECASE
)
_ENDED_ID = re.compile(r"<task-id>([\w-]{1,60})</task-id>\s*<status>(?:completed|failed|killed|stopped)</status>")
_NOTIFICATION = "<task-notification>"
_COMMAND_LINE = re.compile(r"\A/[\w:-]{1,40}[ \t]*\n+(?=\S)")
_IN_TEMPORARY = re.compile(r"\bcd [\"']?(?:/private)?/(?:tmp|var/tmp|var/folders)\b|\bcd [\"']?\$|\bmktemp\b|\$\{?TMP")
_TASK = re.compile(r"^task (\w+): (.+)", re.DOTALL)
_TASK_ENDED = re.compile(r"\bstatus\W{1,3}(?:completed?|done|cancell?ed|deleted|closed)\b", re.IGNORECASE)
# Commands that look and change nothing: their failure blocks nothing.
_LOOKS = frozenset(("read", "search", "web"))
_CHANGES = frozenset(("edit", "write", "delete"))
_MOST_QUESTIONS = 10
_QUESTION_CHARS = 220
_MOST_CHANGED = 4
# Line numbers behind a path.
_LINE_RANGE = re.compile(r":\d+(?:-\d+)?$")
_SLIGHT_CHARS = 8
# An item of a plan belongs to a request that has this share of its words.
_SAME_ITEM_SHARE = 0.5
_QUESTION = re.compile(r"[?？]\s*$")
_FENCE = "\n```"
# A question has this share of the words of an earlier one that it asks again.
_SAME_QUESTION_SHARE = 0.75


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
    # Requests with the replies to them, and whether the work changed something for them.
    answered: dict[int, tuple[UserRequest, Entry, bool]] = field(default_factory=dict)
    # Positions of requests whose answers the user corrected.
    disputed: set[int] = field(default_factory=set)
    # Numbers of changes and of steps when the user last wrote.
    _counts_before: tuple[int, int] = (0, 0)
    # The newest messages of the assistant with text: since the last reply, for the plan; and the last one.
    texts: list[Entry] = field(default_factory=list)
    # The reply that the user has not answered yet.
    last_reply: Entry | None = None
    _greeting_seq: int = BEFORE_LOG - 1

    def carry(self, previous: Mapping[str, str]) -> None:
        """Start from the requests and instructions that an earlier handoff quotes."""
        quoted = parse_active_task(previous.get("Active Task", ""))
        self.requests.carry(UserRequest(t, BEFORE_LOG, own_words=carried_words(t)) for t in quoted.open)
        self.requests.carry(UserRequest(t, BEFORE_LOG, "answered", own_words=carried_words(t)) for t in quoted.closed)
        for instruction in parse_instructions(previous.get("Constraints & Preferences", "")):
            self._instruct(instruction)
        self.work.steps.carry(previous.get("Completed Actions", ""))
        lines = previous.get("Goal", "").splitlines()
        if goal := "\n".join(line for line in lines if MARK not in line).strip():
            self.goal = SourcedValue(goal, BEFORE_LOG)

    def add(self, entry: Entry, lines: CallLines) -> None:
        message = entry.message
        if message.role == "tool":
            return
        if message.is_real_user:
            if message.text.startswith(_NOTIFICATION):
                self.work.end_process(*(m[1] for p in (_ENDED_ID, _ENDED) if (m := p.search(message.text[:1_000]))))
            reading = user_reading(entry)
            self._add_user(entry.seq, reading)
            if reading.text != reading.own_words and (report := entry.memo("report", _read_report)) is not None:
                self.work.add_report(entry.seq, report)
        elif message.kind == "assistant":
            has_text = not message.is_blank
            if has_text and (decisions := decisions_of(entry)):
                self.decisions.add_assistant(entry.seq, decisions)
            if not message.tool_calls and message.cut_off is None:
                self._add_reply(entry)
            elif has_text:
                self.texts.append(entry)
            for call in message.tool_calls:
                self.requests.add_work()
                line = lines.get((entry.seq, call.id))
                self.work.steps_taken += line is None or line.kind not in _LOOKS
                if line is not None:
                    self._add_call(entry.seq, line)

    def _add_user(self, seq: int, reading: UserReading) -> None:
        if not reading.text:
            return
        about = self._taken_up(reading)
        if (disputed := self._disputed(reading)) is not None:
            self.disputed.add(disputed)
        self.last_reply = None
        self._counts_before = self.work.changes, self.work.steps_taken
        self.requests.add_user(seq, reading, about=about)
        self._drop_cancelled(seq)
        request = self.requests.requests[-1] if self.requests.requests else None
        is_wanted = self.goal is None or self.goal.seq == self._greeting_seq
        # A greeting or a command of the client is no goal.
        if is_wanted and request is not None and request.seq == seq and request.own_words:
            words = _COMMAND_LINE.sub("", request.own_words)
            self.goal = SourcedValue(before_fiction(words) or sentences(words)[0], seq)
            self._greeting_seq = seq if _is_slight(words) else BEFORE_LOG - 1
        choices = (tidy(reading.own_words),) if about else reading.choices
        self.decisions.add_user(seq, choices, takes_back=reading.takes_back, about=about)
        for rule in reading.rules:
            self._instruct(StandingInstruction(rule, seq))
        for text in reading.corrections:
            self._instruct(StandingInstruction(text, seq, "correction"))
        for text in reading.remarks:
            if text not in self.instructions and not any(text in correction for correction in reading.corrections):
                self._instruct(StandingInstruction(text, seq, "remark"))

    def _disputed(self, reading: UserReading) -> int | None:
        """Return the position of the request whose answer, right before a message, the message corrects."""
        if not self.answered or not (reading.corrections or reading.takes_back):
            return None
        request, reply, _ = next(reversed(self.answered.values()))
        return request.seq if reply is self.last_reply else None

    def _taken_up(self, reading: UserReading) -> str:
        """Return what a short answer takes up of the reply right before it."""
        reply = self.last_reply
        return taken_up(reading.own_words, proposal_of(reply)) if reply is not None and reading.may_answer else ""

    def _drop_cancelled(self, seq: int) -> None:
        """Remove from plan and goal what the message at `seq` cancels."""
        cancelled = [r for r in self.requests.requests if r.status == "cancelled" and r.closed_seq == seq]
        if not cancelled:
            return
        words = [content_words(r.own_words) for r in cancelled]
        for name, item in list(self.work.plan.items()):
            item_words = content_words(item.text)
            if not self.requests.open or any(len(item_words & w) >= _SAME_ITEM_SHARE * len(item_words) for w in words):
                del self.work.plan[name]
        self.texts = [e for e in self.texts if not plan_of(e)]
        if self.goal is not None and any(r.seq == self.goal.seq for r in cancelled):
            self.goal = None

    def _instruct(self, instruction: StandingInstruction) -> None:
        earlier = self.instructions.get(instruction.text)
        if instruction.kind == "refusal" and earlier is not None and earlier.kind != "refusal":
            return  # what the user wrote themselves stays what it is
        # A repeated instruction moves to its last position.
        self.instructions.pop(instruction.text, None)
        self.instructions[instruction.text] = instruction

    def _add_reply(self, entry: Entry) -> None:
        reply = reply_reading(entry)
        if not reply.text:
            return
        # A final reply without a plan ends the one before.
        self.texts = [entry]
        self.last_reply = entry
        waiting = self.requests.open
        self.requests.add_reply(entry.seq, reply)
        still_open = self.requests.open
        closed = [] if len(still_open) == len(waiting) else waiting
        if closed:
            # One reply to several requests answers the newest; the others were steps on the way.
            request = max(closed, key=lambda r: r.seq)
            self.answered.pop(request.seq, None)
            is_question = _QUESTION.search(request.own_words) is not None
            changes, steps = self._counts_before
            # Where no tool edits, the reply itself has the code.
            has_steps = self.work.steps_taken > steps or _FENCE in entry.message.text
            is_work = self.work.changes > changes or (not is_question and has_steps)
            self.answered[request.seq] = request, entry, is_work
            if self.work.plan and not still_open and not reply.has_more_to_do:
                self.work.plan.clear()
        self.work.end_turn(entry.seq, may_be_open=not closed or (self.work.has_failed and reply.has_failed))

    def _add_call(self, seq: int, line: CallLine) -> None:
        if line.user_words or line.outcome == "refused":
            reason = redact(line.user_words.strip())
            if reason:
                self._instruct(StandingInstruction(reason, seq, "refusal", about=line.target or line.name))
            return
        self.work.add(seq, line)

    def state(self) -> TaskState:
        work = self.work
        question, last = self.requests.question, self.texts[-1] if self.texts else None
        return TaskState(
            requests=tuple(self.requests.requests),
            stops=tuple(self.requests.stops),
            goal=self.goal,
            instructions=tuple(self.instructions.values()),
            decisions=self.decisions.decisions,
            questions=tuple(self._answers(is_work=False)),
            outcomes=tuple(self._answers(is_work=True)),
            worked_on=frozenset(seq for seq, (_, _, is_work) in self.answered.items() if is_work),
            files=tuple(work.files.values()),
            commits=tuple(work.commits),
            created=tuple(work.created.values()),
            folder=work.folder or work.temporary_folder,
            branch=work.branch,
            is_pushed=work.is_pushed,
            tests=work.tests,
            processes=tuple(work.processes.values()),
            errors=tuple(work.errors),
            plan=tuple(work.plan.values()) if work.plan else self._planned(),
            steps=work.steps.groups(),
            pending_question=SourcedValue(question, self.requests.question_seq) if question else None,
            last_words=SourcedValue(last_words_of(last), last.seq) if last else None,
            last_call=work.last_call,
        )

    def _answers(self, *, is_work: bool) -> Iterator[AnsweredQuestion]:
        """Yield the answered questions, or the requests for which something was changed or done, with the outcome."""
        chosen = [(request, reply) for request, reply, has_worked in self.answered.values() if is_work == has_worked]
        topics = [topic_words(request.own_words) for request, _ in chosen]
        for n, (request, reply) in enumerate(chosen):
            if n < len(chosen) - _MOST_QUESTIONS or (not is_work and _is_asked_again(topics[n], topics[n + 1 :])):
                continue
            is_disputed = request.seq in self.disputed
            question = beginning(_without_demands(request.own_words), _QUESTION_CHARS)
            if is_work or (question and not is_disputed):
                yield AnsweredQuestion(question, answer_of(reply), request.seq, reply.seq, is_disputed)

    def _planned(self) -> tuple[PlanItem, ...]:
        """The steps that the newest message with a plan lists, if no final reply came after it."""
        entry = next((e for e in reversed(self.texts) if plan_of(e)), None)
        return tuple(PlanItem(p, is_done=False, seq=entry.seq) for p in plan_of(entry)) if entry else ()


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
    steps: StepLog = field(default_factory=StepLog)
    # The last call and its position.
    _last: tuple[CallLine, int] | None = None
    # Names of files by the paths in calls.
    _aliases: dict[str, str] = field(default_factory=dict)
    # Files by their last part.
    _names: dict[str, list[str]] = field(default_factory=dict)
    # Titles of created tasks by their ids.
    _tasks: dict[str, str] = field(default_factory=dict)
    # The newest change, which may have solved an error.
    _change: CallLine | None = None
    # Indexes of the open errors.
    _open: list[int] = field(default_factory=list)
    # Kind of each error's call, parallel to `errors`.
    _kinds: list[str] = field(default_factory=list)
    # How many calls changed something, and how many did more than look.
    changes: int = 0
    steps_taken: int = 0

    def add(self, seq: int, line: CallLine) -> None:
        facts = line.facts
        self._last = line, seq
        if line.outcome == "ok" and (line.kind in _CHANGES or facts.commit or facts.created or facts.pushed):
            self.changes += 1
        if line.repeatable is not None:
            self.steps.add(seq, line.repeatable)
        if facts is not NO_FACTS:
            self._add_facts(seq, line, facts)
        if line.kind == "task" and _TASK_ENDED.search(line.line) and (title := self._tasks.get(line.target, "")):
            self._add_plan(seq, ((title, True),))
        if self._open or line.outcome != "ok" or line.kind in _CHANGES:
            self._add_outcome(seq, line)

    def add_report(self, seq: int, report: CallLine) -> None:
        """Note a failed test run that the user reports: it is newer than the last one."""
        if report.facts.tests is not None:
            self.tests = LastTestRun(report.facts.tests, "", seq, is_ok=False)
        self._add_outcome(seq, report)

    def _add_facts(self, seq: int, line: CallLine, facts: CallFacts) -> None:
        if not _is_temporary(line.target):  # a scratch repository is not the work
            self._add_environment(seq, facts)
            self._add_commit(seq, facts)
            self._add_files(seq, facts)
        elif facts.folder.startswith("/"):  # where the shell is again afterwards
            self._set_folder(seq, facts.folder)
        if facts.tests is not None and (line.kind == "test" or self.tests is None or not self.tests.is_suite):
            is_ok = line.outcome == "ok" and not facts.tests.failed and not facts.tests.failures
            self.tests = LastTestRun(facts.tests, line.target, seq, is_ok, is_suite=line.kind == "test")
        elif self.tests is not None and line.kind in _CHANGES:
            changed = dict.fromkeys((*self.tests.changed_since, *(p.rpartition("/")[2] for p in facts.changed_files)))
            self.tests = replace(self.tests, changed_since=tuple(changed)[-_MOST_CHANGED:])
        self._add_plan(seq, facts.plan)
        for text in facts.created:
            if task := _TASK.match(text):
                self._tasks[task[1]] = task[2]
                self.plan.setdefault(task[2], PlanItem(redact(task[2]), is_done=False, seq=seq))
            else:
                self.created[text] = SourcedValue(text, seq)

    @property
    def last_call(self) -> SourcedValue | None:
        return SourcedValue(self._last[0].line, self._last[1]) if self._last else None

    def _add_environment(self, seq: int, facts: CallFacts) -> None:
        self._set_folder(seq, facts.folder.strip().strip("\"'"))
        if facts.branch and (self.branch is None or self.branch.value != facts.branch):
            self.branch = SourcedValue(facts.branch, seq)
        if facts.started_process:
            self.processes[facts.started_process] = SourcedValue(facts.started_process, seq)
        if stopped := facts.stopped_process:
            self.end_process(stopped)

    def end_process(self, *names: str) -> None:
        """Forget the running processes that one of the names identifies."""
        for stopped in names:
            for name in [n for n in self.processes if stopped in n or n in stopped]:
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
        uses: tuple[tuple[FileStatus, tuple[str, ...]], ...] = (
            ("read", facts.read_files),
            ("changed", facts.changed_files),
            ("deleted", facts.deleted_files),
        )
        for status, paths in uses:
            for path in paths:
                if name := self._name_of(path):
                    self._touch(name, status, seq)
        for source, target in facts.moved_files:
            old, new = self._name_of(source), self._name_of(target)
            if new and new == old:  # the same name in another folder is no longer that file
                new = self._aliases[target] = target
            self._move(old, new, seq)

    def _name_of(self, path: str) -> str:
        name = self._aliases.get(path)
        if name is None:
            name = self._aliases[path] = self._known_name(_LINE_RANGE.sub("", path))
        return name

    def _move(self, source: str, target: str, seq: int) -> None:
        """Continue a file under its new path; one that came from a scratch folder is a new file."""
        before = self.files.pop(source, None) if source else None
        if not target:
            return
        origin = (before.moved_from if before else "") or source
        status: FileStatus = "moved" if origin and origin != target else "changed"
        seqs = (*(before.seqs if before else ()), seq)
        self.files[target] = TouchedFile(target, status, seqs[-8:], origin if status == "moved" else "", seq)

    def _known_name(self, path: str) -> str:
        """The name under which a file is known: a relative path may be the end of an absolute one; "" for scratch."""
        if not path or _TEMPORARY.search(path):
            return ""
        same_name = self._names.setdefault(path.rpartition("/")[2], [])
        tail = "/" + path.removeprefix("./")
        match = next((k for k in same_name if k.endswith(tail) or (_is_relative(k) and path.endswith(f"/{k}"))), None)
        if match is None:
            same_name.append(path)
        return match or path

    def _touch(self, path: str, status: FileStatus, seq: int) -> None:
        before = self.files.pop(path, None)
        changed_seq = (before.changed_seq if before else None) if status == "read" else seq
        if before is not None and status == "read":
            status = before.status
        seqs = (*(before.seqs if before else ()), seq)
        moved_from = before.moved_from if before is not None and status in ("changed", "moved") else ""
        # Re-inserted, so that the order is that of the last use.
        self.files[path] = TouchedFile(path, "moved" if moved_from else status, seqs[-8:], moved_from, changed_seq)

    def _add_plan(self, seq: int, plan: Sequence[tuple[str, bool]]) -> None:
        """Replace the plan by a newer list; a call about a single item updates that item."""
        if not plan:
            return
        # The calls were redacted before they were described.
        items = {text: PlanItem(text, is_done, seq) for text, is_done in plan}
        is_update = len(items) == 1 or bool(items.keys() & self.plan.keys() and len(items) < len(self.plan) / 2)
        self.plan = {**self.plan, **items} if is_update else items

    def _add_outcome(self, seq: int, line: CallLine) -> None:
        if line.outcome == "failed":
            if line.kind in ("edit", "write") and not line.facts.error:
                return  # an edit that did not apply is tried again
            same = [i for i in self._open if _is_same_work(self._kinds[i], self.errors[i].target, line)]
            for i in same:  # a repeated failure counts once, in its newest form
                self.errors[i] = replace(self.errors[i], solved_seq=seq)
            self._open = [i for i in self._open if i not in same]
            self._open.append(len(self.errors))
            self.errors.append(TaskError(redact(line.facts.error or line.line), line.target, seq, line.line))
            self._kinds.append(line.kind)
        elif line.outcome == "ok":
            if self._open:
                solved = [i for i in self._open if _is_same_work(self._kinds[i], self.errors[i].target, line)]
                self._solve([i for i in solved if self._kinds[i] in _LOOKS], seq, "")
                if failures := [i for i in solved if self._kinds[i] not in _LOOKS]:
                    self._solve(failures, seq, (self._change or line).line)
            if line.kind in _CHANGES:
                self._change = line

    def _solve(self, indexes: Sequence[int], seq: int, by: str) -> None:
        for i in indexes:
            self.errors[i] = replace(self.errors[i], solved_by=by, solved_seq=seq)
        self._open = [i for i in self._open if i not in indexes]

    @property
    def has_failed(self) -> bool:
        """Whether a failure is open."""
        return bool(self._open)

    def end_turn(self, seq: int, *, may_be_open: bool) -> None:
        """At a final reply, forget failures that the work went past; a failed test stays where the reply admits it."""
        self._solve([i for i in self._open if self._kinds[i] in _LOOKS or not may_be_open], seq, "")
        self.processes = {name: p for name, p in self.processes.items() if not name.startswith(_DELEGATED)}
        self._change = None


def _without_demands(words: str) -> str:
    """Return what a message asks, without a story in it and without demands: the user's rules are quoted as such."""
    return " ".join(s for s in sentences(before_fiction(words)) if not is_directive(s))


def _is_asked_again(topic: frozenset[str], later: Sequence[frozenset[str]]) -> bool:
    """Return whether a later question is about the same, so that its answer counts."""
    return any(len(topic & other) >= _SAME_QUESTION_SHARE * len(topic) for other in later) if len(topic) > 1 else False


def _read_report(message: Message) -> CallLine | None:
    """The failed test run in a message of the user, as if a call had returned it."""
    finding = read_report(message.text)
    if finding is None:
        return None
    return CallLine("test", "", "", "failed", finding.headline, finding.headline, finding.worth, facts=finding.facts)


def _is_same_work(kind: str, target: str, line: CallLine) -> bool:
    """Whether a later call is about what failed: the same target, file, test runner or command."""
    if kind == line.kind and kind in ("read", "search", "web"):
        return True  # another look succeeded
    if kind in ("edit", "write"):
        return line.kind in ("edit", "write") and line.target == target
    if kind in ("test", "build") and line.kind == kind:
        return True
    if "&&" in line.target and target in map(str.strip, line.target.split("&&")):
        return True
    return line.target == target or (kind == line.kind and _command(line.target) == _command(target) != "")


_PREFIX = re.compile(r"^(?:cd \S+ *(?:&&|;) *|\w+=\S+ +|sudo +|time +|timeout \S+ +)*")


def _command(target: str) -> str:
    """Return the program and subcommand of a command line: `git push`, `npm install`."""
    words = _PREFIX.sub("", target).split()
    return " ".join(w for w in words[:2] if not w.startswith("-"))


def _is_temporary(target: str) -> bool:
    # Most targets are paths without any of these.
    return any(mark in target for mark in ("cd ", "$", "mktemp")) and _IN_TEMPORARY.search(target) is not None


def _is_slight(words: str) -> bool:
    """Whether a message is too slight for a goal: a greeting, a command of the client."""
    least = _SLIGHT_CHARS if words.isascii() else _SLIGHT_CHARS // 2
    return len(words) < least or words.startswith("/")


def _is_amended(record: CommitRecord, new_hash: str, title: str) -> bool:
    return record.commit.hash == new_hash or (bool(title) and record.commit.title == title and not record.is_pushed)


def _is_relative(folder: str) -> bool:
    return not folder.startswith(("/", "~", "\\")) and folder[1:2] != ":"
