"""The newest edits of a conversation: which statements about the code they overtook, and which of them were undone."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from perdure.context.tool_calls.call_line import CallLine
from perdure.core.messages import ToolCall

_MOST_EDITS = 300
_CODE_SPAN = re.compile(r"`([^`\n]{3,120})`")
_CODE_NAME = re.compile(r"[A-Za-z_]\w{4,}")
_OLD = ("old_string", "old_str", "oldText", "old_text")
_NEW = ("new_string", "new_str", "newText", "new_text")


@dataclass(slots=True)
class EditLog:
    """The newest edits, to tell which statements about the code they overtook, and which others they undid."""

    _edits: deque[tuple[int, CallLine, ToolCall]] = field(default_factory=lambda: deque(maxlen=_MOST_EDITS))

    def add(self, seq: int, line: CallLine, call: ToolCall) -> None:
        self._edits.append((seq, line, call))

    def has_removed(self, statement: str, seq: int) -> bool:
        """Return whether an edit after a position removed a name of the code that a statement has."""
        names = [n for span in _CODE_SPAN.findall(statement) for n in _CODE_NAME.findall(span)]
        return bool(names) and any(at > seq and _removes(call.arguments, names) for at, _, call in self._edits)

    def list_undone(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the edits that a later one took back: the file, and the positions of both."""
        standing: dict[tuple[str, int, int], int] = {}
        for seq, line, call in self._edits:
            path, (old, new) = next(iter(line.facts.changed_files), ""), _fingerprints(call.arguments)
            before = standing.pop((path, new, old), None) if path and old != new else None
            if before is not None:
                yield path, (before, seq)
            else:
                standing[path, old, new] = seq


# The same calls are looked at in every compaction.
@lru_cache(maxsize=_MOST_EDITS)
def _fingerprints(arguments: str) -> tuple[int, int]:
    """Return numbers that stand for the old and the new text of an edit; equal ones where it has not both."""
    try:
        named = json.loads(arguments)
    except ValueError:
        return 0, 0
    if not isinstance(named, dict):
        return 0, 0
    old, new = (next((named[n] for n in names if n in named), None) for names in (_OLD, _NEW))
    return (hash(old), hash(new)) if isinstance(old, str) and isinstance(new, str) else (0, 0)


def _removes(arguments: str, names: Sequence[str]) -> bool:
    old, new = (arguments.find(f'"{n}') for n in ("old", "new"))
    if old < 0 or new < 0:
        return False
    before, after = (arguments[old:new], arguments[new:]) if old < new else (arguments[old:], arguments[new:old])
    removed = (n for n in names if n in before and n not in after)
    return any(re.search(rf"\b{n}\b", before) for n in removed)
