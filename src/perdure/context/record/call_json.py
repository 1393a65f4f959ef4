"""JSON bodies reduced to their informative fields: ids, names, states, errors, amounts, links."""

from __future__ import annotations

import re
from typing import Any

from perdure.context.record.call_text import CallFinding, OutputView, count_noun, join_rows, one_line, parse_json
from perdure.context.record.types import CallFacts

_BODY_CHARS = 950
_MAX_DEPTH = 4
_TELLING = (
    "error", "errors", "error_message", "message", "detail", "id", "number", "key", "name", "full_name", "title",
    "subject", "login", "status", "state", "conclusion", "code", "html_url", "url", "path", "ref", "branch", "sha",
    "type", "version", "count", "total", "amount", "price", "date", "created_at", "result", "summary", "description",
    "snippet",
)  # fmt: skip
_RANK = {name: rank for rank, name in enumerate(_TELLING)}
_DULL = re.compile(r"(?i)(?:_url|^node_id|avatar|gravatar|^etag|_links|permissions|^site_admin|^events|user_view_type)")
_STRING_FIELD = re.compile(
    r'"(error|message|status|state|id|number|name|title|html_url|code)"\s*:\s*("(?:[^"\\]|\\.){0,200}"|-?\d+|true|false|null)'
)


def read_json(view: OutputView) -> CallFinding | None:
    """Describe a result that is a JSON document, or contains little else; None for other texts."""
    text = view.raw.strip() if len(view.raw) < 400_000 else view.raw[:2_000].lstrip()
    if not text or text[0] not in "{[":
        return None
    body = parse_json(text)
    if body is None:
        return _read_fragment(view) if len(view.raw) > 2_000 else None
    return describe_body(body)


def describe_body(body: object) -> CallFinding | None:
    if isinstance(body, list):
        return _describe_list(body)
    if not isinstance(body, dict) or not body:
        return None
    error = error_of(body)
    scalars = {k: v for k, v in body.items() if not isinstance(v, dict | list)} or body
    headline = one_line(", ".join(_pairs(scalars, ranked=True)[:7]), 140)
    rows = (render_value(body, _BODY_CHARS),) if len(body) > 1 else ()
    facts = CallFacts(error=error)
    return CallFinding(f"ERROR {error}" if error else headline, rows, facts, bool(error), 0.6 if error else 0.4, error)


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


def _describe_list(body: list[Any]) -> CallFinding | None:
    if body and all(isinstance(x, list) for x in body):
        body = [y for x in body[:200] for y in x[:200]]
    rows = [
        one_line(", ".join(_pairs(x, ranked=True)[:6]) if isinstance(x, dict) else render_value(x, 160), 200)
        for x in body[:12]
    ]
    if len(body) > 12:
        rows.append(f"… {len(body) - 12} more")
    title = count_noun(len(body), "item")
    headline = title + (f", first {one_line(rows[0], 100)}" if rows else "")
    if len(body) <= 12 and (columns := _table(body)):
        rows = [columns]
    return CallFinding(
        headline, tuple(join_rows(rows, limit=_BODY_CHARS, row_chars=_BODY_CHARS)), CallFacts(), False, 0.35, title
    )


def render_value(value: object, limit: int, depth: int = 0) -> str:
    """A value as short text: names and scalars, without what is never of interest; lists of like objects as a table."""
    if isinstance(value, dict):
        pairs = _pairs(value, depth=depth)
        text = ", ".join(pairs) if depth == 0 else f"({', '.join(pairs)})"
    elif isinstance(value, list):
        columns = _table(value) if depth < _MAX_DEPTH else ""
        items = "; ".join(render_value(x, 120, depth + 1) for x in value[:12]) if depth < _MAX_DEPTH else "…"
        more = f"; … {len(value) - 12} more" if len(value) > 12 else ""
        text = columns or f"[{items}{more}]"
    else:
        text = str(value)
    return one_line(text, limit)


def _pairs(body: dict[str, Any], *, ranked: bool = False, depth: int = 0) -> list[str]:
    """The members of an object as "name: value", scalars before containers."""
    names = [k for k in list(body)[:60] if body[k] not in (None, "", [], {}) and not _DULL.search(str(k))]
    if ranked:
        names.sort(key=lambda k: _rank(str(k)) + (8 if body[k] in (0, False) else 0))
    else:
        names.sort(key=lambda k: isinstance(body[k], dict | list))
    if depth >= _MAX_DEPTH:
        return ["…"]
    return [f"{k}: {render_value(body[k], 300 if isinstance(body[k], dict | list) else 160, depth + 1)}" for k in names]


def _table(items: list[Any]) -> str:
    """Objects with the same names as one header and a row each; "" for other lists."""
    if len(items) < 2 or not all(isinstance(x, dict) for x in items):
        return ""
    names = [k for k in items[0] if not _DULL.search(str(k))][:12]
    if not names or any(set(x) != set(items[0]) for x in items[:12]):
        return ""
    rows = [
        "/".join(render_value(x[k], 140 if str(x[k]).startswith("http") else 60, 3) for k in names) for x in items[:12]
    ]
    more = f" | … {len(items) - 12} more" if len(items) > 12 else ""
    return f"({'/'.join(map(str, names))}) {' | '.join(rows)}{more}"


def _rank(name: str) -> int:
    if name.endswith("_id"):
        return _RANK["id"]
    return 55 if name.endswith(("_at", "_time", "timestamp")) else _RANK.get(name, 50)


def _read_fragment(view: OutputView) -> CallFinding | None:
    """The telling fields of a document that is cut off or too large to parse."""
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
