"""Kinds of danger, findings, nested commands, taint markers, and the budget of an analysis.

Commands are untrusted text: one whose analysis would take more than its budget needs approval.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass


def word_list(text: str) -> tuple[str, ...]:
    """Return the words of a table."""
    return tuple(text.split())


def word_set(text: str) -> frozenset[str]:
    """Return the words of a table, for lookup."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of danger; if not `is_lasting`, it needs approval every time, whatever was answered before."""

    why: str
    instead: str = "Tell the user what you wanted to do and why, or find a reversible way."
    is_lasting: bool = True


@dataclass(frozen=True, slots=True)
class Danger:
    """A finding in a command that needs approval; `reason` says more than its kind."""

    kind: str
    what: str
    reason: str = ""
    # The program that is not known; an answer is stored for it alone.
    program: str = ""

    @property
    def key(self) -> str:
        """The key that an answer is stored under."""
        return f"program:{self.program}" if self.program else self.kind

    @property
    def why(self) -> str:
        return self.reason or KINDS[self.kind].why


_BACKUP = "Move it aside (mv) instead of deleting it, or delete named files one by one."

KINDS: dict[str, Kind] = {
    "delete-tree": Kind("it deletes files, perhaps for good", _BACKUP),
    "delete-outside": Kind("it deletes files outside the workspace", _BACKUP),
    "delete-everything": Kind("it deletes the system, a home folder or the whole workspace", _BACKUP, is_lasting=False),
    "disk": Kind("it writes to a disk or device directly, or makes data unrecoverable", is_lasting=False),
    "permissions": Kind("it changes permissions broadly", "Change the one file that needs it."),
    "system-files": Kind("it changes system files", "Keep changes inside the workspace, or ask the user."),
    "startup-files": Kind("it changes what runs at login, keys, or scheduled jobs", "Ask the user to change it."),
    "git-internals": Kind("it changes Git's own files", "Use git commands instead."),
    "power": Kind("it stops or restarts the machine", is_lasting=False),
    "kill": Kind("it kills processes that are not its own", "End one process by its id."),
    "services": Kind("it stops or removes a service"),
    "network": Kind("it changes the firewall or the network"),
    "users": Kind("it changes accounts, groups or passwords"),
    "security": Kind("it disables protection or logging", is_lasting=False),
    "kernel": Kind("it changes the running kernel or what is mounted"),
    "packages": Kind("it installs, removes or replaces software of the machine"),
    "git-discard": Kind("it discards uncommitted work", "Commit or stash it first (git stash)."),
    "git-rewrite": Kind("it removes branches or rewrites history", "Make a new commit or branch instead."),
    "git-push": Kind("it overwrites or deletes what others see", "Push a new branch instead."),
    "database": Kind("it deletes data or tables", "Look first (SELECT), make a backup, or name the rows (WHERE)."),
    "containers": Kind("it removes containers, images or volumes in bulk, or gives a container access to the host"),
    "cloud": Kind(
        "it creates, deletes or changes things on other machines", "Show what would change first (plan, --dry-run)."
    ),
    "publish": Kind("it publishes something that others will install", "Try it with --dry-run."),
    "commitment": Kind("it sends messages or spends money in the user's name", "Ask the user to do it."),
    "remote-code": Kind("it runs code fetched from the network", "Save it to a file, read it, then run it."),
    "hidden-code": Kind("it runs code that is hidden or generated at run time", "Write the command out plainly."),
    "reverse-shell": Kind("it opens a shell to the network", is_lasting=False),
    "fork-bomb": Kind("it starts processes without limit", is_lasting=False),
    "exhaustion": Kind("it uses up the disk, the memory or the processors", "Set a small size or a time limit."),
    "recording": Kind("it records the user, the network or another process", "Ask the user for what you need to know."),
    "scan": Kind("it scans or floods other machines", "Test the one host and port that you need."),
    "exposure": Kind("it makes a local service or stored data public", "Serve it on localhost only."),
    "firmware": Kind("it changes firmware or boot settings", is_lasting=False),
    "credentials": Kind("it reads or sends credentials", "Work without their contents.", is_lasting=False),
    "send-data": Kind("it sends files or data to another machine", "Ask the user to send it."),
    "package-source": Kind("it installs packages from an unusual source", "Install from the configured index."),
    "environment": Kind("it makes programs load or run other code", "Run the program without that setting."),
    "privileges": Kind("it gains the rights of another user", "Run the one command that needs them."),
    "unreadable": Kind("what it runs cannot be known in advance", "Write it as plain commands.", is_lasting=False),
    "unknown-program": Kind(
        "it is not known what this program does", "Use a tool that is known, or ask the user to run it."
    ),
    "write-outside": Kind("it writes outside the workspace", "Write inside the workspace."),
    "own-rules": Kind("it changes the rules that Perdure follows", "Ask the user to change them.", is_lasting=False),
    "tool": Kind("this tool always needs approval"),
    "edit-file": Kind("it changes a file", "Tell the user what you wanted to change."),
    "run-command": Kind("it may change something", "Tell the user what you wanted to run and why."),
    "ask-rule": Kind("a rule asks for it every time", is_lasting=False),
}


