"""Find the edits that later work took back: restored by another edit, by git, or by an undo of the user."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perdure.context.edit_blocks import has_broken_block, has_edit_blocks
from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.edits import line_keys, read_replacements
from perdure.core.messages import Entry, ToolCall

UNDONE, REPLACED = "later undone", "later replaced"
# A call by the position of its message and its id.
CallKey = tuple[int, str]

# Of a file, so many of the newest edits are compared with the next one.
_MOST_COMPARED = 8
# Fewer letters and digits than that may come and go anywhere.
_FEWEST_LETTERS = 12
_MOST_CHARS = 40_000
_UNDO = "/undo"
# Commands that bring back the files of the newest commit: those that are named, or all.
_RESTORE = re.compile(r"\bgit (?:-C \S+ )?(?:checkout(?: HEAD)? -- |restore (?!--staged|-S\b))([^;&|\n]{1,400})")
_RESET = re.compile(r"\bgit (?:-C \S+ )?(?:reset --hard|checkout)(?: HEAD)?(?: \.)?\s*(?:$|[;&|])")


@dataclass(frozen=True, slots=True)
class _Edit:
    key: CallKey
    removed: frozenset[str]
    added: frozenset[str]

    def taken_back_by(self, later: _Edit) -> str:
        """Return whether a later edit of the file undid or replaced this one; "" where neither."""
        if not self.added <= later.removed or not self.removed <= later.added:
            return ""
        if sum(map(_count_letters, self.added | self.removed)) < _FEWEST_LETTERS:
            return ""
        return UNDONE if self.removed or not later.added else REPLACED


@dataclass(slots=True)
class _Files:
    """The edits of each file that nothing has taken back so far."""

    marks: dict[CallKey, str] = field(default_factory=dict)
    _edits: dict[str, list[_Edit]] = field(default_factory=dict)
    # The edits since the newest commit, by file.
    _uncommitted: dict[str, list[CallKey]] = field(default_factory=dict)

    def add_edit(self, key: CallKey, path: str, replacements: Sequence[tuple[str, str]]) -> None:
        """Add an edit; `replacements` are empty where no other edit of the file can concern it."""
        self._uncommitted.setdefault(path, []).append(key)
        if not replacements:
            return
        old, new = (frozenset().union(*map(line_keys, texts)) for texts in zip(*replacements, strict=True))
        edit = _Edit(key, old - new, new - old)
        known = self._edits.setdefault(path, [])
        # Of equal edits, which change several places alike, the newest one.
        changes = {(e.removed, e.added): e for e in known}
        marks = {e.key: mark for e in changes.values() if (mark := e.taken_back_by(edit))}
        self.marks.update(marks)
        known[:] = [*[e for e in known if e.key not in marks][1 - _MOST_COMPARED :], edit]

    def add_command(self, command: str) -> None:
        """Add a command of git that may bring files back."""
        if "git " not in command or not ("checkout" in command or "restore" in command or "reset" in command):
            return
        names = [name.strip("\"'") for m in _RESTORE.finditer(command) for name in m[1].split()]
        if _RESET.search(command) is not None or "." in names:
            names = [""]
        for path, keys in self._uncommitted.items():
            if any(not n or path == n or path.endswith(f"/{n}") for n in names):
                self.marks.update(dict.fromkeys(keys, UNDONE))
                keys.clear()

    def commit(self) -> None:
        self._uncommitted.clear()


def find_undone_calls(calls: Iterable[tuple[int, ToolCall, CallLine]]) -> Mapping[CallKey, str]:
    """Return the edits that were taken back, each with the words for it; `calls` are in order."""
    calls = [(seq, call, line) for seq, call, line in calls if line.outcome == "ok"]
    times = Counter(line.target for _, _, line in calls if line.kind == "edit")
    files = _Files()
    for seq, call, line in calls:
        if line.kind == "edit":
            is_comparable = times[line.target] > 1 and len(call.arguments) <= _MOST_CHARS
            replacements = read_replacements(call.parsed_arguments() or {}) if is_comparable else []
            files.add_edit((seq, call.id), line.target, replacements)
        elif line.facts.commit is not None:
            files.commit()
        elif line.kind == "git":
            files.add_command(line.target)
    return files.marks


def find_undone_replies(entries: Sequence[Entry]) -> frozenset[int]:
    """Return the positions of replies with edit blocks that the user took back by `/undo`."""
    if not any(e.message.is_real_user and e.message.text.strip() == _UNDO for e in entries):
        return frozenset()
    replies: list[int] = []
    undone: set[int] = set()
    undos = 0
    for entry in entries:
        message, text = entry.message, entry.message.text
        if message.kind == "assistant":
            undos = 0
            if has_edit_blocks(text) and not has_broken_block(text):
                replies.append(entry.seq)
        elif message.is_real_user and text.strip() == _UNDO:
            undos += 1
            if undos % 2 and replies:
                # Every second one may have taken back the commit of a formatter.
                undone.add(replies.pop())
    return frozenset(undone)


def _count_letters(text: str) -> int:
    return sum(map(str.isalnum, text))
