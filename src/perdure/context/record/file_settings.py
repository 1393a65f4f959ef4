"""The values that changed files of settings have, for the index: a name that may have another value is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from perdure.context.fitting import join_names
from perdure.context.record.outline import CallLines
from perdure.context.redacted_entries import redact_entry
from perdure.context.tool_calls.edits import is_settings_file, read_replacements, settings_in, written_text
from perdure.core.messages import Entry, ToolCall

# A file is listed in so many characters, the newest few files.
_FILE_CHARS = 150
_MOST_FILES = 5
# A longer file is no file of a few settings.
_MOST_LINES = 150
_MASKED = re.compile(r"REDACTED|\*{3}")
# The number of a line, as file viewers print it.
_NUMBERED = re.compile(r"^\s*\d+(?:→|\t|\||:\s)", re.MULTILINE)
_PART_OF_A_FILE = frozenset(("offset", "limit", "start_line", "end_line", "view_range", "lines", "range"))


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The settings of each file that calls changed, by name; None for a value that is not certain."""

    _files: Mapping[str, Mapping[str, str | None]]

    @classmethod
    def read(cls, entries: Sequence[Entry], lines: CallLines) -> FileSettings:
        """Follow the reads and changes of files of settings in order, to the values that they have at the end."""
        changed = {line.target for line in lines.values() if line.kind in ("write", "edit")}
        changed = {path for path in changed if is_settings_file(path)}
        # What a command did to a file is not known.
        changed -= {
            p for line in lines.values() if line.kind not in ("write", "edit") for p in line.facts.changed_files
        }
        files: dict[str, dict[str, str | None]] = {}
        # Of a file that was seen in part another place may assign the same name.
        whole: set[str] = set()
        if not changed:
            return cls(files)
        for at, entry in enumerate(entries):
            for call in entry.message.tool_calls:
                line = lines.get((entry.seq, call.id))
                if line is None or line.target not in changed or line.outcome != "ok":
                    continue
                # The newest file is the last.
                table = files.pop(line.target, {})
                own = next((c for c in redact_entry(entry).tool_calls if c.id == call.id), call)
                if line.kind == "read":
                    if _read_file(table, line.target, own, _result_of(call, entries, at)):
                        whole.add(line.target)
                elif line.kind == "write":
                    table = _table(settings_in(line.target, written_text(own.parsed_arguments() or {}).split("\n")))
                    whole.add(line.target)
                else:
                    _replace_in(table, line.target, own)
                files[line.target] = table
        return cls({path: table for path, table in files.items() if path in whole})

    def draw(self, room: int, shown: str) -> str:
        """Draw a line for each of the newest files with what `shown` does not have."""
        out: list[str] = []
        for path, table in reversed(list(self._files.items())):
            pairs = [
                f"{name} = {value}"
                for name, value in table.items()
                if value is not None and not _MASKED.search(value) and not _is_shown(name, value, shown)
            ]
            line = f"- Set in {path}: {join_names(pairs, _FILE_CHARS)}"
            if pairs and len(line) < room and len(out) < _MOST_FILES:
                out.append(line)
                room -= len(line) + 1
        return "\n".join(out)


def _is_shown(name: str, value: str, text: str) -> bool:
    # A pattern for each setting takes longer to compile than the text to search.
    return name in text and value in text and _states(name, value, text)


def _states(name: str, value: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(name)}[\"']?\s*[:=]\s*{re.escape(value)}", text) is not None


def _table(pairs: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    """Return the values by name; None for a name that has two, as in different tables of a file."""
    table: dict[str, str | None] = {}
    for name, value in pairs:
        table[name] = value if table.get(name, value) == value else None
    return table


def _result_of(call: ToolCall, entries: Sequence[Entry], at: int) -> str:
    for entry in islice(entries, at + 1, None):
        if entry.message.role != "tool":
            break
        if entry.message.tool_call_id in call.ids:
            return redact_entry(entry).text
    return ""


def _read_file(table: dict[str, str | None], path: str, call: ToolCall, text: str) -> bool:
    """Take over the values of a file that was read; return whether it was read whole."""
    rows = _NUMBERED.sub("", text).split("\n")
    if len(rows) > _MOST_LINES:
        return False
    found = _table(settings_in(path, rows))
    is_whole = _PART_OF_A_FILE.isdisjoint(call.parsed_arguments() or {})
    if is_whole:
        table.clear()
    for name, value in found.items():
        table[name] = value if table.get(name, value) == value else None
    return is_whole


def _replace_in(table: dict[str, str | None], path: str, call: ToolCall) -> None:
    """Follow the replacements of an edit; after one that cannot be read no value is certain."""
    pairs = read_replacements(call.parsed_arguments() or {})
    for old, new in pairs:
        before, after = (_table(settings_in(path, text.split("\n"))) for text in (old, new))
        if not before and not after:
            pairs = []
            break
        for name in before.keys() - after.keys():
            table[name] = None
        for name, value in after.items():
            is_certain = table.get(name, value) in (value, before.get(name)) and not (
                name in table and table[name] is None
            )
            table[name] = value if is_certain else None
    if not pairs:
        for name in table:
            table[name] = None
