"""JSON bodies reduced to their values: an object as "name: value" pairs, a list of like objects as a table.

What is never referred to again, such as hashes and links to the object itself, is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from perdure.context.text import split_sentences
from perdure.context.tool_calls.call_line import NO_FACTS, CallFacts
from perdure.context.tool_calls.output import CallFinding, OutputView, count_noun, one_line, parse_json

# Members that name an object.
LABELS = (
    "title", "full_name", "name", "login", "username", "key", "subject", "path", "filename", "number", "id", "sha",
    "email",
)  # fmt: skip
_DULL = re.compile(
    r"(?i)(?:_url$|^node_id|avatar|gravatar|^etag|_links|^permissions|^site_admin|^events|user_view_type|signature"
    r"|^payload$|^verification$|favicon|thumbnail|_nodeid$|^tree$|^parents$|checksum|^blob|base64|^raw_content$"
    r"|performed_via|^reactions$|^author_association$)"
)
_PAGE_ADDRESSES = frozenset(("html_url", "web_url", "permalink"))
_TEXTS = ("snippet", "description", "content", "summary", "text", "body", "excerpt", "message", "title")
# A longer one is shown by its host.
_LONGEST_ADDRESS = 160
_ADDRESSES = ("url", "link", "href")
_DATES = ("date", "published", "published_date", "publishedDate", "published_at", "page_age", "age", "datetime")
_BLOB = re.compile(r"[A-Za-z0-9+/=_-]{100,}")
_HASH = re.compile(r"[0-9a-f]{32,64}")
_MAX_DEPTH = 3
_MAX_MEMBERS = 80
_MAX_ITEMS = 60
_MAX_COLUMNS = 14
_CELL_CHARS = 48
_TEXT_CELL_CHARS = 130
_VALUE_CHARS = 200
_ROW_CHARS = 300
_EXCERPT_CHARS = 260
_LONGEST_EXCERPT = 4_000
_TITLE_END = re.compile(r" [-|–—·] |\.\.\.|…")
# Past the first word of a sentence, which is always in upper case.
_NAME_OR_NUMBER = re.compile(r"(?<=\s)[^\w\s]{0,2}[A-Z]\w+|\d")
# Rows up to this length share a line.
_SHORT_ROW_CHARS = 70
_MISSING = "–"
# An object with fewer members is shown as "a.b".
_LEAST_GROUP = 4

Row = dict[str, str]


def is_dull(name: str, value: object) -> bool:
    """Whether a member is of no interest to a reader: addresses of an API, signatures, pictures, rights."""
    if _DULL.search(name) is not None and name not in _PAGE_ADDRESSES:
        return True
    if not isinstance(value, str):
        return False
    return value.startswith(("https://api.", "data:")) or (len(value) >= 100 and _BLOB.fullmatch(value) is not None)


def object_rows(body: Mapping[str, Any], *, limit: int) -> list[str]:
    """Return an object in at most about `limit` characters: scalars, lists, and addresses if there is room."""
    pairs: list[str] = []
    addresses: list[str] = []
    blocks: list[tuple[str, Sequence[Any]]] = []
    groups = {n: g for n, v in list(body.items())[:_MAX_MEMBERS] if isinstance(v, dict) and (g := _group(n, v))}
    for name, value in _members({n: v for n, v in body.items() if n not in groups or is_dull(n, v)}):
        if isinstance(value, list):
            blocks.append((name, value))
        elif isinstance(value, dict):
            blocks.append((name, _keyed_items(value)))
        else:
            text = f"{name}: {_scalar(value, _VALUE_CHARS)}"
            (addresses if text.startswith(f"{name}: http") else pairs).append(text)
    pairs += [g for n, g in groups.items() if not is_dull(n, body[n])]
    rows = _pack_rows(pairs, ", ", limit)
    room = limit - sum(map(len, rows))
    for position, (name, items) in enumerate(blocks):
        share = max(room // (len(blocks) - position), 80)
        block = _block(name, items, share)
        if sum(map(len, block)) > max(room, 80):
            break
        rows += block
        room -= sum(map(len, block)) + len(block)
    if addresses and room > len(addresses[0]):
        rows += _pack_rows(addresses, ", ", room)
    return rows


def _block(name: str, items: Sequence[Any], limit: int) -> list[str]:
    """Return a list under its name, in one line where that is short."""
    if not any(isinstance(x, dict | list) for x in items):
        text = f"{name} ({len(items)}): {', '.join(_scalar(x, 80) for x in items[:_MAX_ITEMS])}"
        return [one_line(text, limit)]
    rows = list_rows(items, limit=limit - len(name) - 8)
    head = name if len(items) == 1 else f"{name} ({len(items)})"
    if len(rows) > 1 and rows[0].endswith("):") and len(rows[0]) + len(rows[1]) <= _ROW_CHARS:
        rows[:2] = [f"{rows[0]} {rows[1]}"]
    return [f"{head}: {rows[0]}", *(f"  {r}" for r in rows[1:])] if rows else []


def _group(name: str, value: Mapping[str, Any]) -> str:
    """Return an object of several scalars under its name; "" for any other."""
    if len(value) < _LEAST_GROUP or any(isinstance(v, dict | list) for v in value.values()):
        return ""
    pairs = [f"{n}: {_scalar(v, 80)}" for n, v in _members(value, depth=1)]
    return f"{name} ({', '.join(pairs)})" if pairs else ""


def _members(body: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the members worth showing; those of a nested object as "a.b"."""
    has_page = any(n in body for n in _PAGE_ADDRESSES)
    for name, value in list(body.items())[:_MAX_MEMBERS]:
        if value in (None, "", [], {}) or is_dull(str(name), value) or (has_page and name == "url"):
            continue
        path = f"{prefix}{name}"
        if isinstance(value, dict):
            if _keyed_items(value):
                yield path, value
            elif depth < _MAX_DEPTH:
                yield from _members(value, f"{path}.", depth + 1)
        elif not (depth > 0 and isinstance(value, str) and (value.startswith("http") or _HASH.fullmatch(value))):
            yield path, value


