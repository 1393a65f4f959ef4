"""Values that the modules of the record exchange."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

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
    """What a call changed or showed about the state of the work; empty where nothing of the kind was seen."""

    folder: str = ""
    branch: str = ""
    commit: Commit | None = None
    # True after a push that succeeded, False after one that was rejected.
    pushed: bool | None = None
    tests: TestRun | None = None
    changed_files: tuple[str, ...] = ()
    read_files: tuple[str, ...] = ()
    deleted_files: tuple[str, ...] = ()
    # Things that were created, each as "PR #12: title", "task 3: title", "comment 4411".
    created: tuple[str, ...] = ()
    # Open and finished items of a plan or todo list, as the newest call shows them.
    plan: tuple[tuple[str, bool], ...] = ()
    started_process: str = ""
    stopped_process: str = ""
    error: str = ""


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
    """One tool call and its result, as the record tells them."""

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
