"""Find the edits that later calls took back: another edit of the file, or a command of git.

Record and sections tell the same story because both ask here. Only certain cases count: an edit stands unless a later
one removes exactly what it added, or git restored its file before a commit.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache

from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.edits import line_keys, read_replacements
from perdure.context.tool_calls.work_tree import WorkTreeChange, join_folder, read_work_tree_commands
from perdure.core.messages import ToolCall

UNDONE, REPLACED = "later undone", "later replaced"
# A call by the position of its message and its id.
CallKey = tuple[int, str]

# Of a file, so many of the newest edits are compared with the next one.
_MOST_COMPARED = 8
# Fewer letters and digits than that may come and go anywhere.
_FEWEST_LETTERS = 12
_MOST_CHARS = 40_000
_CACHED_EDITS = 300
# The arguments that hold a command line, and the folder that it runs in.
_COMMANDS = ("command", "cmd", "script")
_ABSOLUTE = ("/", "~")
_FOLDERS = ("cwd", "workdir", "working_directory", "working_dir", "work_dir", "directory")


@dataclass(frozen=True, slots=True)
class _Texts:
    """The lines that an edit removes and adds, and its texts where it replaces one by another."""

    removed: frozenset[str]
    added: frozenset[str]
    replacement: tuple[str, str] | None

    def is_inverse_of(self, other: _Texts) -> bool:
        if self.replacement is None or other.replacement is None:
            return False
        return self.replacement == other.replacement[::-1]

    def taken_back_by(self, later: _Texts) -> str:
        """Return whether a later edit of the file undid or replaced this one; "" where neither."""
        if later.is_inverse_of(self):
            return UNDONE
        if not self.added <= later.removed or not self.removed <= later.added:
            return ""
        if sum(map(_count_letters, self.added | self.removed)) < _FEWEST_LETTERS:
            return ""
        return UNDONE if self.removed or not later.added else REPLACED


@dataclass(frozen=True, slots=True)
class _FileEdit:
    """One call's change of one file."""

    key: CallKey
    arguments: str
    # Below the folder that the shell was in, if the call names it by a relative path.
    path: str
    # The call writes a whole file, which git may not know.
    is_written: bool
    # It replaces texts that are known.
    is_comparable: bool


@dataclass(slots=True)
class UndoneEdits:
    """The edits of a conversation, updated by one call at a time, and those that were taken back."""

    # The words for each call whose changes are all gone or replaced.
    marks: dict[CallKey, str] = field(default_factory=dict)
    # The newest standing changes of each file.
    _standing: dict[str, list[_FileEdit]] = field(default_factory=dict)
    # The changes that no commit has, and how many of them are staged.
    _uncommitted: dict[str, list[_FileEdit]] = field(default_factory=dict)
    _staged: dict[str, int] = field(default_factory=dict)
    # The earlier edits that each edit took back.
    _taken_back_by: dict[CallKey, list[_FileEdit]] = field(default_factory=dict)
    # The files of each call, and those of them that are as they were before it.
    _files_of: dict[CallKey, frozenset[str]] = field(default_factory=dict)
    _gone_of: dict[CallKey, frozenset[str]] = field(default_factory=dict)
    # The calls that changed a file, by file and position.
    _calls_at: dict[tuple[str, int], list[CallKey]] = field(default_factory=dict)
    # The folder that the shell was left in, if absolute; None where it is not known.
    _folder: str | None = ""

    def add(self, seq: int, call: ToolCall, line: CallLine) -> None:
        """Add a call, in the order of the conversation."""
        changes = self._run_command(call, line)
        if line.outcome != "ok" or (line.kind != "edit" and not line.facts.changed_files):
            return
        key = seq, call.id
        paths = frozenset(line.facts.changed_files) or frozenset((line.target,))
        self._files_of[key] = paths
        for path in paths:
            is_comparable = line.kind == "edit" and not _command_in(call) and len(paths) == 1
            edit = _FileEdit(key, call.arguments, self._locate(path), line.kind != "edit", is_comparable)
            self._calls_at.setdefault((path, seq), []).append(key)
            self._add_edit(path, edit)
            # A command that changes files and commits or stages them does it in that order.
            if any(c.kind == "settle" for c in changes):
                self._uncommitted.pop(path, None)
            elif any(c.kind == "stage" for c in changes):
                self._staged[path] = len(self._uncommitted[path])

    def list_gone(self) -> Iterator[tuple[str, int]]:
        """Yield the changes that nothing is left of: the file as the calls name it, and the position."""
        for (path, seq), keys in self._calls_at.items():
            if all(path in self._gone_of.get(key, ()) for key in keys):
                yield path, seq

    def _add_edit(self, path: str, edit: _FileEdit) -> None:
        earlier = self._standing.setdefault(path, [])
        self._uncommitted.setdefault(path, []).append(edit)
        texts = _texts_of(edit) if earlier else None
        if texts is not None:
            # Of equal edits, which change several places alike, the newest one.
            changes = {(t.removed, t.added): (e, t) for e in earlier if (t := _texts_of(e)) is not None}
            for other, before in changes.values():
                if mark := before.taken_back_by(texts):
                    earlier.remove(other)
                    self._taken_back_by.setdefault(edit.key, []).append(other)
                    self.marks[other.key] = mark
                    if texts.is_inverse_of(before) and path not in self._gone_of.get(other.key, ()):
                        self._note_gone(path, edit.key)  # the file is as it was before both
                    if mark == UNDONE:
                        self._note_gone(path, other.key)
        earlier[:] = [*earlier[1 - _MOST_COMPARED :], edit]

    def _note_gone(self, path: str, key: CallKey) -> None:
        self._gone_of[key] = self._gone_of.get(key, frozenset()) | {path}

    def _run_command(self, call: ToolCall, line: CallLine) -> Sequence[WorkTreeChange]:
        if line.facts.commit is not None:
            self._settle()
        may_matter = any(word in call.arguments for word in ("git", "cd ", "pushd "))
        if not may_matter or not (command := _command_in(call)):
            return ()
        folder = _folder_in(call)
        done = read_work_tree_commands(command, line.detail if "checkout" in command else "", folder)
        for change in done.changes:
            if change.kind == "stage":
                self._staged.update((path, len(edits)) for path, edits in self._uncommitted.items())
            elif change.kind == "settle":
                self._settle()
            elif line.outcome == "ok":
                self._restore(change)
        if done.folder is None or done.folder.startswith(".."):
            self._folder = None
        elif done.folder != folder and done.folder.startswith(_ABSOLUTE):
            self._folder = done.folder
        return done.changes

    def _settle(self) -> None:
        self._uncommitted.clear()
        self._staged.clear()

    def _restore(self, change: WorkTreeChange) -> None:
        folder = _folder_of(change, self._folder)
        if folder is None:
            return
        # Git leaves files alone that it does not know; one that a command names is known.
        files = {
            path: edits
            for path, edits in self._uncommitted.items()
            if not (change.is_everything and any(e.is_written for e in edits))
        }
        places = _restored_places({e.path for edits in files.values() for e in edits}, change, folder)
        for path, edits in files.items():
            start = 0 if change.has_staged else self._staged.get(path, 0)
            if restored := [e for e in edits[start:] if e.path in places]:
                self._take_back(path, restored)

    def _take_back(self, path: str, edits: Sequence[_FileEdit]) -> None:
        keys = {e.key for e in edits}
        for edit in edits:
            # What an edit took back stands again if git brings back a state that has it.
            for earlier in self._taken_back_by.pop(edit.key, ()):
                if earlier.key not in keys:
                    self.marks.pop(earlier.key, None)
                    self._gone_of[earlier.key] = self._gone_of.get(earlier.key, frozenset()) - {path}
                    self._standing[path].append(earlier)
            self._note_gone(path, edit.key)
            if self._gone_of[edit.key] == self._files_of[edit.key]:
                self.marks[edit.key] = UNDONE
        self._standing[path] = [e for e in self._standing[path] if e not in edits]
        self._uncommitted[path] = [e for e in self._uncommitted[path] if e not in edits]

    def _locate(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._folder or "", path))


