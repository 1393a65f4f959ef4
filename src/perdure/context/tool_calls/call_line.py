"""The line of a tool call: what was called, on what, what came of it, and the facts about the work that it proves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    # What was merged, closed or reopened, each as "merged PR #12".
    settled: tuple[str, ...] = ()
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
    """A tool call and its result, as the handoff describes them."""

    kind: CallKind
    name: str
    # What it worked on: a path, a command, a pattern; neighbours with the same kind may be merged by it.
    target: str
    outcome: Outcome
    # One line of at most about 160 characters: what, on what, what came of it.
    line: str
    # The same with what a reader needs later: failing tests, both sides of an edit, the rows of a status. Several lines
    # are allowed; at most about 1,200 characters, 2,000 of data. Equal to `line` where there is nothing to add.
    detail: str
    # 0 (a listing) to 1 (a refusal with its reason, a failing test that is still open).
    worth: float
    # The reason the user gave for refusing the call, word for word; "" otherwise.
    user_words: str = ""
    # The result is prose with findings (a delegated agent, a reviewer): rendered like a conclusion of the assistant.
    report: str = ""
    facts: CallFacts = NO_FACTS
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
        # One by one: a loop takes twice as long, and most calls of a history are pending.
        put = object.__setattr__
        put(self, "kind", kind)
        put(self, "name", name)
        put(self, "target", target)
        put(self, "outcome", "ok")
        put(self, "worth", worth)
        put(self, "user_words", "")
        put(self, "report", "")
        put(self, "facts", facts)
        put(self, "repeatable", None)
        put(self, "_composed", compose)

    def compose_by(self, compose: Callable[[], CallLine]) -> None:
        """Replace the function that composes the texts, of a line of which none was read yet."""
        object.__setattr__(self, "_composed", compose)

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


# Kinds of calls that neither the files nor the commits of a task represent.
_STEPS: frozenset[CallKind] = frozenset(("other", "shell", "test", "build"))
# Tools that look at something and leave nothing done.
_LOOKS = re.compile(
    r"(?i)(?:\w+__)?(?:get|read|fetch|list|search|view|find|query|open|show|browse|inspect|calculate|compute|think)"
)
_LONGEST_CALL = 160
_MOST_WORDS = 12
_WORDS = re.compile(r"[^\s,`“”\"']+")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z:-]*")


def read_repeatable(line: CallLine) -> RepeatableCall | None:
    """Split a call into the words that may vary and its outcome; None for calls that are described otherwise."""
    if line.kind not in _STEPS or line.report or line.user_words or line.facts.commit or line.facts.created:
        return None
    what, _, outcome = line.line.partition(" → ")
    words = tuple(_WORDS.findall(what)) if len(what) <= _LONGEST_CALL else ()
    if not 2 <= len(words) <= _MOST_WORDS or (line.kind == "other" and _LOOKS.match(line.name)):
        return None
    names = (w.partition("=")[0] if "=" in w else "" for w in words[1:])
    action = words[1] if len(words) > 2 and _PLAIN.fullmatch(words[1]) else ""
    return RepeatableCall((line.name, words[0], action, *names), words, outcome, is_ok=line.outcome == "ok")