@dataclass(frozen=True, slots=True)
class Words:
    """A nested program and its arguments; `is_remote` on another machine or in a container.

    `is_own` if it need not be known: a program of the project's environment, or of a container.
    """

    words: tuple[str, ...]
    stdin: str | None = None
    is_remote: bool = False
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A nested shell script; a guess is text that may be no shell code at all."""

    text: str
    arguments: tuple[str, ...] = ()
    is_remote: bool = False
    is_guess: bool = False
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """Nested code in another language."""

    language: str
    text: str


NestedCommand = Words | Script | Code


# Unknown text.
UNKNOWN = "\ufdd0"
# Fetched from the network.
DOWNLOADED = "\ufdd1"
# Decoded, reversed or otherwise transformed.
DECODED = "\ufdd2"
# Contains a credential.
SECRET = "\ufdd3"
# Output of an ordinary program.
PROGRAM = "\ufdd4"
# Content of a file.
FILE = "\ufdd5"
# A folder created by `mktemp`.
FRESH = "\ufdd6"
# Shell code printed by a well-known program for this purpose, such as `ssh-agent -s`.
SHELL_SETUP = "\ufdd7"
# In front of the default of a variable that may have another value: `${PYTHON:-python3}`.
DEFAULTED = "\ufdd8"

ALL_TAINTS = UNKNOWN + DOWNLOADED + DECODED + SECRET + PROGRAM + FILE + FRESH + SHELL_SETUP + DEFAULTED
_ANY_TAINT = re.compile(f"[{ALL_TAINTS}]")


def has_taint(text: str) -> bool:
    return _ANY_TAINT.search(text) is not None


def taints_of(text: str, candidates: str = ALL_TAINTS) -> str:
    """Return the taint markers among `candidates` that occur in the text, each once."""
    return "".join(m for m in candidates if m in text)


def strip_taints(text: str, placeholder: str = "?") -> str:
    """Replace taint markers for display."""
    return _ANY_TAINT.sub(placeholder, text)


# Longer commands are not analyzed at all; large here-documents and quoted blobs stay far below.
MAX_COMMAND_CHARS = 4_000_000
# Commands, words and parts of words in total.
MAX_PIECES = 20_000
# Characters that expansion, pipes and files may produce, in addition to a multiple of the command length.
_SPARE_CHARS = 300_000
_CHARS_PER_CHAR = 6
_DEADLINE_S = 0.14
# For the parser alone, whose time cannot be bounded by counters.
_PARSE_DEADLINE_S = 0.05
_MIN_PARSE_S = 0.01
_DEADLINE_S_PER_CHAR = 2e-7
_CALLS_PER_CLOCK_CHECK = 32
TOO_LONG = "it is too long or too complex to analyze"


class Unreadable(Exception):
    """The command cannot be analyzed; the message says why."""


class Budget:
    """The remaining budget for one command; the methods raise Unreadable once it is exhausted.

    The counters alone keep most analyses cheap; the deadline bounds the parser. It uses CPU time of the thread, so
    that a busy machine does not change the result.
    """

    def __init__(self, command_chars: int, *, clock: Callable[[], float] = time.thread_time) -> None:
        if command_chars > MAX_COMMAND_CHARS:
            raise Unreadable(TOO_LONG)
        self._chars = _SPARE_CHARS + _CHARS_PER_CHAR * command_chars
        self._pieces = MAX_PIECES
        self._calls = 0
        self._clock = clock
        started_s = clock() + _DEADLINE_S_PER_CHAR * command_chars
        self._deadline_s, self._parse_deadline_s = started_s + _DEADLINE_S, started_s + _PARSE_DEADLINE_S

    def parse_micros(self, *, is_nested: bool) -> int:
        """Return the time left to parse the command, or a script inside it. Raises Unreadable if it is short."""
        left_s = (self._deadline_s if is_nested else self._parse_deadline_s) - self._clock()
        if left_s < _MIN_PARSE_S:
            raise Unreadable(TOO_LONG)
        return int(left_s * 1e6)

    def spend_chars(self, count: int) -> None:
        """Count characters that were produced or are about to be parsed again."""
        self._chars -= count
        self._check()

    def spend_pieces(self, count: int = 1) -> None:
        """Count commands, words or parts of words."""
        self._pieces -= count
        self._check()

    def _check(self) -> None:
        self._calls += 1
        is_late = self._calls % _CALLS_PER_CLOCK_CHECK == 0 and self._clock() > self._deadline_s
        if self._chars < 0 or self._pieces < 0 or is_late:
            raise Unreadable(TOO_LONG)


def replace_bounded(text: str, old: str, new: str, *, max_chars: int = 200_000) -> str:
    """Like `text.replace`, but raise Unreadable if the result would be too long."""
    if old not in text:
        return text
    if not old or len(text) + text.count(old) * len(new) > max_chars:
        raise Unreadable(TOO_LONG)
    return text.replace(old, new)
