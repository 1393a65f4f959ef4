"""Describe a tool call and its result in one line, and in a few lines with what a reader needs later.

`describe_call` recognises a tool by its name or its arguments, so that histories of other agents read as well as ours:
shells, files, searches, plans, other agents, the web, and any other. Which line of a result matters depends on the kind
of the call: `git`, `test_runs`, `edits` and `json_results` each know one. Texts arrive redacted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from perdure.context.record.documents import page_rows, page_source
from perdure.context.tool_calls.call_line import (
    NO_FACTS,
    CallFacts,
    CallKind,
    CallLine,
    Outcome,
    PendingCallLine,
    read_repeatable,
)
from perdure.context.tool_calls.commands import (
    decisive_lines,
    describe_shell,
    ends_in_traceback,
    may_be_foreign,
    shell_label,
)
from perdure.context.tool_calls.compose import arguments_text, code_label, command_of, compose_line, target_of
from perdure.context.tool_calls.edits import (
    EDIT_WORTH,
    WRITE_WORTH,
    edited_path,
    is_replacement,
    read_edit,
    read_write,
)
from perdure.context.tool_calls.json_results import error_of, read_json
from perdure.context.tool_calls.output import (
    LINE_CHARS,
    MAX_REPORT_CHARS,
    CallFinding,
    OutputView,
    UnfinishedCall,
    background_process,
    clip_middle,
    clip_path,
    find_locations,
    join_rows,
    list_names,
    merge_facts,
    one_line,
    open_output,
    parse_json,
    plain_text,
    printable,
    read_output,
    read_refusal,
    unique,
    without_reminders,
)
from perdure.context.tool_calls.output_extent import describe_read, is_not_kept
from perdure.context.tool_calls.searches import search_rows
from perdure.context.tool_calls.services import created_by, is_change, is_thinking, service_values, stopped_by
from perdure.context.tool_calls.tasks import asks_user, describe_question, describe_task
from perdure.core.messages import ToolCall, ToolState
from perdure.core.rules import MISSING_RESULT

# A longer result is no error message.
_MAX_ERROR_CHARS = 6_000
_MAX_ERROR_LINES = 40
_PAGE_CHARS = 900
# Of a longer page most is left out.
_KEPT_PAGE_CHARS, _FETCH_AGAIN = 5_000, ", most of it not kept: fetch again"
# The line of a call that changes something by a service, and of one that looks something up.
_CHANGE_CHARS = 320
_LOOKUP_CHARS = 280
_CHANGE_WORTH = 0.9
# A longer label of a search has the end of its folder alone.
_SEARCH_CHARS = 110
_ERROR_HEAD = re.compile(
    r"(?i)\s*(?:<tool_use_error>|\[error|(?:\w*error|\w*exception|fatal|failure)\s*:|mcp error|traceback \(|failed to |"
    r"request failed|edit rejected|invalid |could not |cannot |unknown tool|"
    r"error (?:reading|writing|opening|calling|executing|running|fetching|while|during|in)\b)"
)
_FILLER = re.compile(
    r"(?i)(?:perfect|great|excellent|good|ok(?:ay)?|now|let me|i(?:'ve| have| now| will|'ll)|based on|done|"
    r"here(?:'s| is| are))\b"
)
_AGENT_FOOTER = re.compile(r"\n*(?:agentId: [^\n]*|<usage>[\s\S]{0,400}</usage>)\s*\Z")
_JSON_ERROR = re.compile(r'\s*\{\s*"(?:error|success)"\s*:|\s*\{[^{}]{0,150}"(?:error"\s*:\s*"|success"\s*:\s*false)')
_ERROR_TAG = re.compile(r"</?tool_use_error>")
_EDIT_DIFFICULTY = re.compile(
    r"(?i)not been read|modified since|to replace not found|does not occur|no match|occurs \d+ times|"
    r"found \d+ matches|not found in"
)
# A failed edit or write is reported in a sentence.
_COMPLAINT_CHARS = 400
_COMPLAINS = re.compile(
    r"(?i)\bexpected\b.{1,200}\b(?:got|found)\b|\b(?:not found|no such|invalid|failed|mismatch|rejected|cannot|can't|"
    r"could not|unable to|does not (?:match|exist|occur)|must (?:be|have)|permission denied)\b"
)
# What a code interpreter puts around an output and behind it, and the reason of an error.
_CODE_FRAME = re.compile(r"\s*(?:Call id: \S+\n)?(?:Observation:\n)?(?:Execution logs:\n)?")
_NO_VALUE = "Last output from code snippet:\nNone"
_CODE_ERROR = re.compile(r"due to: (\w[^\n]*(?:\n(?!Now let's)[^\n]*){0,5})")
_PURPOSES = ("_i", "description", "explanation", "instruction", "instructions", "reason", "purpose")
_SUCCEEDED = re.compile(r"(?i)\bsuccess|\b(?:updated|applied|wrote|written|created|edited|replaced|saved|ok)\b")
_LINK_TITLE = re.compile(r'\{"title": ?"((?:[^"\\]|\\.){3,160})", ?"url"')
_FOUND = re.compile(r"Found (\d+ (?:files?|match(?:es)?|results?|lines?))\b")
_AGENT_ID = re.compile(r"\bagent_?[iI][dD]: ?([\w-]{3,40})|\(job `([\w.-]{3,60})`\)")
_AGENT_ENDED = re.compile(r"(?m)^\W{0,5}([\w.-]{3,60})`? (?:—|-) (?:completed|finished|failed|cancell?ed|stopped)\b")


def describe_refusal(name: str, kind: CallKind, arguments: Mapping[str, Any], refusal: UnfinishedCall) -> CallLine:
    """Describe a call that was refused or interrupted."""
    what = _what(name, kind, arguments)
    if refusal.outcome == "interrupted":
        finding = CallFinding("INTERRUPTED, the outcome is unknown", worth=0.5)
        return compose_line(name, kind, target_of(kind, arguments), what, finding, "interrupted")
    rows: tuple[str, ...] = ()
    if kind in ("edit", "write") and (edit := _edit_finding(kind, arguments)) is not None:
        rows = edit.rows[:8]
    elif isinstance(plan := arguments.get("plan"), str):
        rows = tuple(join_rows(plan.split("\n"), limit=500))
        what = f"plan “{one_line(plan.lstrip('# '), 90)}”"
    if refusal.words:
        finding = CallFinding(f"REFUSED by the user: “{one_line(refusal.words, 700)}”", rows, worth=1.0)
    else:
        reason = "REFUSED by the user" if refusal.is_by_user else f"REFUSED: {one_line(refusal.message, 200)}"
        finding = CallFinding(reason, rows, worth=0.8)
    composed = compose_line(name, kind, target_of(kind, arguments), what, finding, "refused")
    return replace(composed, user_words=refusal.words)


def describe_missing(
    name: str, kind: CallKind, arguments: Mapping[str, Any], reason: str = "no result recorded"
) -> CallLine:
    """Describe a call whose result was never recorded, or is no longer kept."""
    finding = CallFinding(reason, worth=0.3)
    return compose_line(name, kind, target_of(kind, arguments), _what(name, kind, arguments), finding, "unknown")


def _what(name: str, kind: CallKind, arguments: Mapping[str, Any]) -> str:
    """Describe the call without its result."""
    target = target_of(kind, arguments)
    if kind == "shell" and "command" not in arguments and isinstance(code := arguments.get("code"), str):
        return f"{name} `{code_label(code)}`"
    if kind == "shell":
        return shell_label(command_of(arguments)) if target else name
    verb = {"read": "read", "write": "write", "edit": "edit", "delete": "delete"}.get(kind)
    if verb is not None:
        return f"{verb} {target}" if target else verb
    if kind == "search" and target:
        where = edited_path(arguments)
        return f"search “{one_line(target, 120)}”{f' in {where}' if where not in ('', target) else ''}"
    return f"{name} {clip_middle(target, 200)}".rstrip()


def _describe_shell(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine:
    if result.startswith("<tool_use_error>") and (line := _describe_error(name, kind, arguments, result)) is not None:
        return line
    view = read_output(result)
    command = command_of(arguments)
    if name in ("process", "BashOutput", "KillShell") or not command:
        return describe_other(name, "shell", arguments, result)
    if "code" in arguments and "command" not in arguments:
        return _describe_code(name, arguments, command, result)
    shell_kind, (label, short), finding = describe_shell(arguments, command, view)
    outcome: Outcome = "failed" if finding.is_failure else "ok"
    target = finding.facts.read_files[-1] if shell_kind == "read" and finding.facts.read_files else command
    return compose_line(name, shell_kind, one_line(target, 300), label, finding, outcome, short)


def _describe_code(name: str, arguments: Mapping[str, Any], code: str, result: str) -> CallLine:
    """Describe a run of a code interpreter: what the program is for, and what it printed."""
    what = f"{name} `{code_label(code)}`"
    printed = _CODE_FRAME.sub("", result, count=1)
    if (error := _CODE_ERROR.search(printed[-_MAX_ERROR_CHARS:])) is not None and printed.startswith("Error:"):
        return _describe_failure(name, "shell", arguments, error[1])
    view = read_output(printed.removesuffix(_NO_VALUE))
    _, _, finding = describe_shell({}, "python", view)
    is_failure = (
        finding.is_failure
        or ends_in_traceback(view)
        or (_ERROR_HEAD.match(view.text) is not None and view.total_lines <= _MAX_ERROR_LINES)
    )
    if is_failure and not finding.is_failure:
        lines = decisive_lines(view)
        finding = CallFinding(
            lines[0] if lines else finding.headline,
            tuple(lines),
            CallFacts(error=lines[0] if lines else ""),
            True,
            0.55,
        )
    return compose_line(name, "shell", one_line(code, 300), what, finding, "failed" if is_failure else "ok")


def _describe_read(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine:
    path = target_of("read", arguments)
    if (line := _describe_error(name, kind, arguments, result)) is not None:
        return line
    offset = arguments.get("offset")
    part = f" from line {offset}" if isinstance(offset, int) and offset > 1 else ""
    facts = CallFacts(read_files=(path,))

    def compose() -> CallLine:
        finding = CallFinding(_read_size(result), (), facts, False, 0.05)
        return compose_line(name, kind, path, f"read {path}{part}", finding, "ok", f"read {clip_path(path, 90)}{part}")

    return PendingCallLine(kind, name, path, 0.05, facts, compose)


def _read_size(result: str) -> str:
    """Return the number of lines that a read returned, also where it came inside JSON."""
    if "<persisted-output>" in result[:80]:
        return read_output(result).size
    content: str | None = None
    if result[:1] == "{" and isinstance(body := parse_json(result), dict):
        content = next((v for k in ("content", "text", "output") if isinstance(v := body.get(k), str)), None)
    return describe_read(without_reminders(result if content is None else content))


def _describe_error(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine | None:
    """Describe a call that failed as a whole: its result is an error message."""
    if len(result) > _MAX_ERROR_CHARS:
        return None
    text = result
    if _JSON_ERROR.match(result[:200]) is not None and isinstance(body := parse_json(result), dict):
        text = error_of(body)
        if not text:
            return None
    elif _ERROR_HEAD.match(result[:80]) is None:
        return None
    return _describe_failure(name, kind, arguments, text)


def _describe_failure(name: str, kind: CallKind, arguments: Mapping[str, Any], text: str) -> CallLine:
    text = plain_text(_ERROR_TAG.sub("", text)).strip()
    lines = [x for x in text.split("\n") if x.strip()]
    first = one_line(lines[0], 200) if lines else "error"
    changes = kind == "other" and is_change(name)
    is_difficulty = _EDIT_DIFFICULTY.search(first) is not None
    worth = 0.1 if kind in ("read", "search") or is_difficulty else 0.8 if changes else 0.6
    # An edit that is tried again is no trouble of the task.
    error = "" if is_difficulty and kind in ("edit", "write") else first
    finding = CallFinding(
        first, tuple(join_rows(lines[1:6], limit=400)) if worth > 0.1 else (), CallFacts(error=error), True, worth
    )
    what = f"{name} {arguments_text(arguments, 300)}" if changes else _what(name, kind, arguments)
    line_chars = _CHANGE_CHARS if changes else LINE_CHARS
    return compose_line(name, kind, target_of(kind, arguments), what, finding, "failed", line_chars=line_chars)


def _edit_finding(kind: CallKind, arguments: Mapping[str, Any]) -> CallFinding | None:
    return read_write(arguments) if kind == "write" else read_edit(arguments)


def _describe_edit(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine:
    if (line := _describe_error(name, kind, arguments, result)) is not None:
        return line
    if len(result) <= _COMPLAINT_CHARS and not _SUCCEEDED.search(result) and _COMPLAINS.search(result):
        return _describe_failure(name, kind, arguments, result)
    path = edited_path(arguments)
    if kind == "write" or is_replacement(arguments):
        worth = WRITE_WORTH if kind == "write" else EDIT_WORTH
        facts = CallFacts(changed_files=(path,)) if path else NO_FACTS
        return PendingCallLine(kind, name, path, worth, facts, lambda: _compose_edit(name, kind, arguments, result))
    return _compose_edit(name, kind, arguments, result)


def _compose_edit(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine:
    finding = _edit_finding(kind, arguments)
    if finding is None:
        path = edited_path(arguments)
        facts = CallFacts(changed_files=(path,) if path else ())
        finding = CallFinding(one_line(result, 100), (), facts, False, 0.4)
    purpose = next((v for k in _PURPOSES if isinstance(v := arguments.get(k), str) and v.strip()), "")
    if purpose:
        finding = replace(finding, headline=": ".join(filter(None, (one_line(purpose, 70), finding.headline))))
    files = finding.facts.changed_files + finding.facts.deleted_files
    target = edited_path(arguments) or (files[0] if files else "")
    is_new = kind == "write" and re.search(r"(?i)\bcreated\b", result[:120]) is not None
    verb = "create" if is_new else kind
    path = edited_path(arguments)
    room = max(34, LINE_CHARS - len(finding.headline) - len(verb) - 4)
    short = f"{verb} {clip_path(path, room)}".rstrip()
    return compose_line(name, kind, target, f"{verb} {path}".rstrip(), finding, "ok", short)


def _describe_search(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine:
    if (line := _describe_error(name, kind, arguments, result)) is not None:
        return line
    pattern = str(arguments.get("pattern") or arguments.get("query") or arguments.get("glob") or "")
    where = edited_path(arguments)
    what = short = f"search “{one_line(pattern, 120)}”{f' in {where}' if where else ''}" if pattern else f"list {where}"
    if len(what) > _SEARCH_CHARS and pattern:
        short = f"search “{one_line(pattern, 80)}”{f' in {clip_path(where, 45)}' if where else ''}"
    if (
        re.match(r"(?i)\s*(?:no (?:matches|files|results)|nothing|found 0|0 matches)", result[:60])
        or not result.strip()
    ):
        return compose_line(name, kind, pattern or where, what, CallFinding("no match", worth=0.1), "ok", short)
    output = open_output(result)
    if output.raw[:1] in ("{", "[") and (finding := read_json(output.view())) is not None:
        return compose_line(name, kind, pattern or where, what, replace(finding, worth=0.1), "ok", short)

    def compose() -> CallLine:
        view = output.view()
        total = view.total_lines
        rows = search_rows(view.lines, total)
        headline = view.lines[0].strip() if total == 1 and view.lines else _describe_matches(view)
        if len(headline) > 90:
            place = find_locations(headline[:300])
            headline = f"1 line, {place[0]}" if place and len(place[0]) <= 80 else "1 line"
        finding = CallFinding(headline, tuple(rows), worth=0.1)
        return compose_line(name, kind, pattern or where, what, finding, "ok", short)

    return PendingCallLine(kind, name, pattern or where, 0.1, NO_FACTS, compose)


def _describe_matches(view: OutputView) -> str:
    """Return how much a search found: the number that it states itself, else that of its lines."""
    match = _FOUND.match(view.text)
    return f"{match[1]}{view.extent.limits}" if match is not None else view.size


def _describe_task(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine:
    return _describe_error(name, kind, arguments, result) or describe_task(name, kind, arguments, result)


def _describe_delegate(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine:
    if (line := _describe_error(name, kind, arguments, result)) is not None:
        return line
    what = f"{name}: {_describe_delegation(arguments)}"
    text = printable(clip_middle(result, MAX_REPORT_CHARS)).strip()
    process = background_process(result)
    if process or re.match(r"(?:Started|Spawned|Launched|Async agent)\b", text):
        number = _AGENT_ID.search(text[:400])
        label = f"agent {number[1] or number[2]}" if number is not None else f"agent {process}".rstrip()
        facts = CallFacts(
            started_process=f"{label} : {one_line(_describe_delegation(arguments), 120)}".replace(" :", ":")
        )
        rows = tuple(join_rows(text.split("\n"), limit=500))
        return compose_line(
            name,
            kind,
            target_of(kind, arguments),
            what,
            CallFinding("runs in the background", rows, facts, False, 0.5),
            "ok",
        )
    ended = _AGENT_ENDED.search(text[:2_000])
    text = text[:-600] + _AGENT_FOOTER.sub("", _AGENT_FOOTER.sub("", text[-600:]))
    lines = [x.strip() for x in text.split("\n") if x.strip()]
    candidates = [x for x in lines if len(x.split()) > 2 and not x.startswith(("```", "|", "---"))]
    first = next((x for x in candidates[:12] if not _FILLER.match(x)), lines[0] if lines else "no report")
    excerpt = lines
    if sum(map(len, lines)) > 1_000:
        # The verdict is often at the end.
        excerpt = [*join_rows(lines, limit=450, row_chars=200), "[…]", *(one_line(x, 200) for x in lines[-4:])]
    facts = CallFacts(stopped_process=ended[1] if ended is not None else "")
    finding = CallFinding(one_line(first.lstrip("#* "), 120), tuple(excerpt), facts, False, 0.8)
    composed = compose_line(name, kind, target_of(kind, arguments), what, finding, "ok")
    return replace(composed, report=text if len(lines) > 1 or len(text) > 200 else "")


def _describe_delegation(arguments: Mapping[str, Any]) -> str:
    """Return what another agent was asked to do."""
    tasks = arguments.get("tasks")
    if isinstance(tasks, list) and tasks:
        names = [
            str(next((t[k] for k in ("description", "goal", "task", "id") if t.get(k)), t))
            if isinstance(t, dict)
            else str(t)
            for t in tasks[:5]
        ]
        return list_names([one_line(n, 90) for n in names], 160)
    for key in ("description", "goal", "task", "prompt", "message", "id", "task_id"):
        if isinstance(value := arguments.get(key), str) and value:
            return one_line(value, 140)
    return arguments_text(arguments, 140)


def _describe_web(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine:
    if (line := _describe_error(name, kind, arguments, result)) is not None:
        return line
    view = read_output(result)
    target = target_of(kind, arguments)
    what = f"{name} {clip_middle(target, 200)}"
    source = page_source(view.raw)
    if source is view.raw and (finding := read_json(view)) is not None:
        return compose_line(name, kind, target, what, finding, "failed" if finding.is_failure else "ok")

    def compose() -> CallLine:
        rows = page_rows(source, _PAGE_CHARS) or unique(view.lines[:4])
        # The call itself shows what was asked for.
        rows = [r for r in rows if not target or target not in r or len(r) > 2 * len(target) + 40] or rows
        titles = unique(_LINK_TITLE.findall(view.raw[:20_000]))
        if len(titles) > 1:
            rows = [
                f"{len(titles)} results: {list_names(titles, 400)}",
                *(r for r in rows if not r.startswith("Links: ")),
            ]
        first = rows[0].strip("#: ") if rows else ""
        size = view.extent.size or f"{len(view.raw):,} characters{view.extent.limits}"
        size += _FETCH_AGAIN if len(view.raw) > _KEPT_PAGE_CHARS and not view.address else ""
        headline = f"{one_line(first, 90)} ({size})" if first else "empty"
        finding = CallFinding(headline, tuple(rows), worth=0.35, title=size)
        return compose_line(name, kind, target, what, finding, "ok", line_chars=LINE_CHARS + len(_FETCH_AGAIN))

    return PendingCallLine(kind, name, target, 0.35, NO_FACTS, compose)


def describe_other(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine:
    """Any other tool: its arguments, and the telling fields or lines of its result."""
    if asks_user(name):
        return describe_question(name, kind, arguments, result)
    if (line := _describe_error(name, kind, arguments, result)) is not None:
        return line
    if is_thinking(name):
        return CallLine("other", name, "", "ok", "", "", 0.0)
    view = read_output(result)
    what = f"{name} {arguments_text(arguments, 200)}".rstrip()
    finding = read_json(view)
    if finding is not None and finding.is_data and not finding.is_failure and kind == "other":
        return _describe_service(name, arguments, finding, result)
    if finding is None:
        _, _, finding = describe_shell({}, "", view)
        if not finding.is_failure and _ERROR_HEAD.match(finding.headline) and kind == "other":
            finding = replace(
                finding, is_failure=True, facts=CallFacts(error=one_line(finding.headline, 240)), worth=0.55
            )
    removed = CallFacts(deleted_files=(path,)) if kind == "delete" and (path := edited_path(arguments)) else NO_FACTS
    facts = merge_facts([finding.facts, removed, created_by(name, arguments, result), stopped_by(name, arguments)])
    changes = kind == "other" and is_change(name)
    worth = max(finding.worth, 0.8 if facts.created else 0.0, _CHANGE_WORTH if changes else 0.0)
    finding = replace(finding, facts=facts, worth=worth)
    outcome: Outcome = "failed" if finding.is_failure else "ok"
    line_chars = LINE_CHARS
    if changes:
        what, line_chars = f"{name} {arguments_text(arguments, 400)}".rstrip(), _CHANGE_CHARS
    return compose_line(name, kind, target_of(kind, arguments), what, finding, outcome, line_chars=line_chars)


def _describe_service(name: str, arguments: Mapping[str, Any], finding: CallFinding, result: str) -> CallLine:
    """Describe the response of a service with data: a change by the request's arguments, a look-up by its values."""
    changes = is_change(name)
    line_chars = _CHANGE_CHARS if changes else _LOOKUP_CHARS
    call = f"{name} {arguments_text(arguments, 2 * line_chars // 3)}".rstrip()
    body = parse_json(result)
    headline = finding.headline
    if isinstance(body, dict):
        headline = service_values(body, arguments, max(60, line_chars - len(call) - 3)) or "ok"
    facts = merge_facts([finding.facts, created_by(name, arguments, result), stopped_by(name, arguments)])
    worth = max(finding.worth, 0.8 if facts.created else 0.0, _CHANGE_WORTH if changes else 0.0)
    finding = replace(finding, headline=headline, facts=facts, worth=worth, title=finding.title or "")
    what = f"{name} {arguments_text(arguments, 300)}".rstrip()
    target = target_of("other", arguments)
    return compose_line(name, "other", target, what, finding, "ok", call, line_chars=line_chars)


