"""Read from a command line what git does to changes that no commit has: restore files, stage, stash or commit them.

In doubt a command restores nothing: it counts only as a command of its own, outside quotes and conditions, in a folder
that the line or an earlier one names.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from perdure.context.tool_calls.git import git_subcommand
from perdure.context.tool_calls.shell import ShellCommand, ShellLine, parse_shell

# "restore" drops changes; "stage" puts them into the index; "settle" commits or stashes them, or may do so.
ChangeKind = Literal["restore", "stage", "settle"]

_CONDITIONS = frozenset(("if", "elif", "else", "then", "while", "until", "for", "case", "do", "function"))
_ENTERS = frozenset(("cd", "pushd"))
_KINDS: dict[str, ChangeKind] = {"add": "stage", "stage": "stage", "commit": "settle", "stash": "settle"}
_RESTORED = re.compile(r"\bUpdated \d+ paths? from (?:the index|[0-9a-f]{7,40})\b")
_HEADS = frozenset(("HEAD", "@"))
# Options with which the user chooses parts, or that restore something else than the index or HEAD.
_PARTIAL = re.compile(r"-p|--patch|--ours|--theirs|-[23m]|--merge|--conflict.*|--pathspec-.*|--overlay|-[bB]|--orphan")
_CONDITION_WORD = re.compile(r"(?:^|[;\n&|(]|\s)(?:if|elif|while|until|for|case)\s")


@dataclass(frozen=True, slots=True)
class WorkTreeChange:
    """What one command of git does to uncommitted changes."""

    kind: ChangeKind
    # The folder that the command names for itself, relative to that of the shell; "" where it names none.
    folder: str = ""
    # The files and folders that are restored; "." is all of `folder`.
    paths: tuple[str, ...] = ()
    # Every changed file of the repository is restored, whatever the folder.
    is_whole: bool = False
    # Also what had been staged is restored.
    has_staged: bool = False

    @property
    def is_everything(self) -> bool:
        return self.is_whole or "." in self.paths


@dataclass(slots=True)
class WorkTreeCommands:
    """What a command line does: the changes in order, and the folder that it leaves the shell in."""

    changes: list[WorkTreeChange] = field(default_factory=list)
    # Relative to the one before; None where it is not known.
    folder: str | None = ""


def read_work_tree_commands(command: str, result: str, folder: str = "") -> WorkTreeCommands:
    """Read a command line that runs in a folder; `result` are the words for its outcome."""
    line = parse_shell(command)
    done = WorkTreeCommands(folder=folder)
    is_plain = line.is_complete and "GIT_" not in command and _CONDITION_WORD.search(line.text) is None
    for at, c in enumerate(line.commands):
        if c.program in _ENTERS:
            done.folder = join_folder(done.folder, c.words[1] if len(c.words) > 1 else "~")
        elif c.program == "git":
            kind = _KINDS.get(git_subcommand(c))
            if kind is not None:
                done.changes.append(WorkTreeChange(kind))
            elif is_plain and _is_certain(line, at):
                done.changes += _read_restore(c, done.folder, result)
    return done


def join_folder(folder: str | None, entered: str) -> str | None:
    """Return the folder after `cd`; None where it is not known."""
    if not entered or entered == "-" or any(sign in entered for sign in "$`*?{"):
        return None
    if entered.startswith(("/", "~")):
        return posixpath.normpath(entered)
    if folder is None:
        return None
    joined = posixpath.normpath(posixpath.join(folder, entered))
    return "" if joined == "." else joined


def _is_certain(line: ShellLine, at: int) -> bool:
    """Return whether a command ran and succeeded if the line did."""
    commands = line.commands
    first = at
    while first and commands[first - 1].operator == "&&":
        first -= 1
    last = at
    while commands[last].operator == "&&" and last + 1 < len(commands):
        last += 1
    before = commands[first - 1].operator if first else ""
    if before in ("||", "|") or any(c.operator == "||" for c in commands[first : last + 1]):
        return False
    decides = last + 1 == len(commands) and commands[last].operator == ""
    # Behind `;` only the message of a failure would show it.
    is_first = all(c.program in _ENTERS for c in commands[first:at])
    return decides or (is_first and "/dev/null" not in line.text)


def _read_restore(command: ShellCommand, folder: str | None, result: str) -> Iterator[WorkTreeChange]:
    options, words = _split_global_options(command.words[1:])
    for option, value in options:
        if option == "-C":
            folder = join_folder(folder, value)
        elif option != "-c":
            return  # another work tree
    if folder is None or not words or any(map(_PARTIAL.fullmatch, words)):
        return
    subcommand, arguments = words[0], words[1:]
    if subcommand == "reset" and "--hard" in arguments:
        yield WorkTreeChange("restore", folder, is_whole=True, has_staged=True)
    elif subcommand == "checkout":
        yield from _read_checkout(arguments, folder, result)
    elif subcommand == "restore":
        yield from _read_restore_command(arguments, folder)


def _split_global_options(words: Sequence[str]) -> tuple[list[tuple[str, str]], Sequence[str]]:
    """Separate the options before the subcommand that name a folder, a work tree or a setting."""
    options: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, _, value = words[at].partition("=")
        if name in ("-C", "-c", "--git-dir", "--work-tree", "--namespace"):
            at += not value
            options.append((name, value or (words[at] if at < len(words) else "")))
        at += 1
    return options, words[at:]


def _read_checkout(arguments: Sequence[str], folder: str, result: str) -> Iterator[WorkTreeChange]:
    is_forced = "-f" in arguments or "--force" in arguments
    has_mark = "--" in arguments
    at = arguments.index("--") if has_mark else len(arguments)
    named = [w for w in arguments[:at] if not w.startswith("-")]
    is_head = bool(named) and named[0] in _HEADS
    if has_mark and (len(named) > is_head):
        return  # a file of another commit
    paths = arguments[at + 1 :] if has_mark else named[is_head:]
    if not paths:
        if is_forced and not has_mark:
            yield WorkTreeChange("restore", folder, is_whole=True, has_staged=True)
    # Without `--` a name may be a branch; the output shows which.
    elif has_mark or list(paths) == ["."] or _RESTORED.search(result) is not None:
        yield WorkTreeChange("restore", folder, tuple(paths), has_staged=is_head)


def _read_restore_command(arguments: Sequence[str], folder: str) -> Iterator[WorkTreeChange]:
    paths: list[str] = []
    source = ""
    is_staged = has_work_tree = False
    words = iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if word == "--":
            paths += words
        elif name in ("-s", "--source"):
            source = value or next(words, "")
        elif not word.startswith("-"):
            paths.append(word)
        elif not word.startswith("--"):
            is_staged, has_work_tree = is_staged or "S" in word, has_work_tree or "W" in word
        else:
            is_staged, has_work_tree = is_staged or word == "--staged", has_work_tree or word == "--worktree"
    if paths and source in ("", *_HEADS) and (has_work_tree or not is_staged):
        yield WorkTreeChange("restore", folder, tuple(paths), has_staged=is_staged or bool(source))
