"""JSON bodies reduced to their values: scalars by name, lists of objects as rows, without what nobody refers to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.context.record.call_text import CallFinding, OutputView, count_noun, one_line, parse_json
from perdure.context.record.json_rows import LABELS, is_dull, list_rows, object_rows
from perdure.context.record.types import CallFacts

_DATA_CHARS = 1_900
# A document that is cut off is read up to here.
_CUT_CHARS = 120_000
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]', re.DOTALL)
_NEXT_ITEM = re.compile(r"\}\s*,\s*\{")
# Items tried as the first behind the gap in a list; each is parsed up to its first fault.
_TRIED_ITEMS = 40
_CLOSERS = {"[": "]", "{": "}"}
_MOST_BRACKETS = 100
_OBJECT_WORTH = 0.45
_LIST_WORTH = 0.4
_STRING_FIELD = re.compile(
    r'"(error|message|status|state|id|number|name|title|html_url|code)"\s*:\s*("(?:[^"\\]|\\.){0,200}"|-?\d+|true|false|null)'
)
# The members that come first in the line of a call.
_FIRST = (
    "error", "message", "detail", "number", *LABELS, "status", "state", "conclusion", "code", "count", "total",
    "amount", "price", "date", "version", "type", "ref", "branch", "result", "html_url", "url", "summary",
    "description",
)  # fmt: skip
_RANK = {name: rank for rank, name in reversed(list(enumerate(_FIRST)))}


def read_json(view: OutputView) -> CallFinding | None:
    """Describe a result that is a JSON document, or contains little else; None for other texts."""
    text = view.raw.strip() if len(view.raw) < 400_000 else view.raw[:_CUT_CHARS].lstrip()
    if not text or text[0] not in "{[":
        return None
    body = parse_json(text)
    if body is None:
        body = _json_lines(text)
    if body is not None:
        return describe_body(body)
    if len(view.raw) <= 2_000:
        return None
    body = complete_json(text)
    if isinstance(body, list):
        body += _last_items(text)
    return describe_body(body, is_cut=True) if body else _read_fragment(view)


def _json_lines(text: str) -> list[object] | None:
    """Parse a text that has an object in each line; None for any other."""
    lines = [x for x in text[:_CUT_CHARS].split("\n") if x.strip()]
    if len(lines) < 2 or not all(x.startswith("{") and x.rstrip().endswith("}") for x in lines):
        return None
    bodies = [parse_json(x) for x in lines[:400]]
    return bodies if all(isinstance(b, dict) for b in bodies) else None


def complete_json(text: str) -> object:
    """Parse the beginning of a document that is cut off: up to its last whole member; None where there is none."""
    text = text[:_CUT_CHARS]
    for _ in range(2):
        closed = _closed(text)
        try:
            return json.loads(closed) if closed else None
        except json.JSONDecodeError as error:
            # Something else begins there, such as a note about what was left out.
            text = text[: error.pos]
        except (ValueError, RecursionError):
            return None
    return None


def _last_items(text: str) -> list[Any]:
    """Parse the whole items at the end of a list whose middle is missing."""
    if not text.endswith("]"):
        return []
    start = len(text) // 4
    for _ in range(_TRIED_ITEMS):
        match = _NEXT_ITEM.search(text, start)
        if match is None:
            return []
        start = match.end()
        if isinstance(items := parse_json(f"[{text[start - 1 :]}"), list):
            return items
    return []


def _closed(text: str) -> str:
    """Return the text up to the end of its last whole member, with the brackets that are open there closed."""
    open_brackets: list[str] = []
    end = depth = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark[0] == '"':
            continue
        if mark in _CLOSERS:
            open_brackets.append(_CLOSERS[mark])
            if len(open_brackets) > _MOST_BRACKETS:
                break
            continue
        if mark == ",":
            end = token.start()
        elif open_brackets and open_brackets.pop() == mark:
            end = token.end()
        else:
            break
        depth = len(open_brackets)
        if not depth:
            break
    return text[:end] + "".join(reversed(open_brackets[:depth])) if end else ""


def describe_body(body: object, *, is_cut: bool = False) -> CallFinding | None:
    """Describe a parsed document; `is_cut` where its end is missing."""
    if isinstance(body, list):
        return _describe_list(body, is_cut=is_cut)
    if not isinstance(body, dict) or not body:
        return None
    error = error_of(body)
    rows = tuple(object_rows(body, limit=_DATA_CHARS)) if len(body) > 1 or not _is_short(body) else ()
    headline = _headline(body)
    if is_cut:
        headline = f"{headline} (the end is missing)"
    worth = 0.6 if error else _OBJECT_WORTH
    return CallFinding(
        f"ERROR {error}" if error else headline, rows, CallFacts(error=error), bool(error), worth, error, is_data=True
    )


def _is_short(body: Mapping[str, Any]) -> bool:
    return all(not isinstance(v, dict | list) and len(str(v)) <= 100 for v in body.values())


def _headline(body: Mapping[str, Any]) -> str:
    names = [k for k, v in list(body.items())[:60] if v not in (None, "", [], {}) and not is_dull(str(k), v)]
    scalars = [k for k in names if not isinstance(body[k], dict | list)]
    own_id = next((k for k in scalars if str(k).endswith("_id")), "")
    scalars.sort(key=lambda k: _RANK["id"] if k == own_id else _rank(str(k), body[k]))
    parts = [f"{k}: {one_line(str(body[k]), 60)}" for k in scalars[:7]]
    parts += [f"{k}: {count_noun(len(body[k]), 'item')}" for k in names if isinstance(body[k], list)][:3]
    if not parts:
        parts = object_rows(body, limit=140)[:1]
    return one_line(", ".join(parts), 140)


def _rank(name: str, value: object) -> int:
    if isinstance(value, str) and value.startswith("http"):
        return 70
    if value in (0, False) or name.endswith("_id"):
        return 60
    if name in _RANK:
        return _RANK[name]
    if name.endswith(("_at", "_time", "timestamp")):
        return 55
    return 45 if isinstance(value, int | float) else 50


def error_of(body: dict[str, Any]) -> str:
    """The error that an object reports, if any."""
    error = body.get("error") or body.get("errors") or body.get("error_message")
    if isinstance(error, dict):
        error = error.get("message") or error.get("code") or error.get("type")
    if isinstance(error, list):
        error = "; ".join(str(e.get("message", e) if isinstance(e, dict) else e)[:200] for e in error[:3])
    if isinstance(error, bool):
        error = body.get("message") if error else ""
    if not error and body.get("success") is False:
        error = body.get("message") or "no success"
    return one_line(str(error), 240) if error else ""


def _describe_list(body: Sequence[Any], *, is_cut: bool) -> CallFinding:
    if body and all(isinstance(x, list) for x in body):
        body = [y for x in body[:200] for y in x[:200]]
    rows = list_rows(body, limit=_DATA_CHARS)
    title = count_noun(len(body), "item") + (" of a longer list, which is cut" if is_cut else "")
    first = next((r for r in rows if not r.endswith(":")), "")
    headline = f"{title}: {one_line(first, 110)}" if first else title
    return CallFinding(headline, tuple(rows), CallFacts(), False, _LIST_WORTH, title, is_data=True)


def _read_fragment(view: OutputView) -> CallFinding | None:
    """The telling fields of a document that cannot be parsed."""
    pairs = [(m[1], m[2].strip('"')) for m in _STRING_FIELD.finditer(view.text[:60_000])]
    if not pairs:
        return None
    rows = [f"{k}: {one_line(v, 160)}" for k, v in dict.fromkeys(pairs)][:24]
    return CallFinding(
        f"JSON, {len(view.raw):,} characters; {', '.join(rows[:4])}",
        (one_line(", ".join(rows), 700),),
        CallFacts(),
        False,
        0.35,
    )
