"""Logs of services: how many lines of each level, and the different errors with their place in the code.

Four forms are known: text with a level in each line, one JSON object per line, access logs of web servers, and the
events of a cluster. Of each error the values are kept, and the file and line even where they end a long line or are in
the stack trace below it. Of any other long output whose lines are nearly all alike, the few that differ are shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.context.tool_calls.call_line import NO_FACTS
from perdure.context.tool_calls.output import (
    CallFinding,
    OutputView,
    clip_located,
    count_noun,
    find_locations,
    join_rows,
    one_line,
    parse_json,
    plain_text,
)

_FEWEST_LINES = 8
_MOST_ERRORS = 8
_ROW_CHARS = 240
_HEADLINE_CHARS = 90
_LEVEL_HINTS = ("ERROR", "WARN", "INFO", "DEBUG", "FATAL", "CRITICAL", "level=", '"level"', "[error]", "[crit]")
_LEVEL = re.compile(
    r"\b(FATAL|CRITICAL|ERROR|WARN(?:ING)?|INFO|DEBUG)\b|level=(\w+)|\"level\": ?\"(\w+)\"|\[(error|crit|alert|emerg)\]"
)
_ERROR_LEVELS = frozenset(("FATAL", "CRITICAL", "CRIT", "ERROR", "ERR", "ALERT", "EMERG", "PANIC", "SEVERE"))
_VARIABLE = re.compile(r"\d[\d.:,T-]*|0x[0-9a-f]+|[0-9a-f]{8,}")
_TIME = re.compile(r"^\W{0,2}\d{4}[-/]\d\d[-/]\d\d[T ]?[\d:.,]*(?:Z|[+-]\d\d:?\d\d)?[\s:|\]-]{0,3}")
# The frames of a stack trace below an error.
_MOST_FRAMES = 30
_PY_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)')
_FRAME = re.compile(
    r"^\s*at [^(]*\(?([\w./@+-]+\.\w{1,5}:\d+)(?::\d+)?\)?(?: ~?\[.*)?$|^\s+(\S+\.go:\d+)(?: \+0x\w+)?$"
)
_EXCEPTION = re.compile(r"(?:Caused by: )?[A-Za-z_][\w.$]*(?:Error|Exception|Throwable|Panic)\b")
_IN_TRACE = (" ", "\t", "Traceback", "goroutine", "Caused by", "at ")
_LIBRARY = ("node_modules", "node:", "site-packages", "/usr/lib", "internal/")
# One object per line.
_MESSAGES = ("msg", "message", "event", "error", "err")
_LEVELS = ("level", "severity", "lvl", "log.level", "levelname")
_TIMES = ("ts", "time", "timestamp", "@timestamp", "t")
_JSON_LEVEL = re.compile(r'"(?:level|severity|lvl|log\.level|levelname)" ?: ?"?(\w+)"?')
# Numbers instead of names, as pino writes them.
_NUMBERED_LEVELS = {"50": "ERROR", "60": "FATAL", "40": "WARN", "30": "INFO", "20": "DEBUG", "10": "TRACE"}
_ACCESS = re.compile(r'"([A-Z]{3,7}) (\S{1,300}) HTTP/[\d.]+" (\d{3})\b')
_ACCESS_TIME = re.compile(r"\[(\d\d/\w{3}/\d{4}:[\d:]{8})")
# An output of lines that are alike: how many, how much of a line is compared, and the share of those that differ.
_FEWEST_ROUTINE_LINES = 100
_MOST_ROUTINE_CHARS = 2_000_000
_TEMPLATE_CHARS = 300
_FEWEST_ALIKE = 5
_MOST_RARE_SHARE = 0.15
_MOST_RARE_LINES = 12
_RARE_CHARS = 280
_NO_DIGITS = str.maketrans("", "", "0123456789")
_REPORTS = re.compile(
    r"(?i)error|fail|fatal|exception|panic|traceback|denied|refused|killed|out of memory|timed? ?out|cannot|unable"
    r"|abort|invalid|missing|not found|duplicate|reject|\bwarn|✘|✗|❌"
)
_EVENT = re.compile(r"^\s*(?:[\w<>]+\s+){0,2}?Warning\s+([A-Z]\w+)\s+(\S.*)$")
_EVENT_HEADER = re.compile(r"(?i)\btype\s+reason\b")


def read_log(view: OutputView) -> CallFinding | None:
    """Return the levels and errors of a log; None for any other output."""
    if view.total_lines < _FEWEST_LINES:
        return None
    return _read_access(view) or _read_events(view) or _read_levels(view)


def read_json_log(view: OutputView) -> CallFinding | None:
    """Return the levels and errors of a log with one JSON object per line; None for any other output."""
    lines = view.lines
    if view.total_lines < _FEWEST_LINES or not lines or _JSON_LEVEL.search(lines[0][:400]) is None:
        return None
    levels: Counter[str] = Counter()
    errors: dict[str, list[str]] = {}
    for line in lines:
        match = _JSON_LEVEL.search(line)
        if match is None or line[0] != "{":
            continue
        level = _NUMBERED_LEVELS.get(match[1], match[1].upper())
        levels[level] += 1
        if level in _ERROR_LEVELS and isinstance(body := parse_json(line), dict):
            errors.setdefault(_message(body), []).append(_json_row(body, level))
    if sum(levels.values()) < len(lines) // 2:
        return None
    rows = [_format_group(group) for group in sorted(errors.values(), key=len, reverse=True)[:_MOST_ERRORS]]
    return _finding(view, _whole_counts(view, levels, _JSON_LEVEL), rows, list(lines))


def _message(body: Mapping[str, Any]) -> str:
    return next((v for name in _MESSAGES if isinstance(v := body.get(name), str) and v), "")


def _json_row(body: Mapping[str, Any], level: str) -> str:
    """Return an object of a log in one line: time, level and message, then its other values by name."""
    time = next((str(body[n]) for n in _TIMES if n in body), "")
    message = _message(body)
    lead = {time, message}
    others = [
        f"{name}: {one_line(str(value), 160)}"
        for name, value in body.items()
        if name not in _LEVELS and value not in (None, "", [], {}) and str(value) not in lead
    ]
    return " ".join(filter(None, (time, level, ", ".join(filter(None, (message, *others))))))


def _read_levels(view: OutputView) -> CallFinding | None:
    """Return what a log with levels in its text has, errors grouped by their words."""
    levels: Counter[str] = Counter()
    errors: dict[str, list[str]] = {}
    lines = view.lines
    hints = [hint for hint in _LEVEL_HINTS if hint in view.text]
    for number, row in enumerate(lines) if hints else ():
        head = row[:300]
        match = _LEVEL.search(head) if any(hint in head for hint in hints) else None
        if match is None:
            continue
        level = next(filter(None, match.groups())).upper().replace("WARNING", "WARN")
        levels[level] += 1
        if level in _ERROR_LEVELS:
            errors.setdefault(_VARIABLE.sub("#", head), []).append(_with_frames(lines, number))
    if sum(levels.values()) < max(4, len(lines) // 3):
        return None
    rows = [_format_group(group) for group in sorted(errors.values(), key=len, reverse=True)[:_MOST_ERRORS]]
    return _finding(view, _whole_counts(view, levels, _LEVEL), rows, list(lines))


def _with_frames(lines: Sequence[str], number: int) -> str:
    """Return a line with the exception and the place in the stack trace below it."""
    row = lines[number]
    following = lines[number + 1 : number + 1 + _MOST_FRAMES]
    if not following or not (following[0].startswith(_IN_TRACE) or _EXCEPTION.match(following[0])):
        return row
    python = frame = exception = ""
    for line in following:
        if (match := _PY_FRAME.match(line)) is not None:
            python = f"{match[1]}:{match[2]}"
        elif python and line[:1].strip():
            exception = line
            break
        elif (match := _FRAME.match(line)) is not None:
            if not frame and not any(part in line for part in _LIBRARY):
                frame = match[1] or match[2]
        elif not frame and _EXCEPTION.match(line) is not None:
            exception = line
        elif not line.startswith(_IN_TRACE):
            break
    text = f"{row} | {exception}" if exception and exception not in row else row
    return f"{text} at {python or frame}" if python or frame else text


def _read_access(view: OutputView) -> CallFinding | None:
    """Return what an access log has: responses by status, and the requests that the server failed to answer."""
    if '" ' not in view.text or " HTTP/" not in view.text:
        return None
    requests = [(m, line) for line in view.lines if (m := _ACCESS.search(line)) is not None]
    if len(requests) < max(4, len(view.lines) // 3):
        return None
    statuses = Counter(status for _, _, status in _ACCESS.findall(view.raw[:2_000_000]))
    failed: dict[str, list[str]] = {}
    for match, line in requests:
        if match[3][0] == "5":
            time = _ACCESS_TIME.search(line)
            failed.setdefault(f"{match[3]} {match[1]} {match[2]}", []).append(time[1] if time is not None else "")
    rows = [
        f"{request} ({count_noun(len(times), 'time')}, {times[0]}{f' to {times[-1]}' if len(times) > 1 else ''})"
        for request, times in sorted(failed.items(), key=lambda item: -len(item[1]))[:_MOST_ERRORS]
    ]
    errors: dict[str, str] = {}
    for number, line in enumerate(view.lines):
        level = _LEVEL.search(line[:300]) if _ACCESS.search(line) is None or "[" in line[30:60] else None
        if level is not None and next(filter(None, level.groups())).upper() in _ERROR_LEVELS:
            errors.setdefault(_VARIABLE.sub("#", line[:300]), _with_frames(view.lines, number))
    rows = [*list(errors.values())[:_MOST_ERRORS], *rows]
    counts = Counter({f"× {status}": times for status, times in statuses.items() if times})
    return _finding(view, counts, rows, list(view.lines), row_chars=2 * _ROW_CHARS)


def _read_events(view: OutputView) -> CallFinding | None:
    """Return the warnings among the events of a cluster, the same warning about the same object once."""
    if not any(_EVENT_HEADER.search(line) for line in view.lines[:400]):
        return None
    warnings: dict[str, int] = {}
    for line in view.lines:
        if "Warning" in line and (match := _EVENT.match(line)) is not None:
            row = f"{match[1]}: {' '.join(match[2].split())}"
            warnings[row] = warnings.get(row, 0) + 1
    if not warnings:
        return None
    rows = [f"{row} ({times}×)" if times > 1 else row for row, times in warnings.items()]
    return _finding(view, Counter({"Warning": sum(warnings.values())}), rows, [])


def read_routine(view: OutputView) -> tuple[str, list[str]] | None:
    """Return the headline and the rows of a long output whose lines are nearly all alike: the few that are not.

    Lines are alike if they differ in their numbers only. None where the lines differ, or where none does.
    """
    if view.total_lines < _FEWEST_ROUTINE_LINES or len(view.raw) > _MOST_ROUTINE_CHARS:
        return None
    lines = [line for line in plain_text(view.raw).split("\n") if line.strip()]
    templates = [line[:_TEMPLATE_CHARS].translate(_NO_DIGITS) for line in lines]
    counts = Counter(templates)
    rare = [n for n, t in enumerate(templates) if counts[t] < _FEWEST_ALIKE and any(map(str.isalnum, lines[n][:80]))]
    if not 0 < len(rare) <= _MOST_RARE_SHARE * len(lines):
        return None
    # Lines that report something first, then those at the end, in the order of the output.
    rare.sort(key=lambda n: (_REPORTS.search(lines[n][:600]) is None, -n))
    chosen = sorted(rare[:_MOST_RARE_LINES])
    telling = next((n for n in chosen if _REPORTS.search(lines[n][:600]) is not None), chosen[-1])
    rows = [clip_located(lines[n], _RARE_CHARS) for n in chosen]
    more = f"[{len(rare) - len(chosen)} other lines like none else]" if len(rare) > len(chosen) else ""
    headline = f"{_log_of(view)}, most alike; {_short_error(lines[telling])}"
    return headline, [*rows, *filter(None, (more,))]


def _whole_counts(view: OutputView, levels: Counter[str], pattern: re.Pattern[str]) -> Counter[str]:
    """Return how often each level occurs in the whole output, of which the view may have a part."""
    if view.total_lines <= len(view.lines) + 1 or len(view.raw) > 2_000_000:
        return levels
    counts: Counter[str] = Counter()
    for line in view.raw.split("\n"):
        if (match := pattern.search(line[:400])) is not None:
            level = next(filter(None, match.groups())).upper().replace("WARNING", "WARN")
            counts[_NUMBERED_LEVELS.get(level, level)] += 1
    return counts


def _format_group(group: Sequence[str]) -> str:
    times = f" ({len(group)}×, last: {one_line(group[-1], 60)})" if len(group) > 1 else ""
    return clip_located(group[0], _ROW_CHARS) + times


def _finding(
    view: OutputView, levels: Counter[str], rows: Sequence[str], lines: Sequence[str], *, row_chars: int = _ROW_CHARS
) -> CallFinding:
    counts = ", ".join(f"{n} {level}" for level, n in sorted(levels.items(), key=lambda p: p[1]))
    limits = view.extent.limits if view.extent.is_sized else ""
    headline = f"{_log_of(view)}: {counts}{limits}"
    if rows:
        headline += f"; {_short_error(rows[0])}"
    excerpts = [clip_located(r, row_chars) for r in rows] or [one_line(x, 160) for x in lines[-3:]]
    return CallFinding(headline, tuple(join_rows(excerpts, limit=950)), NO_FACTS, False, 0.45 if rows else 0.25)


def _log_of(view: OutputView) -> str:
    return f"log of {'the ' if view.extent.part in ('first', 'last') else ''}{view.size}"


def _short_error(row: str) -> str:
    """Return an error for a headline, without its time and with the first place in the code that it names."""
    text = _TIME.sub("", row).lstrip("│┃| ")
    locations = find_locations(text[:4_000])
    short = one_line(text, _HEADLINE_CHARS)
    if not locations or locations[-1] in short:
        return short
    name = locations[-1].rsplit("/", 1)[-1]
    return f"{one_line(text, _HEADLINE_CHARS - len(name) - 1)} {name}"


def is_log(line: str) -> bool:
    """Return whether the line of a call tells a log."""
    return "→ log of " in line or "→ FAILED: log of " in line