Describer = Callable[[str, CallKind, Mapping[str, Any], str], CallLine]
DESCRIBERS: Mapping[CallKind, Describer] = {
    "shell": _describe_shell,
    "read": _describe_read,
    "write": _describe_edit,
    "edit": _describe_edit,
    "search": _describe_search,
    "task": _describe_task,
    "delegate": _describe_delegate,
    "web": _describe_web,
}


_MAX_ARGUMENT_CHARS = 400_000
# What the tools for the context itself return: other tools may have the same names.
_ABOUT_CONTEXT: Mapping[str, re.Pattern[str]] = {
    "notes": re.compile(r"Noted\. The notebook has |[\s\S]*\n\[[\d,]+ of [\d,]+ bytes\]\Z"),
    "new_context": re.compile(r"A fresh window begins "),
    "context": re.compile(r"[\d,]+ (?:of [\d,]+ )?tokens\b|The conversation is compacted before "),
}

_NAMES: Mapping[CallKind, str] = {
    "shell": "bash terminal shell exec exec_command run_command run_shell_command execute_command shell_command "
    "run_terminal_cmd local_shell command powershell process python execute_code python_interpreter code_interpreter "
    "bashoutput killshell",
    "read": "read read_file view view_file cat open_file readfile read_many_files notebookread get_file_contents open",
    "write": "write write_file create create_file writefile save_file write_to_file",
    "edit": "edit multiedit patch str_replace str_replace_editor str_replace_based_edit_tool apply_patch edit_file "
    "replace notebookedit insert apply_diff replace_in_file search_replace editor",
    "search": "search_files grep glob ls find list list_dir list_files list_directory search find_files grep_search "
    "file_search codebase_search toolsearch session_search lcm_grep lcm_describe lcm_expand",
    "task": "todo todowrite write_todos update_plan todo_write todoread tasklist taskget exitplanmode enterplanmode "
    "taskcreate taskupdate plan",
    "delegate": "delegate_task task agent subagent spawn_agent wait_agent dispatch_agent new_task delegate taskoutput "
    "sessions_spawn call_agent",
    "web": "websearch webfetch fetch fetch_url google_web_search http_request browser",
    "delete": "delete_file remove_file delete rm",
}


