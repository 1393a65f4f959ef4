"""Track the effects of tool calls: files, commits, branch and folder, tests, processes, errors and the plan."""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from perdure.context.task_state.state import (
    CommitRecord,
    FileStatus,
    LastTestRun,
    PlanItem,
    SourcedValue,
    TakenBackChanges,
    TaskError,
    TouchedFile,
    is_same_hash,
)
from perdure.context.task_state.step_log import StepLog
from perdure.context.text import first_words
from perdure.context.tool_calls.call_line import NO_FACTS, CallFacts, CallKind, CallLine
from perdure.context.tool_calls.services import is_change
from perdure.context.tool_calls.shell import covers, tested_paths
from perdure.core.messages import FilesTakenBack
from perdure.redaction import redact

# A folder for a moment: of `mktemp`, of a test run, or in a variable.
_TEMPORARY = re.compile(
    r"^(?:/private)?/(?:tmp|var/tmp|var/folders)(?:/|$)|^\$|^[\"']?\$\(|\bmktemp\b|/pytest-of-|/T/tmp|AppData.Local.Temp",
    re.IGNORECASE,
)
# Delegated agents have reported by the end of the turn.
_DELEGATED = "agent "
_IN_TEMPORARY = re.compile(r"\bcd [\"']?(?:/private)?/(?:tmp|var/tmp|var/folders)\b|\bcd [\"']?\$|\bmktemp\b|\$\{?TMP")
_TASK = re.compile(r"^task (\w+): (.+)", re.DOTALL)
_TASK_ENDED = re.compile(r"\bstatus\W{1,3}(?:completed?|done|cancell?ed|deleted|closed)\b", re.IGNORECASE)
# Commands that look and change nothing: their failure blocks nothing.
LOOKS: frozenset[CallKind] = frozenset(("read", "search", "web"))
_CHANGES = frozenset(("edit", "write", "delete"))
_CALL_NAMES: Mapping[str, str] = {
    "read": "read",
    "search": "search",
    "web": "page read",
    "test": "test run",
    "build": "build",
    "shell": "command",
    "git": "git command",
    "delegate": "delegated agent",
}
_TEST_FILE = re.compile(r"(?i)(?:^|[_.-])(?:tests?|specs?)(?:[_.-]|$)|^test|Tests?\.\w+$")
_PROSE = (".md", ".txt", ".rst", ".adoc")
_MOST_CHANGED = 4
_LAST_FOLDERS = 8
_SERVICE_CHARS = 200
# A folder for one command: `cd x && …`, `git -C x …`.
_ONE_COMMAND = re.compile(r"^\(? *cd +(?:\"[^\"]*\"|'[^']*'|[^\s;&|]+) *(?:&&|;)|\bgit -C ")
# The folder that a command enters for itself.
_ENTERED = re.compile(r"^\(? *cd +(\"[^\"]*\"|'[^']*'|[^\s;&|]+) *(?:&&|;)|\bgit -C +(\"[^\"]*\"|'[^']*'|\S+)")
# Line numbers behind a path.
_LINE_RANGE = re.compile(r":\d+(?:-\d+)?$")


def _name_of_call(line: CallLine) -> str:
    """Return what a call is counted as; a search on the web and a page that did not load are no pages read."""
    if line.kind == "web" and "search" in line.name.lower():
        return "web search"
    if line.kind == "web" and line.outcome != "ok":
        return "failed page read"
    return _CALL_NAMES.get(line.kind) or line.name.replace("_", " ")


