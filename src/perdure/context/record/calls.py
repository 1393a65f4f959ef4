"""Describe a tool call and its result in one line, and in a few lines with what a reader needs later.

`describe_call` recognises a tool by its name or its arguments, so that histories of other agents read as well as ours.
Which line of a result matters depends on the kind of the call: the modules `call_git`, `call_checks`, `call_edits` and
`call_json` each know one. Texts arrive redacted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Any

from perdure.context.record.call_output import list_names, one_line, read_refusal
from perdure.context.record.call_tools import (
    DESCRIBERS,
    describe_missing,
    describe_other,
    describe_refusal,
    holds_foreign_text,
)
from perdure.context.record.task import CallKind, CallLine, read_repeatable
from perdure.core.messages import ToolCall, ToolState

_MAX_ARGUMENT_CHARS = 400_000

_NAMES: Mapping[CallKind, str] = {
    "shell": "bash terminal shell exec exec_command run_command run_shell_command execute_command shell_command "
    "run_terminal_cmd local_shell command powershell process python execute_code python_interpreter code_interpreter "
    "bashoutput killshell",
    "read": "read read_file view view_file cat open_file readfile read_many_files notebookread get_file_contents open",
    "write": "write write_file create create_file writefile save_file write_to_file",
    "edit": "edit multiedit patch str_replace str_replace_editor str_replace_based_edit_tool apply_patch edit_file "
    "replace notebookedit insert apply_diff replace_in_file search_replace editor",
    "search": "search_files grep glob ls find list list_dir list_files list_directory search find_files grep_search "
    "file_search codebase_search toolsearch session_search",
    "task": "todo todowrite write_todos update_plan todo_write todoread tasklist taskget exitplanmode enterplanmode "
    "taskcreate taskupdate plan",
    "delegate": "delegate_task task agent subagent spawn_agent wait_agent dispatch_agent new_task delegate taskoutput "
    "sessions_spawn call_agent",
    "web": "websearch webfetch fetch fetch_url google_web_search http_request browser",
    "delete": "delete_file remove_file delete rm",
}


def describe_call(call: ToolCall, result: str | None, state: ToolState | None = None) -> CallLine:
    """Describe a call and what came of it. Pure, and linear in the size of the result; never raises on odd input.

    `state` is how the call ended as the log records it; None for histories that have no such record.
    """
    line = _describe(call, result, state)
    repeatable = read_repeatable(line)
    return line if repeatable is None else replace(line, repeatable=repeatable)


def _describe(call: ToolCall, result: str | None, state: ToolState | None) -> CallLine:
    arguments = call.parsed_arguments() if len(call.arguments) <= _MAX_ARGUMENT_CHARS else None
    if arguments is None:
        arguments = {"input": call.arguments[:_MAX_ARGUMENT_CHARS]} if call.arguments.strip() else {}
    kind = _kind_of(call.name, arguments)
    if result:
        refusal = read_refusal(
            result, tool=call.name, state=state, is_foreign=lambda: holds_foreign_text(call.name, kind, arguments)
        )
        if refusal is not None:
            return describe_refusal(call.name, kind, arguments, refusal)
    if result is None:
        return describe_missing(call.name, kind, arguments)
    return DESCRIBERS.get(kind, describe_other)(call.name, kind, arguments, result)


def _kind_of(name: str, arguments: Mapping[str, Any]) -> CallKind:
    kind = _kind_by_name(name)
    if kind == "edit" and (action := _EDITOR_ACTIONS.get(str(arguments.get("command")))) is not None:
        return action
    if kind == "other":
        if "old_string" in arguments or "oldText" in arguments:
            return "edit"
        if isinstance(arguments.get("command"), str | list):
            return "shell"
    return kind


@lru_cache(maxsize=512)
def _kind_by_name(name: str) -> CallKind:
    base = name.rsplit("__", 1)[-1].rsplit(".", 1)[-1].lower()
    kind: CallKind
    for kind, names in _NAMES.items():
        if base in names.split():
            return kind
    return "web" if base.startswith(("web_", "browser", "tavily")) else "other"


def merge_lines(lines: Sequence[CallLine]) -> Sequence[str]:
    """Return the lines of consecutive calls: reads and searches that succeeded in one line, equal lines counted."""
    merged: list[str] = []
    for is_look, group in groupby(lines, key=_is_look):
        calls = list(group)
        if is_look and len(calls) > 1:
            merged.append(_merge_looks(calls))
            continue
        for text, same in groupby(calls, key=lambda c: c.line):
            count = len(list(same))
            merged.append(f"{text} ({count}×)" if count > 1 else text)
    return merged


def _is_look(line: CallLine) -> bool:
    return line.kind in ("read", "search") and line.outcome == "ok"


def _merge_looks(calls: Sequence[CallLine]) -> str:
    reads = [c.target for c in calls if c.kind == "read"]
    searches = [f"“{one_line(c.target, 50)}”" for c in calls if c.kind == "search"]
    parts = []
    if reads:
        parts.append(f"read {list_names(_counted(reads), 400)}")
    if searches:
        parts.append(f"searched for {list_names(_counted(searches), 240)}")
    return "; ".join(parts)


def _counted(names: Sequence[str]) -> list[str]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [f"{n} ({c}×)" if c > 1 else n for n, c in counts.items()]


_EDITOR_ACTIONS: Mapping[str, CallKind] = {"view": "read", "create": "write", "delete": "delete"}