def describe_call(call: ToolCall, result: str | None, state: ToolState | None = None) -> CallLine:
    """Describe a call and what came of it. Pure, and linear in the size of the result; never raises on odd input.

    `state` is how the call ended as the log records it; None for histories that have no such record. A call that only
    concerns the context, such as a note, has an empty line: what it changed is in view.
    """
    call = call.dispatched
    about_context = _ABOUT_CONTEXT.get(call.name)
    if about_context is not None and about_context.match(result or ""):
        return CallLine("other", call.name, "", "ok", "", "", 0.0)
    line = _describe(call, result, state)
    repeatable = read_repeatable(line)
    # One object without facts is recognised faster than many equal ones.
    facts = NO_FACTS if line.facts is NO_FACTS or line.facts == NO_FACTS else line.facts
    if repeatable is None and facts is line.facts:
        return line
    # By position: `dataclasses.replace` takes several times as long.
    texts = line.target, line.outcome, line.line, line.detail, line.worth, line.user_words, line.report
    return CallLine(line.kind, line.name, *texts, facts, repeatable)


def is_only_counted(call: ToolCall, result: str, state: ToolState | None = None) -> bool:
    """Whether `describe_call` shows no word of a result, only the number of its lines: that of a file that was read."""
    if len(result) <= _MAX_ERROR_CHARS or state == "refused":
        return False
    return _kind_by_name(call.dispatched.name) == "read"


def _describe(call: ToolCall, result: str | None, state: ToolState | None) -> CallLine:
    arguments = call.parsed_arguments() if len(call.arguments) <= _MAX_ARGUMENT_CHARS else None
    if arguments is None:
        arguments = {"input": call.arguments[:_MAX_ARGUMENT_CHARS]} if call.arguments.strip() else {}
    kind = _kind_of(call.name, arguments)
    if result:
        refusal = read_refusal(
            result, tool=call.name, state=state, is_foreign=lambda: may_be_foreign(call.name, kind, arguments, result)
        )
        if refusal is not None:
            return describe_refusal(call.name, kind, arguments, refusal)
    if result is None or result == MISSING_RESULT:
        return describe_missing(call.name, kind, arguments)
    if kind not in ("edit", "write") and is_not_kept(result):
        return describe_missing(call.name, kind, arguments, "its output is no longer kept")
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


_EDITOR_ACTIONS: Mapping[str, CallKind] = {"view": "read", "create": "write", "delete": "delete"}