@dataclass(slots=True)
class WorkLog:
    """The effects of the calls so far, updated by one call at a time."""

    files: dict[str, TouchedFile] = field(default_factory=dict)
    commits: list[CommitRecord] = field(default_factory=list)
    head: SourcedValue | None = None
    # The newest commit of the last log that was read.
    shown_head: SourcedValue | None = None
    created: dict[str, SourcedValue] = field(default_factory=dict)
    settled: dict[str, SourcedValue] = field(default_factory=dict)
    # Files that were changed since the plan was updated.
    changed_since_plan: dict[str, None] = field(default_factory=dict)
    # Changed files with the positions of the changes.
    changed_at: list[tuple[int, str]] = field(default_factory=list)
    taken_back: list[TakenBackChanges] = field(default_factory=list)
    # Positions of changes that the assistant undid.
    undone_at: list[int] = field(default_factory=list)
    folder: SourcedValue | None = None
    temporary_folder: SourcedValue | None = None
    branch: SourcedValue | None = None
    is_pushed: bool | None = None
    tests: LastTestRun | None = None
    processes: dict[str, SourcedValue] = field(default_factory=dict)
    errors: list[TaskError] = field(default_factory=list)
    plan: dict[str, PlanItem] = field(default_factory=dict)
    steps: StepLog = field(default_factory=StepLog)
    # Calls since the newest request that changed no file, by name.
    calls: Counter[str] = field(default_factory=Counter)
    # Files with tests that no run covered since they were changed, in the order of the changes.
    unrun_tests: dict[str, None] = field(default_factory=dict)
    # Whether files were edited in place, as in a repository.
    has_edits: bool = False
    # Names of the files that were changed since the tests passed.
    _unproven: set[str] = field(default_factory=set)
    # Files that were deleted or moved, by both names, with the positions.
    _moved_at: list[tuple[int, str]] = field(default_factory=list)
    # The last call since the last reply, and its position.
    _last: tuple[CallLine, int] | None = None
    # Names of files by the paths in calls.
    _aliases: dict[str, str] = field(default_factory=dict)
    # Files by their last part.
    _names: dict[str, list[str]] = field(default_factory=dict)
    # Folders of the last commands that name one for themselves.
    _folders: list[str] = field(default_factory=list)
    # Titles of created tasks by their ids.
    _tasks: dict[str, str] = field(default_factory=dict)
    # Indexes of the open errors.
    _open: list[int] = field(default_factory=list)
    # Kind of each error's call, parallel to `errors`.
    _kinds: list[str] = field(default_factory=list)
    # How many calls changed something, and how many did more than look.
    changes: int = 0
    steps_taken: int = 0

    def add(self, seq: int, line: CallLine, *, expects_failure: bool = False) -> None:
        """Add a call; `expects_failure` if a test that fails was announced."""
        kind, facts, is_ok = line.kind, line.facts, line.outcome == "ok"
        has_changed = kind in _CHANGES
        self._last = line, seq
        if not has_changed and kind != "task":
            self.calls[_name_of_call(line)] += 1
        if kind == "other" and is_ok and not facts.created and is_change(line.name):
            self.settled[line.line] = SourcedValue(first_words(redact(line.line), _SERVICE_CHARS), seq)
        if is_ok and (has_changed or facts.commit or facts.created or facts.pushed):
            self.changes += 1
        if self.tests is not None and facts.tests is None and not has_changed and self._runs_tests(line):
            self.tests = replace(self.tests, changed_since=(), is_outdated=True)
            self._note_run(line)
        if line.repeatable is not None:
            self.steps.add(seq, line.repeatable)
        if facts is not NO_FACTS:
            self._add_facts(seq, line, facts)
        if kind == "task" and _TASK_ENDED.search(line.line) and (title := self._tasks.get(line.target, "")):
            self._add_plan(seq, ((title, True),))
        if facts.changed_files:
            self._unproven.update(map(_base_name, facts.changed_files))
        if kind == "test" and is_ok:
            self._unproven.clear()
        if expects_failure and self._is_red_on_purpose(line):
            self.tests = replace(self.tests, is_expected=True) if self.tests is not None else None
        elif self._open or not is_ok:
            self._add_outcome(seq, line)

    def _is_red_on_purpose(self, line: CallLine) -> bool:
        """Whether a run fails by tests that were written before the change: nothing but tests was changed before it."""
        is_red = line.kind == "test" and line.outcome == "failed"
        return is_red and bool(self._unproven) and all(map(_TEST_FILE.search, self._unproven))

    def files_changed(self, after: int, until: int) -> tuple[str, ...]:
        """Return the files that were changed between two positions, in the order of the first change."""
        lo = bisect_right(self.changed_at, after, key=lambda c: c[0])
        hi = bisect_right(self.changed_at, until, key=lambda c: c[0])
        return tuple(dict.fromkeys(path for _, path in self.changed_at[lo:hi]))

    def edit_in_reply(self, seq: int, paths: Iterable[str]) -> None:
        """Note the files that the edits in a reply change."""
        for name in filter(None, map(self._name_of, paths)):
            self._touch(name, "changed", seq)
            self.changed_at.append((seq, name))
            self.changes += 1

    def undo(self, path: str, seqs: Iterable[int]) -> None:
        """Forget the changes of a file at some positions: it is again as it was before them."""
        name, gone = self._name_of(path), frozenset(seqs)
        file = self.files.get(name)
        self.undone_at += sorted(seq for seq, changed in self.changed_at if changed == name and seq in gone)
        self.changed_at = [c for c in self.changed_at if c[1] != name or c[0] not in gone]
        last = max((seq for seq, changed in self.changed_at if changed == name), default=None)
        if file is not None and file.status == "changed":
            self.files[name] = replace(file, status="changed" if last is not None else "undone", changed_seq=last)
        if last is None:
            self.unrun_tests.pop(name, None)

    def has_undone(self, after: int, until: int) -> bool:
        """Return whether a change between two positions was undone."""
        return any(after < seq <= until for seq in self.undone_at)

    def files_taken_back(self, after: int, until: int) -> tuple[str, ...]:
        """Return the files that were changed between two positions by changes that the user took back."""
        changes = (c for c in (*self.changed_at, *self._moved_at) if after < c[0] <= until) if self.taken_back else ()
        return tuple(dict.fromkeys(path for seq, path in changes if self._is_gone(seq, path)))

    def _is_gone(self, seq: int, path: str) -> bool:
        return any(t.covers(seq) and path in t.files for t in self.taken_back)

    def take_back(self, seq: int, note: FilesTakenBack) -> None:
        """Note that the user restored files: they are changed by what was before the restored state, if by anything."""
        since = note.before_seq
        changes = [*self.changed_at, *self._moved_at]
        names = dict.fromkeys(filter(None, (self._restored_name(redact(path)) for path in note.paths)))
        # A folder that was deleted as a whole is back with its files.
        names.update((path, None) for at, path in self._moved_at if at >= since and _is_above(path, note.restored))
        if note.more:
            names.update((path, None) for at, path in changes if at >= since)
        remaining = [(at, path) for at, path in changes if at < since and not self._is_gone(at, path)]
        previous = {name: max((at for at, path in remaining if path == name), default=None) for name in names}
        taken_back = TakenBackChanges(tuple(names), since, seq)
        self.taken_back.append(taken_back)
        self.steps.take_back(taken_back)
        for name, last in previous.items():
            self._restore(name, last, seq)
        for path, file in self.files.items():  # a copy of what was restored where it had been moved from
            if file.moved_from in names and taken_back.covers(file.changed_seq or 0):
                self.files[path] = replace(file, status="changed", moved_from="")
        self._unproven.difference_update(map(_base_name, names))
        if self.tests is None or self.tests.is_outdated:
            return
        run_at = self.tests.seq
        outdated = [n for n, last in previous.items() if run_at >= since or (last is not None and last > run_at)]
        restored = {*map(_base_name, names)}.difference(map(_base_name, outdated))
        changed = [n for n in self.tests.changed_since if n not in restored]
        changed += (_base_name(n) for n in outdated if not n.endswith(_PROSE))
        self.tests = replace(self.tests, changed_since=tuple(dict.fromkeys(changed))[-_MOST_CHANGED:])

    def _restored_name(self, path: str) -> str:
        """Return the name under which a restored file is listed, also in a scratch folder."""
        candidates = self._names.get(_base_name(path), ())
        ends = (k for k in candidates if _is_relative(k) and path.endswith("/" + k.removeprefix("./")))
        return max(ends, key=len, default="") or self._name_of(path)

    def _restore(self, path: str, changed_seq: int | None, seq: int) -> None:
        before = self.files.pop(path, None)
        moved_from = before.moved_from if before is not None and changed_seq is not None else ""
        status: FileStatus = "taken back" if changed_seq is None else "moved" if moved_from else "changed"
        seqs = (*(before.seqs if before else ()), seq)
        self.files[path] = TouchedFile(path, status, seqs[-8:], moved_from, changed_seq)
        if changed_seq is None:
            self.unrun_tests.pop(path, None)
            self.changed_since_plan.pop(path, None)

    def _note_run(self, line: CallLine) -> None:
        """Forget the changed tests that a run covers, by what its command limits it to."""
        if self.unrun_tests:
            paths = tested_paths(line.target)
            self.unrun_tests = {file: None for file in self.unrun_tests if not covers(paths, file)}

    def _runs_tests(self, line: CallLine) -> bool:
        command = _command(self.tests.target) if self.tests is not None else ""
        return bool(command) and command in line.target

    def add_report(self, seq: int, report: CallLine) -> None:
        """Note a failed test run that the user reports: it is newer than the last one."""
        if report.facts.tests is not None:
            self.tests = LastTestRun(report.facts.tests, "", seq, is_ok=False)
        self._add_outcome(seq, report)

    def _add_facts(self, seq: int, line: CallLine, facts: CallFacts) -> None:
        if not _is_temporary(line.target):  # a scratch repository is not the work
            self._add_environment(seq, facts, line.target)
            self._add_commit(seq, facts)
            self._add_files(seq, facts)
        elif facts.folder.startswith("/"):  # where the shell is again afterwards
            self._set_folder(seq, facts.folder)
        if facts.tests is not None and (line.kind == "test" or self.tests is None or not self.tests.is_suite):
            is_ok = line.outcome == "ok" and not facts.tests.failed and not facts.tests.failures
            self.tests = LastTestRun(facts.tests, line.target, seq, is_ok, is_suite=line.kind == "test")
            self._note_run(line)
        elif self.tests is not None and line.kind in _CHANGES and not self.tests.is_outdated:
            known = self.tests.changed_since
            changed = dict.fromkeys((*known, *map(_base_name, _checkable(facts))))
            if len(changed) > len(known):
                self.tests = replace(self.tests, changed_since=tuple(changed)[-_MOST_CHANGED:])
        self.has_edits = self.has_edits or (line.kind == "edit" and bool(facts.changed_files))
        if facts.changed_files:
            self.unrun_tests.update((p, None) for p in map(self._name_of, _checkable(facts)) if _is_test_file(p))
        if facts.plan:
            self._add_plan(seq, facts.plan)
        for text in facts.settled:
            self.settled[text] = SourcedValue(text, seq)
        for text in facts.created:
            if task := _TASK.match(text):
                self._tasks[task[1]] = task[2]
                self.plan.setdefault(task[2], PlanItem(redact(task[2]), is_done=False, seq=seq))
            else:
                self.created[text] = SourcedValue(text, seq)

    @property
    def unknown_call(self) -> SourcedValue | None:
        if self._last is None:
            return None
        line, seq = self._last
        return (
            None if line.outcome not in ("unknown", "interrupted") else SourcedValue(line.line.partition(" → ")[0], seq)
        )

    def _add_environment(self, seq: int, facts: CallFacts, command: str) -> None:
        folder = facts.folder.strip().strip("\"'") if facts.folder else ""
        if folder and _is_for_one_command(command, folder):
            folder = self._usual_folder(folder)
        elif folder and not _is_relative(folder):
            # Where the shell is counts more than the folder of one command.
            self._folders = [folder] * 2
        if folder:
            self._set_folder(seq, folder)
        is_elsewhere = bool(facts.shown_head or facts.branch) and self._is_elsewhere(command)
        if facts.shown_head and not is_elsewhere:
            self.shown_head = SourcedValue(facts.shown_head, seq)
        if facts.branch and not is_elsewhere and (self.branch is None or self.branch.value != facts.branch):
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

    def _usual_folder(self, folder: str) -> str:
        """Return the folder of most of the last commands that name one for themselves: a single one moves nothing."""
        if not folder or _is_relative(folder) or _TEMPORARY.search(folder):
            return "" if _is_relative(folder) else folder
        self._folders = [*self._folders[1 - _LAST_FOLDERS :], folder]
        times = Counter(self._folders)
        return folder if times[folder] == max(times.values()) else ""

    def _set_folder(self, seq: int, folder: str) -> None:
        if _TEMPORARY.search(folder):
            self.temporary_folder = SourcedValue(folder, seq)
        elif self.folder is None or not _is_relative(folder) or _is_relative(self.folder.value):
            if not self._is_here(folder):
                self.branch = None  # of the repository before
            self.folder = SourcedValue(folder, seq)

    def _is_elsewhere(self, command: str) -> bool:
        """Whether a command enters the folder of another repository than that of the work."""
        match = _ENTERED.search(command)
        if match is None or self.folder is None or _is_relative(self.folder.value):
            return False
        entered = (match[1] or match[2]).strip("\"'")
        if _is_relative(entered):
            if not entered.startswith("../"):
                return False
            entered = posixpath.normpath(posixpath.join(self.folder.value, entered))
        return not self._is_here(entered)

    def _add_commit(self, seq: int, facts: CallFacts) -> None:
        if (commit := facts.commit) is not None:
            self.commits = [c for c in self.commits if not _is_amended(c, commit.hash, commit.title)]
            self.commits.append(CommitRecord(commit, seq))
            self.is_pushed = False
            self.head = None
            if commit.branch:
                self.branch = SourcedValue(commit.branch, seq)
        # A log tells where HEAD is once something has moved it: before that, it may be one of another repository.
        head = facts.head or (facts.shown_head if self.head is not None else "")
        if head and self._is_here(facts.folder):
            newest = self.commits[-1].commit.hash if self.commits else ""
            self.head = None if is_same_hash(newest, head.partition(" ")[0]) else SourcedValue(head, seq)
        if facts.pushed is not None:
            self.is_pushed = facts.pushed
            if facts.pushed:
                self.commits = [replace(c, is_pushed=True) for c in self.commits]

    def _is_here(self, folder: str) -> bool:
        """Whether a folder may belong to the repository that is worked on."""
        if not folder or self.folder is None or _is_relative(folder) or _is_relative(self.folder.value):
            return True
        entered, here = (f"{f.rstrip('/')}/" for f in (folder, self.folder.value))
        return entered.startswith(here) or here.startswith(entered)

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
                    if status == "changed":
                        self.changed_at.append((seq, name))
                        self.changed_since_plan[name] = None
                    elif status == "deleted":
                        self._moved_at.append((seq, name))
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
        self._moved_at += ((seq, name) for name in (source, target) if name)
        before = self.files.pop(source, None) if source else None
        if not target:
            return
        origin = (before.moved_from if before else "") or source
        status: FileStatus = "moved" if origin and origin != target else "changed"
        seqs = (*(before.seqs if before else ()), seq)
        self.files[target] = TouchedFile(target, status, seqs[-8:], origin if status == "moved" else "", seq)

    def _known_name(self, path: str) -> str:
        """Return the known name of a file: a relative path may be the end of an absolute one; "" for scratch."""
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
        self.changed_since_plan = {}
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
            self.errors.append(TaskError(redact(line.facts.error or line.line), line.target, seq))
            self._kinds.append(line.kind)
        elif line.outcome == "ok":
            self._solve([i for i in self._open if _is_same_work(self._kinds[i], self.errors[i].target, line)], seq)

    def _solve(self, indexes: Sequence[int], seq: int) -> None:
        for i in indexes:
            self.errors[i] = replace(self.errors[i], solved_seq=seq)
        self._open = [i for i in self._open if i not in indexes]

    @property
    def has_failed(self) -> bool:
        """Whether a failure is open."""
        return bool(self._open)

    def end_turn(self, seq: int, *, may_be_open: bool) -> None:
        """At a final reply, nothing is under way, and failures that the work went past are forgotten.

        A failed test stays where the reply admits it.
        """
        self._solve([i for i in self._open if self._kinds[i] in LOOKS or not may_be_open], seq)
        self._last = None
        self.processes = {name: p for name, p in self.processes.items() if not name.startswith(_DELEGATED)}


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


