"""The newest edits of a conversation: which statements about the code they overtook, and which of them were undone."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.undone_edits import UndoneEdits
from perdure.core.messages import ToolCall

_MOST_EDITS = 300
_CODE_SPAN = re.compile(r"`([^`\n]{3,120})`")
_CODE_NAME = re.compile(r"[A-Za-z_]\w{4,}")


@dataclass(slots=True)
class EditLog:
    """The newest edits: which statements about the code they made outdated, and which other edits they undid."""

    _edits: deque[tuple[int, ToolCall]] = field(default_factory=lambda: deque(maxlen=_MOST_EDITS))
    _undone: UndoneEdits = field(default_factory=UndoneEdits)

    def add(self, seq: int, line: CallLine, call: ToolCall) -> None:
        """Add a call: an edit, or one that may take edits back."""
        self._undone.add(seq, call, line)
        if line.kind == "edit" and line.outcome == "ok":
            self._edits.append((seq, call))

    def has_removed(self, statement: str, seq: int) -> bool:
        """Return whether an edit after a position removed a name of the code that a statement has."""
        names = [n for span in _CODE_SPAN.findall(statement) for n in _CODE_NAME.findall(span)]
        return bool(names) and any(at > seq and _removes(call.arguments, names) for at, call in self._edits)

    def list_undone(self) -> Iterator[tuple[str, int]]:
        """Yield the changes that later calls took back: the file and the position."""
        return self._undone.list_gone()


def _removes(arguments: str, names: Sequence[str]) -> bool:
    old, new = (arguments.find(f'"{n}') for n in ("old", "new"))
    if old < 0 or new < 0:
        return False
    before, after = (arguments[old:new], arguments[new:]) if old < new else (arguments[old:], arguments[new:old])
    removed = (n for n in names if n in before and n not in after)
    return any(re.search(rf"\b{n}\b", before) for n in removed)
