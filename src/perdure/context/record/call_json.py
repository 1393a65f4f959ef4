"""JSON bodies reduced to the fields that tell something: ids, names, states, errors, amounts, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from perdure.context.record.call_text import CallFinding, OutputView, join_rows, one_line, parse_json
from perdure.context.record.types import CallFacts

_MAX_VALUES = 120
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
    pairs = list(_flatten(body))
    error = error_of(body)
    headline = one_line(", ".join(f"{k}: {v}" for k, v in _telling(pairs)[:6]), 130)
    text = ", ".join(f"{k}: {v}" for k, v in pairs)
    rows = (one_line(text, 900),) if len(pairs) > 1 else ()
    return CallFinding(
        f"ERROR {error}" if error else headline, rows, CallFacts(error=error), bool(error), 0.6 if error else 0.4
    )


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
    rows = []
    for item in body[:12]:
        if isinstance(item, dict):
            rows.append(one_line(", ".join(f"{k}: {v}" for k, v in _telling(list(_flatten(item)))[:6]), 200))
        else:
            rows.append(one_line(str(item), 160))
    if len(body) > 12:
        rows.append(f"… {len(body) - 12} more")
    headline = f"{len(body)} items" + (f", first {one_line(rows[0], 100)}" if rows else "")
    return CallFinding(headline, tuple(join_rows(rows, limit=900)), CallFacts(), False, 0.35)


def _telling(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(pairs, key=lambda p: _rank(p[0].rsplit(".", 1)[-1]) + 20 * p[0].count("."))


def _rank(name: str) -> int:
    return _RANK["id"] if name.endswith("_id") else _RANK.get(name, 50)


def _flatten(body: object) -> Iterator[tuple[str, str]]:
    """Every scalar with its dotted name, outermost first, without what is never of interest; bounded."""
    waiting: list[tuple[str, object]] = [("", body)]
    total = 0
    while waiting and total < _MAX_VALUES:
        name, value = waiting.pop(0)
        if isinstance(value, dict):
            inner = [
                (f"{name}.{k}" if name else str(k), v) for k, v in list(value.items())[:60] if not _DULL.search(str(k))
            ]
            waiting[:0] = [p for p in inner if not isinstance(p[1], dict | list)]
            waiting += [p for p in inner if isinstance(p[1], dict | list)]
        elif isinstance(value, list):
            if all(not isinstance(x, dict | list) for x in value[:20]):
                total += 1
                yield (
                    name,
                    one_line(
                        "[" + ", ".join(str(x)[:80] for x in value[:20]) + ("…]" if len(value) > 20 else "]"), 300
                    ),
                )
            else:
                waiting += [(f"{name}[{n}]", x) for n, x in enumerate(value[:8])]
        elif value is not None and value != "":
            total += 1
            yield name, one_line(str(value), 200)


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