@lru_cache(maxsize=256)
def _command(target: str) -> str:
    """Return the program and subcommand of a command line: `git push`, `npm install`."""
    words = _PREFIX.sub("", target).split()
    return " ".join(w for w in words[:2] if not w.startswith("-"))


def _is_for_one_command(command: str, folder: str) -> bool:
    return (match := _ONE_COMMAND.search(command)) is not None and folder in match[0] + command[match.end() :]


def _checkable(facts: CallFacts) -> Iterable[str]:
    """Yield the changed files that a test run may check: not those that are only read by people."""
    return (p for p in facts.changed_files if not p.endswith(_PROSE))


def _is_test_file(path: str) -> bool:
    return _TEST_FILE.search(_base_name(path)) is not None


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_temporary(target: str) -> bool:
    # Most targets are paths without any of these.
    may_be = "cd " in target or "$" in target or "mktemp" in target
    return may_be and _IN_TEMPORARY.search(target) is not None


def _is_amended(record: CommitRecord, new_hash: str, title: str) -> bool:
    return record.commit.hash == new_hash or (bool(title) and record.commit.title == title and not record.is_pushed)


def _is_relative(folder: str) -> bool:
    return not folder.startswith(("/", "~", "\\")) and folder[1:2] != ":"


def _is_above(folder: str, paths: Sequence[str]) -> bool:
    """Return whether a folder, named from anywhere, has one of these files."""
    part = f"/{folder.removeprefix('./').strip('/')}/"
    return any(part in f"/{path}" for path in paths)
