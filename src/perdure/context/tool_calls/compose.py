"""The text of a call: what was called, on what, and the line and the detail with what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.context.tool_calls.call_line import CallKind, CallLine, Outcome
from perdure.context.tool_calls.edits import edited_path
from perdure.context.tool_calls.output import (
    DATA_CHARS,
    DETAIL_CHARS,
    LINE_CHARS,
    CallFinding,
    clip_located,
    clip_middle,
    join_rows,
    one_line,
    printable,
    unique,
)
from perdure.context.tool_calls.services import compact_value

_TEST_LABEL_CHARS = 100


def compose_line(
    name: str,
    kind: CallKind,
    target: str,
    what: str,
    finding: CallFinding,
    outcome: Outcome,
    short: str = "",
    *,
    line_chars: int = LINE_CHARS,
) -> CallLine:
    """Put together the line and the detail; `short` is the call as the line names it."""
    headline = finding.headline
    mark = "FAILED: " if outcome == "failed" else ""
    short = short or what
    # Which tests ran matters as much as what came of them.
    least = min(len(short), _TEST_LABEL_CHARS) if kind == "test" else 50
    room = max(least, line_chars - len(headline) - len(mark) - 3)
    line_chars += max(0, least - 50)
    if len(short) > room and " (`" in short:
        short = short.split(" (`", 1)[0]
    if outcome == "failed" and kind in ("test", "build") and " — " not in headline:
        # The end of a message has the reason, its beginning the place.
        headline = clip_located(headline, max(90, line_chars - min(len(short), room) - len(mark) - 3))
    short = clip_middle(short, min(room, max(least, line_chars - 50)))
    line = printable(one_line(f"{short} → {mark}{headline}" if headline else short, line_chars))
    title = headline if finding.title is None or not finding.rows else finding.title
    rows = [r for r in finding.rows if r != title]
    full = f"{what} → {mark}{title}".removesuffix(" → ") if title or mark else what
    if not rows and len(full) <= LINE_CHARS:
        return CallLine(kind, name, target, outcome, line, line, finding.worth, facts=finding.facts)
    first = clip_middle(" ".join(full.split()), 420 if outcome != "refused" else 1_000)
    room = DATA_CHARS if finding.is_data else DETAIL_CHARS
    body = join_rows(rows, limit=room - len(first), row_chars=900)
    detail = printable("\n".join([first, *(f"  {r}" for r in body)]))
    return CallLine(kind, name, target, outcome, line, detail, finding.worth, facts=finding.facts)


def target_of(kind: CallKind, arguments: Mapping[str, Any]) -> str:
    if kind == "shell":
        return " ".join(command_of(arguments)[:1_500].split())
    if kind in ("read", "write", "edit", "delete"):
        return edited_path(arguments) or arguments_text(arguments, 160)
    if kind == "search":
        return str(arguments.get("pattern") or arguments.get("query") or edited_path(arguments))[:300]
    for key in ("url", "query", "description", "subject", "goal", "title", "id", "task_id", "taskId"):
        if isinstance(value := arguments.get(key), str) and value:
            return value[:300]
    return arguments_text(arguments, 200)


def arguments_text(arguments: Mapping[str, Any], limit: int) -> str:
    """Return the arguments as `name=value`, shortest first where they do not all fit."""
    pairs = [
        f"{k}={compact_value(v, 120)}"
        for k, v in list(arguments.items())[:30]
        if v not in (None, "", [], {}) and k != "_i"
    ]
    return one_line(", ".join(pairs), limit)


def command_of(arguments: Mapping[str, Any]) -> str:
    for key in ("command", "cmd", "script", "code", "input"):
        value = arguments.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            words = [str(w) for w in value]
            return words[-1] if len(words) > 1 and words[-2] in ("-c", "-lc") else " ".join(words)
    return ""


def code_label(code: str) -> str:
    """Return what a program is for: its comments, its definitions and its last statements."""
    lines = [x.strip() for x in code[:20_000].split("\n") if x.strip() and not x.startswith(("import ", "from "))]
    remarks = [x.lstrip("# ").strip('"') for x in lines if x.startswith(("# ", '"""'))]
    names = [x.rstrip(":") for x in lines if x.startswith(("def ", "class ", "async def ", "function "))]
    label = "; ".join(filter(None, unique([*remarks[:2], *names[:2], *lines[-2:]])))
    return clip_middle(label, 200)


_OPENING_LINES = 5
_LONG_OPENING_CHARS = 600
_ADDED = "  + "


def openings(detail: str) -> Iterator[str]:
    """Yield beginnings of a detail: its first lines, and before them the first row where those are long."""
    lines = detail.split("\n")
    opening = "\n".join(_opening_lines(lines))
    if len(opening) > _LONG_OPENING_CHARS and len(lines) > 2:
        yield "\n".join((*lines[:2], "  …"))
    if len(lines) > _OPENING_LINES:
        yield f"{opening}\n  …"


def _opening_lines(lines: Sequence[str]) -> list[str]:
    """Return the first lines; of a change that removes many, the first ones of both sides."""
    added = next((n for n, x in enumerate(lines) if x.startswith(_ADDED)), 0)
    if added < _OPENING_LINES:
        return list(lines[:_OPENING_LINES])
    return [*lines[: _OPENING_LINES - 2], "  …", *lines[added : added + 2]]
