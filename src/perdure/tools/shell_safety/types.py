"""Kinds of danger, findings, nested commands and taint markers."""

from __future__ import annotations

import re
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
    """One finding in a command that needs approval; `reason` says more than its kind."""

    kind: str
    what: str
    reason: str = ""

    @property
    def why(self) -> str:
        return self.reason or KINDS[self.kind].why


_BACKUP = "Move it aside (mv) instead of deleting it, or delete named files one by one."

KINDS: dict[str, Kind] = {
    "delete-tree": Kind("it deletes files that cannot be recovered", _BACKUP),
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
    "packages": Kind("it removes software from the machine"),
    "git-discard": Kind("it discards uncommitted work", "Commit or stash it first (git stash)."),
    "git-rewrite": Kind("it removes branches or rewrites history", "Make a new commit or branch instead."),
    "git-push": Kind("it overwrites or deletes what others see", "Push a new branch instead."),
    "database": Kind("it deletes data or tables", "Look first (SELECT), make a backup, or name the rows (WHERE)."),
    "containers": Kind("it removes containers, images or volumes in bulk, or gives a container access to the host"),
    "cloud": Kind("it deletes or changes things on other machines", "Show what would change first (plan, --dry-run)."),
    "publish": Kind("it publishes something that others will install", "Try it with --dry-run."),
    "remote-code": Kind("it runs code fetched from the network", "Save it to a file, read it, then run it."),
    "hidden-code": Kind("it runs code that is hidden or generated at run time", "Write the command out plainly."),
    "reverse-shell": Kind("it opens a shell to the network", is_lasting=False),
    "fork-bomb": Kind("it starts processes without limit", is_lasting=False),
    "credentials": Kind("it reads or sends credentials", "Work without their contents.", is_lasting=False),
    "send-data": Kind("it sends files or data to another machine", "Ask the user to send it."),
    "package-source": Kind("it installs packages from an unusual source", "Install from the configured index."),
    "environment": Kind("it makes programs load or run other code", "Run the program without that setting."),
    "privileges": Kind("it gains the rights of another user", "Run the one command that needs them."),
    "unreadable": Kind("what it runs cannot be known in advance", "Write it as plain commands.", is_lasting=False),
    "write-outside": Kind("it writes outside the workspace", "Write inside the workspace."),
    "own-rules": Kind("it changes the rules that Perdure follows", "Ask the user to change them.", is_lasting=False),
    "tool": Kind("this tool always needs approval"),
    "edit-file": Kind("it changes a file", "Tell the user what you wanted to change."),
    "run-command": Kind("it may change something", "Tell the user what you wanted to run and why."),
    "ask-rule": Kind("a rule asks for it every time", is_lasting=False),
}


@dataclass(frozen=True, slots=True)
class Words:
    """A nested program and its arguments; `is_remote` on another machine or in a container."""

    words: tuple[str, ...]
    stdin: str | None = None
    is_remote: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A nested shell script; a guess is text that may be no shell code at all."""

    text: str
    arguments: tuple[str, ...] = ()
    is_remote: bool = False
    is_guess: bool = False


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