def _keyed_items(value: Mapping[str, Any]) -> list[Any]:
    """Return the objects of a mapping from keys to like objects, each with its key; [] for any other object."""
    items = list(value.items())[:_MAX_ITEMS]
    if len(items) < 2 or not all(isinstance(v, dict) and v for _, v in items):
        return []
    names = set(items[0][1])
    if sum(len(names & set(v)) >= max(1, len(names) // 2) for _, v in items) < len(items):
        return []
    return [{"key": k, **{n: x for n, x in v.items() if x != k}} for k, v in items]


def list_rows(items: Sequence[Any], *, limit: int) -> list[str]:
    """Return the items of a list in at most about `limit` characters; the last row counts those that did not fit."""
    first = items[:_MAX_ITEMS]
    if not first:
        return []
    if not all(isinstance(x, dict) for x in first):
        texts = ["; ".join(object_rows(x, limit=_ROW_CHARS)) if isinstance(x, dict) else _scalar(x, 160) for x in first]
        return _pack_rows(texts, "; ", limit, total=len(items))
    if len(first) == 1:
        return object_rows(first[0], limit=limit)
    if all(_is_hit(x) for x in first):
        return _pack_rows([_format_hit(x) for x in first], "\n", limit, total=len(items))
    return _table(items, [_flat(x) for x in first], limit)


def _is_hit(item: Mapping[str, Any]) -> bool:
    """Whether an object is a hit of a web search: a title with an address and perhaps an excerpt."""
    has_title = isinstance(item.get("title") or item.get("name"), str)
    address = _first(item, _ADDRESSES)
    return has_title and address.startswith("http") and len(item) <= 12 and "id" not in item and "number" not in item


def _format_hit(item: Mapping[str, Any]) -> str:
    address = _first(item, _ADDRESSES)
    if len(address) > _LONGEST_ADDRESS:
        address = urlsplit(address).netloc.removeprefix("www.")
    title = one_line(str(item.get("title") or item.get("name")), 120)
    source = ", ".join(filter(None, (address, _first(item, _DATES))))
    text = one_line(_telling_excerpt(_first(item, _TEXTS[:-1]), title), _EXCERPT_CHARS)
    return f"{title} ({source}){f': {text}' if text else ''}"


def _telling_excerpt(excerpt: str, title: str) -> str:
    """Return an excerpt without its title; of one that has to be cut, from its first telling sentence on."""
    excerpt = excerpt.removeprefix(title)
    if len(excerpt) <= _EXCERPT_CHARS:
        return excerpt
    pieces = split_sentences(" ".join(excerpt[:_LONGEST_EXCERPT].split()))
    # Behind a dash or a bar the name of the site follows.
    heading = _TITLE_END.split(title, maxsplit=1)[0].strip(" .…").lower()
    start = 0
    while heading and start < len(pieces) - 1 and heading in pieces[start].lower():
        start += 1
    while start and start < len(pieces) - 1 and _NAME_OR_NUMBER.search(pieces[start]) is None:
        start += 1
    return f"… {' '.join(pieces[start:])}" if start else excerpt


def _first(item: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((v for n in names if isinstance(v := item.get(n), str) and v), "")


def _flat(item: Mapping[str, Any]) -> Row:
    row: Row = {}
    for name, value in _members(item):
        if isinstance(value, dict):
            continue
        is_text = name.rpartition(".")[2] in _TEXTS
        limit = _TEXT_CELL_CHARS if is_text else _CELL_CHARS
        if isinstance(value, list):
            names = [_label(x) if isinstance(x, dict) else _scalar(x, 30) for x in value[:8]]
            more = f" +{len(value) - 8}" if len(value) > 8 else ""
            row[name] = one_line(", ".join(filter(None, names)), 120) + more
        elif not (isinstance(value, str) and value.startswith("http")):
            text = str(value).split("\n", 1)[0] if is_text else _scalar(value, limit)
            row[name] = text[:12] if _HASH.fullmatch(text) else one_line(text, limit)
    return row


def _label(item: Mapping[str, Any]) -> str:
    return next((_scalar(item[n], 40) for n in LABELS if item.get(n) not in (None, "")), "")


def _table(items: Sequence[Any], rows: Sequence[Row], limit: int) -> list[str]:
    """Rows under the names of their columns; what all rows have in common is shown once."""
    names = list(dict.fromkeys(n for r in rows for n in r))
    names = [n for n in names if not _is_secondary(n, names)]
    rows = [{n: r[n] for n in names if n in r} for r in rows]
    if sum(len(r) for r in rows) < 0.5 * len(names) * len(rows):
        texts = [", ".join(f"{k}: {v}" for k, v in r.items()) for r in rows]
        return _pack_rows([one_line(t, _ROW_CHARS) for t in texts if t], "\n", limit, total=len(items))
    shared = [n for n in names if len({r.get(n, _MISSING) for r in rows}) == 1]
    columns: dict[tuple[str, ...], str] = {}
    for name in names:
        if name not in shared:
            columns.setdefault(tuple(r.get(name, _MISSING) for r in rows), name)
    chosen = sorted(columns.values(), key=_column_rank)[:_MAX_COLUMNS]
    if not chosen:
        return [f"each {', '.join(f'{n}: {rows[0][n]}' for n in shared if n in rows[0])}"]
    same = ", ".join(f"{n}: {rows[0][n]}" for n in shared[:8] if rows[0].get(n) not in (None, "0", "false"))
    each = [one_line(f"each {same}", 200)] if same else []
    if len(chosen) == 1:
        texts = [r.get(chosen[0], _MISSING) for r in rows]
        lines = _pack_rows(texts, ", ", limit, total=len(items))
        return [f"{chosen[0]}: {lines[0]}", *lines[1:], *each]
    if len(chosen) == 2:
        texts = [f"{r.get(chosen[0], _MISSING)} ({r.get(chosen[1], _MISSING)})" for r in rows]
        lines = _pack_rows(texts, ", ", limit, total=len(items))
        return [f"{chosen[0]} ({chosen[1]}): {lines[0]}", *lines[1:], *each]
    texts = [" / ".join(r.get(n, _MISSING) for n in chosen) for r in rows]
    is_short = all(len(t) <= _SHORT_ROW_CHARS for t in texts)
    lines = _pack_rows(texts, " | " if is_short else "\n", limit - 60, total=len(items))
    return [f"({' / '.join(chosen)}):", *lines, *each]


def _is_secondary(name: str, names: Sequence[str]) -> bool:
    """Whether a column only repeats in another form who or what the row is about."""
    parent, _, leaf = name.rpartition(".")
    if leaf in ("id", "type"):
        return bool(parent) or "login" in names or "number" in names
    return bool(parent) and leaf in ("email", "created_at", "updated_at")


def _column_rank(name: str) -> int:
    """Labels first, then figures, dates and states; personal data and hashes last."""
    leaf = name.rpartition(".")[2]
    if leaf in ("id", "email", "type"):
        return 60
    if leaf in LABELS:
        return LABELS.index(leaf) + 10 * name.count(".")
    return 50 if leaf in _TEXTS else 30 + 5 * name.count(".")


def _pack_rows(texts: Sequence[str], separator: str, limit: int, *, total: int = 0) -> list[str]:
    """Return texts as rows of some hundred characters (one each for a newline) within `limit`; the rest is counted."""
    rows: list[str] = []
    used = 0
    for number, text in enumerate(texts):
        if rows and used + len(text) > limit:
            rows.append(f"… {max(total, len(texts)) - number} more")
            return rows
        used += len(text) + len(separator)
        if rows and separator != "\n" and len(rows[-1]) + len(text) <= _ROW_CHARS:
            rows[-1] += separator + text
        else:
            rows.append(text)
    if total > len(texts):
        rows.append(f"… {total - len(texts)} more")
    return rows


def _scalar(value: object, limit: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return one_line("; ".join(object_rows(value, limit=limit)), limit)
    if isinstance(value, list):
        return one_line(f"[{', '.join(_scalar(x, 60) for x in value[:12])}]", limit) if value else count_noun(0, "item")
    return one_line(str(value), limit)


_DATA_CHARS = 1_900
# A document that is cut off is read up to here.
_CUT_CHARS = 120_000
# A string that is cut off goes to the end of the document.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
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
        closed = _close_brackets(text)
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


def _close_brackets(text: str) -> str:
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
    """Return the error that an object reports, if any."""
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
    return CallFinding(headline, tuple(rows), NO_FACTS, False, _LIST_WORTH, title, is_data=True)


def _read_fragment(view: OutputView) -> CallFinding | None:
    """Return the telling fields of a document that cannot be parsed."""
    pairs = [(m[1], m[2].strip('"')) for m in _STRING_FIELD.finditer(view.text[:60_000])]
    if not pairs:
        return None
    rows = [f"{k}: {one_line(v, 160)}" for k, v in dict.fromkeys(pairs)][:24]
    return CallFinding(
        f"JSON, {len(view.raw):,} characters; {', '.join(rows[:4])}",
        (one_line(", ".join(rows), 700),),
        NO_FACTS,
        False,
        0.35,
    )
