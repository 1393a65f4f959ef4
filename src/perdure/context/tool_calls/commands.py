"""Describe a shell command by what its output shows: tests, builds, git, JSON, logs, or the lines that matter."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.context.tool_calls.builds import read_build
from perdure.context.tool_calls.call_line import NO_FACTS, CallFacts, CallKind, TestRun
from perdure.context.tool_calls.compose import command_of
from perdure.context.tool_calls.edits import describe_content, pick_lines
from perdure.context.tool_calls.git import combine_findings, git_subcommand, read_git
from perdure.context.tool_calls.json_results import read_json
from perdure.context.tool_calls.logs import read_json_log, read_log, read_routine
from perdure.context.tool_calls.output import (
    CallFinding,
    OutputView,
    background_process,
    clip_located,
    clip_middle,
    clip_path,
    join_rows,
    list_names,
    merge_facts,
    one_line,
    read_timeout,
    unique,
)
from perdure.context.tool_calls.output_extent import GAP, WHOLE, limited_by
from perdure.context.tool_calls.searches import search_rows
from perdure.context.tool_calls.shell import ShellLine, command_label, parse_shell, test_label
from perdure.context.tool_calls.test_runs import read_tests

_PRIORITY: tuple[CallKind, ...] = ("test", "build", "git", "web", "edit", "delete", "shell", "search", "read", "other")
_SMALL_CHARS = 700
_HEADLINE_CHARS = 115
# A longer command of tests is reduced to its files and filters.
_TEST_CHARS = 60
_ERROR_LINE = re.compile(
    r"(?:^|[\s\[(:\"=])(?:fatal|error|ERROR|Error|FATAL|CRITICAL|SEVERE|panic|FAILED|FAIL|E[A-Z]{4,}|\w+(?:Error|Exception))(?:[\s\]):!,\"=]|$)|"
    r"command not found|No such file|ermission denied|cannot |Cannot |not found|refused|rejected|Traceback|"
    r"unrecognized|level=(?:error|fatal)|[Ff]ailed(?: to |$)|[Uu]nable to |✗|✖|❌|\bFAIL(?:ED|URE)?\b"
)
_SHELL_ERRORS = (
    "command not found", "o such file or directory", "ermission denied", "Is a directory", "Not a directory",
    "syntax error", "unbound variable", "onnection refused", "ould not resolve host", "not recognized",
)  # fmt: skip
# Cheap to look for: a line without any of these reports no error.
_ERROR_HINTS = (
    "error", "fail", "exception", "fatal", "critical", "severe", "panic", "cannot", "not found", "no such", "denied",
    "refused", "rejected", "traceback", "unrecognized", "unable to", "✗", "✖", "❌", "econn", "enoent", "eacces",
)  # fmt: skip
# The frames of a traceback, and the lines of the message of its exception.
_MAX_TRACEBACK_LINES = 400
_MAX_MESSAGE_LINES = 8
# In longer outputs only so many lines at either end are searched for errors.
_SEARCHED_LINES = 300
_PY_EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)|AssertionError)\b(?:: .*)?$")
_PY_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)')
_HEADER = re.compile(r"^(?:={2,}|-{2,}|#{1,3}|\*{2,}|>{2,})\s*\S")
_LOG_FILE = re.compile(
    r"\.(?:log|out|output|err)\b|(?:docker|kubectl|podman|journalctl|compose|heroku|fly|pm2)\b.*\blogs?\b|^journalctl\b|/tasks/"
)
# What tools add around an output, and what has no part in the result.
_NOISE_LINE = re.compile(
    r"^\[(?:raw output|Showing |Full output|…|\.\.\.|output )|^\.\.\. \[|^\(Results are truncated|"
    r"^> |^Debugger attached|^Waiting for the debugger|^npm (?:notice|warn)|^\(node:\d+\)|^\(Use `node|^\W*$|"
    r"^\d{1,6}[:.)] ?\S?$|^(?:Call id: .*|Observation:|Execution logs:|Last output from code snippet:|None|<\w+>)$"
)
_OWN_ERROR = re.compile(
    r"^\W{0,6}(?:[\w./-]{1,30}:\S+:\d+:\s+)?(?:\[\w+\] )?"
    r"(?:fatal|error|ERROR|Error|FATAL|panic|FAILED|FAIL|Traceback|\w+Error(?=: ?\S)|❌|✗|✖|"
    r"[Ff]ailed to |[Cc]annot |[Uu]nable to )"
)
# A line of a program, in which the name of an error means nothing: the file was printed, not run.
_SOURCE_LINE = re.compile(
    r"\s*(?:\d+[:|→\t]\s*)?\}?\s*(?:"
    r"(?:except|catch|elif|else|if|for|while|with|def|class|func|function|return|raise|throw|assert|try|import|from)\b"
    r".*[:;{}(),\]]\s*$|(?:log|logger|logging|console|self|print|fmt)[.(].*)"
)
# What a printed program is told by instead.
_DEFINES = re.compile(r"\s*(?:async )?(?:def|class|func|function|fn|struct|interface|trait) \w")
_DEFINING_LINES = 1_000
_RESULT_LINE = re.compile(
    r"(?i)^(?:[\d:.TZ-]{5,30}\s+)?(?:\[[\w@/:.-]{1,30}\]\s*)?\W{0,8}"
    r"(?:✅|✓|✔|success|updated|created|done|finished|completed?|total|wrote|saved|installed|passed|all )"
)
_HTTP_STATUS = re.compile(r"HTTP/\S+ [45]\d\d[^\n]{0,60}")
_FINAL_ERROR = re.compile(r"(?:ERROR|FATAL|fatal|[Ee]rror|panic|denied)(?:\[\w+\])?: |\w+ (?:ERR!|error) ")
_ROW_COUNT = re.compile(r"\((\d+) rows?\)")
_NO_DIGITS = str.maketrans("", "", "0123456789")
_FEWEST_TABLE_ROWS, _MOST_OUTLIERS, _USUAL_SHARE = 10, 6, 0.6
_NOT_FOUND = re.compile(r"(?:\S*sh: )?(?:(?:line )?\d+: )?[\w./-]+: (?:command )?not found|zsh: command not found: \S+")
# What the status of a process that was ended from outside means.
_ENDINGS = {124: "timed out", 130: "interrupted", 137: "killed", 143: "terminated"}
_INSTALL = re.compile(r"\b(?:install|npm ci|add|download)\b")
_JOB_PREFIX = re.compile(r"^[^\t]{1,200}\t[^\t]{1,200}\t\ufeff?\d{4}-\d\d-\d\dT\S+Z ?")
_RUN_LOG = re.compile(r"\bgh run view\b")
# A time in brackets before each line is no list of JSON.
_STAMPED = re.compile(r"\[[ \d][\d .:-]+\] ")
_PID = re.compile(r"(?i)\bpid[:= ]+(\d+)|^\[\d+\] (\d+)")
_EMPTY = re.compile(
    r"\(?(?:no output|No output|no content|empty)\)?\.?\s*|Tool ran without output or errors\s*|<empty>\s*"
)


def describe_shell(
    arguments: Mapping[str, Any], command: str, view: OutputView
) -> tuple[CallKind, tuple[str, str], CallFinding]:
    """Describe a shell command: its kind, its label in full and in short, and its outcome."""
    line = parse_shell(command)
    kind = _main_kind(line)
    if any(c.program == "gh" and c.words[1:2] == ("run",) for c in line.commands):
        view = _without_job_names(view)
    if not view.extent.is_partial and (extent := limited_by(line.commands, view.total_lines)).is_partial:
        view = replace(view, extent=extent)
    finding = _read(line, kind, view)
    folder = view.folder or line.folder
    facts = [CallFacts(folder=folder) if folder else NO_FACTS, finding.facts, _side_effects(line)]
    is_failing = finding.is_failure or bool(view.exit_code)
    if is_failing and _is_cleared(line, view):
        finding = replace(finding, is_failure=False, facts=replace(finding.facts, error=""))
    elif is_failing and not finding.is_failure and not _is_harmless(line, kind, view):
        finding = _with_failure(finding, view)
    if not finding.is_failure and (missing := _missing_program(kind, view)):
        headline = "; ".join(unique(filter(None, (finding.headline, missing))))
        facts.append(CallFacts(error=missing))
        finding = replace(finding, headline=headline, is_failure=True, title=None, worth=max(finding.worth, 0.6))
    stored = (f"all of it: {view.address}",) if view.address else ()
    finding = replace(finding, facts=merge_facts(facts), rows=(*finding.rows, *_script_rows(line), *stored))
    return kind, _label(arguments, line, kind), finding


def _missing_program(kind: CallKind, view: OutputView) -> str:
    """Return the words of the shell for a program that it did not find, at the end of an output."""
    if kind in ("read", "search"):
        return ""
    return next((one_line(x, 120) for x in view.lines[-2:] if _NOT_FOUND.fullmatch(x[:200])), "")


def _without_job_names(view: OutputView) -> OutputView:
    """Return the log of a run without the job, the step and the time before each line."""
    lines = tuple(_JOB_PREFIX.sub("", x) for x in view.lines)
    return replace(view, lines=lines, text="\n".join(lines)) if lines != view.lines else view


# What these print is their own message: no text of a file, a page, a project or a service.
_PRINT_NO_TEXT = re.compile(r"rm|rmdir|mv|cp|mkdir|touch|chmod|chown|ln|kill|killall|pkill|cd|export|sleep|true")
# Without those that list what others wrote; the reply of a remote machine to a push has a prefix.
_PRINT_NO_TEXT_GIT = re.compile(r"add|rm|mv|reset|restore|clean|commit|push")
_SUBSTITUTION = re.compile(r"[`]|[$<>][(]|<<")


def prints_foreign_text(command: str) -> bool:
    """Whether a command may print what another author wrote, so that its output may read like anything; in doubt yes.

    A log, a query, a script, a build or a remote machine may print any line.
    """
    if _SUBSTITUTION.search(command):
        return True
    commands = parse_shell(command).commands
    return not commands or not all(
        _PRINT_NO_TEXT.fullmatch(c.program) or _PRINT_NO_TEXT_GIT.fullmatch(git_subcommand(c) or "") for c in commands
    )


# Tools that act by their name; that of a server of tools may pass on anything.
_ACTS = re.compile(
    r"(?i)(?:add|archive|book|cancel|close|create|delete|deploy|disable|enable|move|order|pay|post|publish|refund|remove"
    r"|rename|save|send|set|submit|transfer|update|write)(?:_(?!.*__)|\Z|[A-Z])"
)
_MOST_REFUSAL_CHARS = 1_000
# The note that a client adds below a refusal is its own.
_PARAGRAPH = re.compile(r"\n\s*\n(?!Note: The user's next message may contain a correction or preference\b)")


def may_be_foreign(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> bool:
    """Whether the result of a call may be a text of another author; in doubt yes.

    The result of an edit or a plan is the words of the tool. Of the others those that only act are believed, where the
    result is short and has one paragraph.
    """
    if kind in ("edit", "write", "delete", "task"):
        return False
    text = result.strip()
    if len(text) > _MOST_REFUSAL_CHARS or _PARAGRAPH.search(text):
        return True
    if kind == "shell":
        return "command" not in arguments or prints_foreign_text(command_of(arguments))
    return kind != "other" or _ACTS.match(name) is None


def shell_label(command: str) -> str:
    """Return a command for the line of a call without a result, with the first line of its here-document."""
    line = parse_shell(command)
    document = next((x.strip() for x in line.documents[:1] for x in x[:600].split("\n") if x.strip()), "")
    return f"`{clip_middle(command_label(line), 240)}`" + (f" (“{one_line(document, 90)}”)" if document else "")


def _label(arguments: Mapping[str, Any], line: ShellLine, kind: CallKind) -> tuple[str, str]:
    """Return the command itself; where it is long, what its tests are chosen by, or else its description before it."""
    label = command_label(line)
    if kind == "test" and len(label) > _TEST_CHARS and (short := test_label(line)):
        return f"`{clip_middle(label, 240)}`", f"`{short}`"
    description = arguments.get("description") or arguments.get("_i")
    if len(label) > 90 and isinstance(description, str) and description:
        program = " ".join(label.split(" ", 3)[:3])
        short = f"{one_line(description, 60)} (`{one_line(program, 40).rstrip('…')}…`)"
        return f"{one_line(description, 70)} (`{clip_middle(label, 220)}`)", short
    full = f"`{clip_middle(label, 240)}`"
    if line.documents and not any(c.kind == "git" for c in line.commands):
        remark = next((x.strip("# ") for x in line.documents[0][:2_000].split("\n") if x.startswith("# ")), "")
        return (f"{full} ({one_line(remark, 80)})",) * 2 if remark else (full, full)
    return full, full


def _script_rows(line: ShellLine) -> tuple[str, ...]:
    """Return the telling lines of a script in a here-document; the message of a commit is not one."""
    if not line.documents or any(c.kind == "git" for c in line.commands):
        return ()
    lines = [x for x in line.documents[0][:20_000].split("\n") if x.strip()]
    return tuple(f"| {x}" for x in pick_lines(lines, 300))


def _main_kind(line: ShellLine) -> CallKind:
    kinds = {c.kind for c in line.commands if not c.is_filter}
    for kind in _PRIORITY:
        if kind in kinds:
            if kind == "other" and any(c.output_file for c in line.commands):
                return "write"
            return "shell" if kind == "other" else kind
    return "shell"


def _read(line: ShellLine, kind: CallKind, view: OutputView) -> CallFinding:
    """Choose what to read by the kinds of the commands, then by what the output looks like."""
    if (process := background_process(view.raw)) or any(c.is_background for c in line.commands):
        name = process or (
            f"pid {pid[1] or pid[2]}" if (pid := _PID.search(view.text[:400])) is not None else "a process"
        )
        return CallFinding(
            f"runs in the background: {name}",
            tuple(_telling_rows(view)),
            CallFacts(started_process=f"{name}: {one_line(command_label(line), 160)}"),
            False,
            0.5,
        )
    findings: list[CallFinding] = []
    kinds = {c.kind for c in line.commands if not c.is_filter}
    if "git" in kinds and (finding := read_git(line, view)) is not None:
        findings.append(finding)
    is_foreign = (
        bool(kinds)
        and kinds <= {"read", "search", "other", "git"}
        and _LOG_FILE.search(line.text[:2_000]) is None
        and _RUN_LOG.search(line.text[:2_000]) is None
    )
    if not is_foreign:
        findings += _read_runs(kinds, view, bool(findings))
    is_stamped = _STAMPED.match(view.text) is not None
    if not findings and not is_stamped and (finding := read_json_log(view) or read_json(view)) is not None:
        findings.append(finding)
    if timeout := read_timeout(view.raw):
        findings.append(CallFinding(timeout, (), CallFacts(error=timeout), True, 0.6))
    if findings:
        return combine_findings(findings) if len(findings) > 1 else findings[0]
    finding = _read_plain(line, kind, view)
    return _as_built(line, finding, view) if kind == "build" else finding


def _as_built(line: ShellLine, finding: CallFinding, view: OutputView) -> CallFinding:
    """Return the finding of a build, which succeeded if it printed neither an error nor a total."""
    if any(map(line.has_fallback, line.of_kind("build"))) and not view.exit_code:
        return replace(finding, headline="no output" if finding.headline == "ok" else finding.headline)
    if view.exit_code or finding.is_failure or _error_lines(view.lines) or _INSTALL.search(line.text[:400]):
        return finding
    is_silent = all(_NOISE_LINE.match(x) for x in view.lines)
    headline = "ok" if is_silent and finding.headline != "no output" else finding.headline
    facts = merge_facts([finding.facts, CallFacts(tests=TestRun(failed=0))])
    return replace(finding, headline=headline, rows=() if is_silent else finding.rows, facts=facts)


def _read_runs(kinds: set[CallKind], view: OutputView, has_finding: bool) -> list[CallFinding]:
    """Test and build output, wherever it comes from."""
    findings = []
    tests = read_tests(view)
    if tests is not None:
        findings.append(tests)
    is_build = bool(kinds & {"build", "test"})
    needs_build = tests is None or tests.is_failure or "build" in kinds
    if needs_build and (is_build or view.exit_code or not has_finding):
        build = read_build(view, is_strict="build" not in kinds and (tests is not None or not is_build))
        if build is not None and not (tests is not None and _is_same(tests, build)):
            findings.append(build)
    if len(findings) == 2 and any(row.endswith("— build failed") for row in findings[0].rows):
        # What does not compile explains what did not run.
        findings.reverse()
    return findings


def _is_same(tests: CallFinding, build: CallFinding) -> bool:
    """Whether the errors of the second are the assertions of the first."""
    text = "\n".join(tests.rows)
    return build.is_failure and all(r.split(": ", 1)[0].rsplit("/", 1)[-1] in text for r in build.rows[:3])


_GONE = re.compile(r"^(?:ls|stat|rm|rmdir): .*(?:cannot access|No such file)|^error: branch '[^']+' not found", re.I)


def _is_cleared(line: ShellLine, view: OutputView) -> bool:
    """Whether a command that deletes something only complains that it is gone."""
    if not any(c.kind == "delete" or "-D" in c.words or "-d" in c.words for c in line.commands):
        return False
    errors = [view.lines[n] for n in _error_lines(view.lines)] or view.lines[-1:]
    return bool(errors) and all(map(_GONE.search, errors))


def _is_harmless(line: ShellLine, kind: CallKind, view: OutputView) -> bool:
    """Whether a failure is none: a search without a match and a diff with a difference exit with 1."""
    last = line.commands[-1] if line.commands else None
    is_search = kind in ("search", "read") or (last is not None and last.program in ("grep", "rg", "diff"))
    return view.exit_code == 1 and is_search and not any(_is_shell_error(x) for x in view.lines[-3:])


def _with_failure(finding: CallFinding, view: OutputView) -> CallFinding:
    lines = decisive_lines(view)
    reason = lines[0] if lines else finding.headline
    ended = f"exit {view.exit_code}"
    if (ending := _ENDINGS.get(view.exit_code or 0)) is not None:
        ended += f" ({ending})"
    if finding.facts.tests is not None:
        # The tests passed, and something else failed, such as a coverage limit.
        return replace(finding, headline=f"{finding.headline}; {ended}: {reason}", is_failure=True, title=None)
    excerpt = " ".join(lines[:8])
    others = [r for r in finding.rows if " ".join(r.split()) not in excerpt] if "Traceback" not in view.text else []
    return CallFinding(
        f"{ended}: {reason}" if reason else ended,
        (*lines[:8], *others) if len(lines) + len(others) > 1 or len(reason) > 200 else (),
        merge_facts([finding.facts, CallFacts(error=one_line(reason, 240))]),
        True,
        max(finding.worth, 0.6),
        ended if len(lines) + len(others) > 1 else None,
    )


def decisive_lines(view: OutputView) -> list[str]:
    """Return the lines of a failing output that give the reason, most decisive first, or else its last lines."""
    lines = view.lines
    exceptions = [n for n, x in enumerate(lines) if _PY_EXCEPTION.match(x[:300])]
    if exceptions and "Traceback" in view.text:
        number = exceptions[-1]
        frame = next(
            (m for x in reversed(lines[max(0, number - 12) : number]) if (m := _PY_FRAME.match(x)) is not None), None
        )
        at = f"{frame[1]}:{frame[2]}: " if frame is not None else ""
        return [f"{at}{one_line(lines[number], 260)}", *(one_line(x, 200) for x in lines[number + 1 : number + 3])]
    shell = [one_line(x, 220) for x in lines if _is_shell_error(x)]
    errors = [one_line(lines[n], 240) for n in _error_lines(lines)]
    chosen = unique(shell[:2] + errors[:8])
    return chosen or [one_line(x, 200) for x in lines[-3:]]


def ends_in_traceback(view: OutputView) -> bool:
    """Whether a program ended with an exception: one that was printed, as a part of a file, has text behind it."""
    start = view.text.rfind("Traceback (most recent call last)")
    if start < 0:
        return False
    lines = view.text[start:].split("\n", _MAX_TRACEBACK_LINES)
    ended = next((n for n, x in enumerate(lines) if n and not x.startswith((" ", "\t", "Traceback"))), None)
    return ended is not None and _PY_EXCEPTION.match(lines[ended][:300]) is not None and _is_message(lines[ended + 1 :])


def _is_message(lines: Sequence[str]) -> bool:
    """Whether lines behind an exception are few enough for the rest of its message, and notes of an interpreter."""
    return sum(not _NOISE_LINE.match(x) for x in lines) <= _MAX_MESSAGE_LINES


def _is_shell_error(line: str) -> bool:
    return len(line) < 400 and any(text in line for text in _SHELL_ERRORS)


def _error_lines(lines: tuple[str, ...]) -> list[int]:
    """Return the positions of lines that report an error; none of a program, which merely names them."""
    numbers: Sequence[int] = range(len(lines))
    if len(lines) > 2 * _SEARCHED_LINES:
        numbers = [*numbers[:_SEARCHED_LINES], *numbers[-_SEARCHED_LINES:]]
    texts = [lines[n][:240] for n in numbers]
    # Most outputs have none or one of the hints: only those are looked for line by line.
    lowered = "\n".join(texts).lower()
    hints = [hint for hint in _ERROR_HINTS if hint in lowered]
    if not hints:
        return []
    errors = [(n, text) for n, text in zip(numbers, texts, strict=True) if _has_error(text, hints)]
    reported = [n for n, text in errors if _SOURCE_LINE.match(text) is None]
    # Where most of them are code, a program was printed.
    return reported if 2 * len(reported) >= len(errors) else []


def _has_error(text: str, hints: list[str]) -> bool:
    lowered = text.lower()
    return any(hint in lowered for hint in hints) and _ERROR_LINE.search(text) is not None


def _read_plain(line: ShellLine, kind: CallKind, view: OutputView) -> CallFinding:
    if not view.text or _EMPTY.fullmatch(view.text[:60]):
        return _read_silent(line, kind, view)
    if (log := read_log(view)) is not None:
        return log
    total = view.total_lines
    routine = read_routine(view)
    if routine is not None and kind in ("read", "search"):
        return CallFinding(routine[0], tuple(routine[1]), worth=0.35)
    if kind in ("read", "search"):
        is_error = total <= 3 and _is_shell_error(view.lines[0])
        rows = tuple(join_rows(view.lines, limit=400, row_chars=160)) if total <= 15 else ()
        if kind == "search":
            rows = tuple(search_rows(view.lines, total))
        if 15 < total <= 60 and any(_HEADER.match(x) for x in view.lines):
            rows = tuple(_telling_rows(view))
        headline = one_line(view.lines[0], 110) if total == 1 else view.size
        return CallFinding(
            headline,
            rows if total > 1 else (),
            CallFacts(error=headline if is_error else ""),
            is_error,
            0.12 if total > 1 else 0.2,
        )
    if total == 1:
        is_error = view.exit_code is None and kind == "shell" and _FINAL_ERROR.match(view.text) is not None
        return CallFinding(
            one_line(view.text, 130),
            (one_line(view.text, 600),) if len(view.text) > 130 else (),
            CallFacts(error=one_line(view.text, 200) if is_error else ""),
            is_error,
            0.6 if is_error else 0.35,
        )
    if (table := _read_table(view)) is not None:
        return table
    headline, telling = routine or (_plain_headline(kind, view), _telling_rows(view))
    is_whole = routine is None and not headline.startswith(view.size)
    rows = () if is_whole else tuple(telling)
    status = _HTTP_STATUS.match(view.text) if kind == "web" else None
    error = status[0] if status is not None else ""
    if not error and view.exit_code is None and kind in ("shell", "build") and _FINAL_ERROR.match(view.lines[-1]):
        error = one_line(view.lines[-1], 200)
    return CallFinding(headline, rows, CallFacts(error=error), bool(error), 0.6 if error else 0.35)


def _read_table(view: OutputView) -> CallFinding | None:
    """Return the result of a query: the number of its rows, its columns and the first rows."""
    count = _ROW_COUNT.fullmatch(view.lines[-1].strip())
    if count is None or len(view.lines) < 3:
        return None
    header = " ".join(view.lines[0].split())
    rows = [" ".join(x.split()) for x in view.lines[1:-1] if any(map(str.isalnum, x))]
    return CallFinding(
        f"{count[1]} rows: {one_line(header, 90)}", tuple(join_rows([header, *rows], limit=700)), worth=0.35
    )


def _plain_headline(kind: CallKind, view: OutputView) -> str:
    """Return all of a few short lines, else the first error, the result, or the ends; the first of what git lists."""
    lines = [x for x in view.lines if not _NOISE_LINE.match(x)] or list(view.lines)
    together = " | ".join(" ".join(x.split()) for x in lines[:4])
    if len(lines) <= 4 and len(together) <= 130 and not view.extent.is_partial:
        return together.rstrip(":")
    if len(lines) > 2 and not any(" " in x.strip() for x in lines):
        return f"{view.size}: {list_names([clip_path(x.strip(), 60) for x in lines], 90)}"
    error = next((n for n, x in enumerate(lines) if _OWN_ERROR.match(x[:300])), None)
    result = next(
        (n for n in range(len(lines) - 1, max(-1, len(lines) - 13), -1) if _RESULT_LINE.match(lines[n])), None
    )
    if error is not None:
        chosen = _with_next(lines, error)
    elif result is not None:
        chosen = _with_next(lines, result)
    else:
        first, last = _with_next(lines, 0), " ".join(lines[-1].split()).rstrip(":")
        both = f"{first} … {last}"
        is_listing = kind == "git" or view.total_lines > 60
        chosen = first if is_listing or len(both) > _HEADLINE_CHARS or last in first else both
    return f"{view.size}: {one_line(chosen.rstrip(' ([{,'), _HEADLINE_CHARS)}"


def _with_next(lines: Sequence[str], number: int) -> str:
    """Return a line; one that ends in a colon with the line it announces."""
    line = " ".join(lines[number].split())
    if line.endswith(":") and number + 1 < len(lines):
        line = f"{line} {' '.join(lines[number + 1].split())}"
    return line.rstrip(":")


def _read_silent(line: ShellLine, kind: CallKind, view: OutputView) -> CallFinding:
    """Describe a command without output: for a search no match, for a here-document the file that it wrote."""
    target = next((c.output_file for c in line.commands if c.output_file), "")
    if target and line.documents and len(line.commands) == 1:
        return replace(describe_content(target, line.documents[0]), rows=())
    if view.exit_code:
        return CallFinding(
            f"exit {view.exit_code}" if kind != "search" else "no match", (), NO_FACTS, kind != "search", 0.4
        )
    headline = {"search": "no match", "read": "empty", "build": "ok", "test": "ok"}.get(kind, "done")
    if line.commands and git_subcommand(line.commands[-1]) in ("diff", "status", "log", "stash", "branch"):
        headline = "nothing to show"
    if line.commands and line.commands[-1].is_filter:
        headline = "no output"
    return CallFinding(
        headline, (), NO_FACTS, False, 0.3 if kind in ("build", "test", "delete", "edit", "git") else 0.2
    )


def _telling_rows(view: OutputView) -> list[str]:
    """Return all lines of a small output; of a larger one headers, first and last lines and those with errors."""
    lines = tuple(x for x in view.lines if not _NOISE_LINE.match(x)) or view.lines
    if sum(map(len, lines)) <= _SMALL_CHARS:
        return join_rows(lines, limit=_SMALL_CHARS + 100)
    if listing := _listing_rows(lines, view.extent.limits):
        return listing
    last = len(lines) - 1
    chosen = {0, 1, last - 2, last - 1, last}
    chosen.update((_error_lines(lines) or [n for n, x in enumerate(lines[:_DEFINING_LINES]) if _DEFINES.match(x)])[:6])
    chosen.update([n for n, x in enumerate(lines) if _HEADER.match(x)][:6])
    chosen.update(_outliers(lines))
    rows: list[str] = []
    previous, is_whole = -1, view.extent == WHOLE and 2 * len(view.text) >= len(view.raw)
    for number in sorted(n for n in chosen if 0 <= n <= last):
        if number > previous + 1:
            # Lines are counted only where the view has all of them.
            rows.append(f"[… {number - previous - 1} lines]" if is_whole else GAP)
        rows.append(clip_located(lines[number], 160))
        previous = number
    return join_rows(rows, limit=900)


def _outliers(lines: Sequence[str]) -> list[int]:
    """Return the few rows of a table that differ from most others in more than their name and their numbers."""
    shapes = [" ".join(x[:300].split()[1:]).translate(_NO_DIGITS) for x in lines[:_SEARCHED_LINES]]
    if len(shapes) < _FEWEST_TABLE_ROWS:
        return []
    usual, times = Counter(shapes).most_common(1)[0]
    others = [n for n, shape in enumerate(shapes) if shape != usual]
    return others[:_MOST_OUTLIERS] if usual and times >= _USUAL_SHARE * len(shapes) else []


def _listing_rows(lines: Sequence[str], limits: str) -> list[str]:
    """Return the names of a listing, those that are not indented first; [] for other outputs."""
    if sum(" " not in x.strip() for x in lines[:400]) < 0.95 * min(len(lines), 400):
        return []
    top = [x for x in lines if not x[:1].isspace()]
    names = list_names([clip_path(x.strip(), 80) for x in (top if len(top) >= 3 else lines)], 600)
    return [f"{names} ({len(lines)} entries{limits})"]


def _side_effects(line: ShellLine) -> CallFacts:
    """Files that the commands wrote or deleted, and processes that they stopped."""
    changed = [c.output_file for c in line.commands if c.output_file]
    deleted: list[str] = []
    moves: list[tuple[str, str]] = []
    reads: list[str] = []
    stopped = ""
    for command in line.commands:
        if command.kind == "edit" and command.operands:
            changed.append(command.operands[-1])
        elif command.kind == "delete" or (command.program == "git" and git_subcommand(command) == "rm"):
            deleted += [x for x in command.operands if x != "rm"][:20]
        elif (
            command.kind == "read"
            and not command.is_filter
            and command.program in ("cat", "head", "tail", "sed", "nl", "less")
        ):
            reads += [x for x in command.operands if "." in x or "/" in x][-3:]
        elif command.program in ("kill", "pkill", "killall"):
            stopped = " ".join(command.operands[:3])
        elif command.program == "mv" or (command.program == "git" and git_subcommand(command) == "mv"):
            moved = [x for x in command.operands if x != "mv"]
            moves += _moves(moved)
    if not (changed or deleted or moves or reads or stopped):
        return NO_FACTS
    return CallFacts(
        changed_files=tuple(changed),
        deleted_files=tuple(deleted),
        moved_files=tuple(moves),
        read_files=tuple(reads),
        stopped_process=stopped,
    )


def _moves(operands: Sequence[str]) -> list[tuple[str, str]]:
    """Return the old and the new path of each file that `mv` moved; into a folder it keeps its name."""
    if len(operands) < 2:
        return []
    *sources, target = operands
    if len(sources) == 1 and not target.endswith("/") and ("." in target.rpartition("/")[2] or "." not in sources[0]):
        return [(sources[0], target)]
    return [(source, f"{target.rstrip('/')}/{source.rstrip('/').rpartition('/')[2]}") for source in sources[:20]]