def _command_in(call: ToolCall) -> str:
    """Return the command line that a call runs in a shell; "" for other calls."""
    if not any(f'"{name}"' in call.arguments for name in _COMMANDS):
        return ""
    arguments = call.parsed_arguments() or {}
    value = next((v for name in _COMMANDS if (v := arguments.get(name))), "")
    if isinstance(value, list):
        words = list(map(str, value))
        return words[-1] if len(words) > 1 and words[-2] in ("-c", "-lc") else shlex.join(words)
    return value if isinstance(value, str) else ""


def _folder_in(call: ToolCall) -> str:
    """Return the folder that a call names for its command."""
    arguments = call.parsed_arguments() or {}
    folder = next((v for name in _FOLDERS if isinstance(v := arguments.get(name), str) and v), "")
    return join_folder("", folder) or "" if folder else ""


def _folder_of(change: WorkTreeChange, shell_folder: str | None) -> str | None:
    """Return the folder that a command ran in, "" for that of the work; None where it is not known."""
    if change.folder.startswith(_ABSOLUTE):
        return change.folder
    if shell_folder is None:
        return None
    return posixpath.normpath(posixpath.join(shell_folder, change.folder)) if shell_folder else change.folder


def _restored_places(places: Set[str], change: WorkTreeChange, folder: str) -> Set[str]:
    """Return the files among edited ones that a command restores, as far as the folders tell."""
    # Where the shell began is named nowhere, but it is above an absolute path that ends as a relative one does.
    is_relative = not folder.startswith(_ABSOLUTE)
    if change.is_everything:
        if is_relative and len({p.split("/")[1] for p in places if p.startswith("/")}) > 1:
            return frozenset()  # one of several repositories
        return {p for p in places if not folder or _is_below(p, folder) or (is_relative and f"/{folder}/" in p)}
    restored: set[str] = set()
    for path in change.paths:
        located = posixpath.normpath(posixpath.join(folder, path))
        below = {p for p in places if _is_below(p, located)}
        ends = {p for p in places if is_relative and p.startswith(_ABSOLUTE) and p.endswith(f"/{located}")}
        restored |= below or (ends if len(ends) == 1 else frozenset())
    return restored


def _is_below(file: str, folder: str) -> bool:
    return file == folder or file.startswith(f"{folder.rstrip('/')}/")


def _texts_of(edit: _FileEdit) -> _Texts | None:
    return _read_texts(edit.arguments) if edit.is_comparable else None


# The same calls are looked at in every compaction.
@lru_cache(maxsize=_CACHED_EDITS)
def _read_texts(arguments: str) -> _Texts | None:
    """Read what an edit removes and adds; None where it is a patch, or too long to compare."""
    if len(arguments) > _MOST_CHARS:
        return None
    replacements = read_replacements(ToolCall("", "", arguments).parsed_arguments() or {})
    if not replacements:
        return None
    old, new = (_join_keys(texts) for texts in zip(*replacements, strict=True))
    pair = replacements[0] if len(replacements) == 1 else None
    is_pair = pair is not None and all(pair) and pair[0] != pair[1]
    return _Texts(old - new, new - old, pair if is_pair else None)


def _join_keys(texts: Sequence[str]) -> frozenset[str]:
    return frozenset[str]().union(*map(line_keys, texts))


def _count_letters(text: str) -> int:
    return sum(map(str.isalnum, text))
