"""Calls of services, such as bookings, orders and tickets: which of them change something, and the values that matter.

The response of a service is an object of a dozen members, most of which repeat the request. The line of a call has the
values that its arguments do not have: states, amounts, identifiers, dates and names before anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.context.tool_calls.call_line import NO_FACTS, CallFacts
from perdure.context.tool_calls.json_results import is_dull
from perdure.context.tool_calls.output import count_noun, one_line

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_CHANGES = re.compile(
    r"(?i)(?:accept|activate|add|apply|approve|archive|assign|award|ban|block|book|buy|cancel|change|charge|close"
    r"|complete|confirm|create|credit|deactivate|debit|decline|delete|deliver|disable|discount|dispatch|email|enable"
    r"|enroll|escalate|exchange|extend|file|forward|grant|invite|issue|lock|mark|merge|modify|move|notify|open|order"
    r"|pause|pay|place|post|publish|purchase|put|refund|register|reject|release|remove|rename|renew|reopen|reply|report"
    r"|reschedule|reserve|reset|resolve|restore|resume|return|revoke|save|schedule|send|set|ship|sign|start|stop|submit"
    r"|subscribe|swap|transfer|unblock|unlock|unsubscribe|update|upgrade|upload|withdraw|write)"
)
_THINKING = frozenset(("think", "thinking", "thought", "reflect", "scratchpad", "sequentialthinking"))
# What a member is about, by the words of its name, in the order of a line; personal data and origins come last.
_TOPICS: Sequence[tuple[int, re.Pattern[str]]] = tuple(
    (rank, re.compile(rf"(?i)(?:{words})s?"))
    for rank, words in (
        (0, "error|reason|warning"),
        (1, "status|state|result|outcome|confirm(?:ation|ed)|approved"),
        (9, "created|updated|modified|email|phone|address|zip|province|country|dob|birth|url|source|user|customer"),
        (2, "id|number|code|reference|order|reservation|booking|ticket|item|key"),
        (3, "total|amount|balance|price|refund|fee|cost|paid|payment|charge|discount|tax|quantity|count"),
        (4, "date|time|departure|arrival|due|expir(?:es|y)|start|end|deadline|scheduled|flights"),
        (5, "name|first|last|title|membership|tier|level|plan|class|cabin|passenger|type|origin|destination"),
    )
)
_OTHER_TOPIC = 6
# A value other than the one that was asked for comes right behind errors and states.
_DIFFERING_RANK = 1.2
# Lists come behind single values of like topics; lists of payments and states have their amounts only there.
_NESTED_RANKS = 0.5
_LAST_SINGLE_TOPIC = 3
_MAX_ITEMS = 12
_VALUE_CHARS = 60
_DEPTH = 3


def is_change(name: str) -> bool:
    """Return whether a tool changes something by its name: it books, cancels, sends, pays."""
    words = _WORDS.findall(name.rsplit("__", 1)[-1].rsplit(".", 1)[-1])
    return bool(words) and _CHANGES.fullmatch(words[0]) is not None


def is_thinking(name: str) -> bool:
    """Return whether a tool only takes down a thought."""
    return "".join(_WORDS.findall(name.rsplit("__", 1)[-1])).lower() in _THINKING


def compact_value(value: object, limit: int) -> str:
    """Return a value in one line: the values of an object without their names, the items of a list apart."""
    return one_line(_compact(value, 0), limit)


def _compact(value: object, depth: int) -> str:
    if isinstance(value, Mapping):
        if depth >= _DEPTH:
            return "…"
        return " ".join(filter(None, (_compact(v, depth + 1) for k, v in value.items() if not is_dull(str(k), v))))
    if isinstance(value, list | tuple):
        texts = list(filter(None, (_compact(v, depth + 1) for v in value[:_MAX_ITEMS])))
        more = f" … {len(value) - _MAX_ITEMS} more" if len(value) > _MAX_ITEMS else ""
        return (" | " if any(" " in t for t in texts) else ", ").join(texts) + more
    if value is None or value == "":
        return ""
    return str(value).lower() if isinstance(value, bool) else one_line(str(value), 4 * _VALUE_CHARS)


def service_values(body: Mapping[str, Any], arguments: Mapping[str, Any], limit: int) -> str:
    """Return the members of a response that the request does not name, the most telling first, within `limit`."""
    argument_values = set(_scalars(arguments, 0))
    members = [(k, v) for k, v in list(body.items())[: _MAX_ITEMS * 4] if v not in (None, "", [], {})]
    members = [
        (k, v) for k, v in members if not is_dull(str(k), v) and (_is_nested(v) or str(v) not in argument_values)
    ]
    differing = {k for k, v in members if not _is_nested(v) and _differs(v, arguments.get(k))}
    members.sort(key=lambda m: _DIFFERING_RANK if m[0] in differing else _rank(str(m[0]), m[1]))
    parts: list[str] = []
    room = limit
    for name, value in members:
        text = f"{name}: {_member(value) if _is_nested(value) else one_line(_compact(value, 0), _VALUE_CHARS)}"
        if name in differing:
            # What was asked for and what came of it are not the same.
            text += f" (not {one_line(str(arguments[name]), _VALUE_CHARS)})"
        if _is_nested(value) and len(members) > 1:
            # One list leaves the other members their room.
            share = 2 * limit // 3 if _topic(name) <= _LAST_SINGLE_TOPIC else limit // 2
            text = one_line(text, max(_VALUE_CHARS, share))
        if len(text) > room:
            text = f"{name}: {count_noun(len(value), 'item')}" if isinstance(value, list) else ""
        if text and len(text) <= room:
            parts.append(text)
            room -= len(text) + 2
    return ", ".join(parts)


def _differs(value: object, requested: object) -> bool:
    """Whether a response has another value than the request gave to the same member, upper case and blanks aside."""
    if requested in (None, "") or _is_nested(requested) or isinstance(value, bool) != isinstance(requested, bool):
        return False
    return str(value).casefold().strip() != str(requested).casefold().strip()


def _member(value: object) -> str:
    if isinstance(value, Mapping) and value and all(isinstance(v, Mapping) for v in value.values()):
        # An object by keys: its members name themselves, often by the same value again.
        rows = ({"key": k, **{n: x for n, x in v.items() if not k.startswith(str(x))}} for k, v in value.items())
        return _compact(list(rows), 0)
    return _compact(value, 0)


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping | list)


def _rank(name: str, value: object) -> float:
    topic = _topic(name)
    return topic + (_NESTED_RANKS if _is_nested(value) and topic > _LAST_SINGLE_TOPIC else 0.0)


def _topic(name: str) -> int:
    """Return what a member is about; a total of something else than money is about that thing."""
    words = _WORDS.findall(name)
    if len(words) > 1 and words[0].lower() in ("total", "count", "number"):
        words = words[1:]
    return next((rank for rank, topic in _TOPICS if any(map(topic.fullmatch, words))), _OTHER_TOPIC)


def _scalars(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple) and depth < _DEPTH:
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _scalars(item, depth + 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


_NUMBER = re.compile(r'"(?:number|iid)"\s*:\s*(\d{1,12})')
_IDENTIFIER = re.compile(r'"(?:key|id|\w+_id)"\s*:\s*"?([\w.#-]{1,60})')
_CREATES = re.compile(r"(?i)^(?:create|add|open|book|submit|post|send|new)_?(\w*)$")


def stopped_by(name: str, arguments: Mapping[str, Any]) -> CallFacts:
    """Return the process or agent that a call stopped."""
    is_stop = str(arguments.get("action")) in ("kill", "stop", "terminate") or name in (
        "KillShell",
        "KillBash",
        "TaskStop",
    )
    identifier = next(
        (str(v) for k in ("process_id", "shell_id", "task_id", "id", "pid") if (v := arguments.get(k))), ""
    )
    return CallFacts(stopped_process=identifier) if is_stop else NO_FACTS


def created_by(name: str, arguments: Mapping[str, Any], result: str) -> CallFacts:
    """Return what a tool such as `create_pull_request` created, by the id in its result."""
    base = name.rsplit("__", 1)[-1]
    match = _CREATES.match(base)
    if match is None:
        return NO_FACTS
    head = result[:4_000]
    number = _NUMBER.search(head) or _IDENTIFIER.search(head) or re.search(r"#(\d+)\b", head[:400])
    title = next((v for k in ("title", "name", "subject", "summary") if isinstance(v := arguments.get(k), str)), "")
    if number is None and not title:
        return NO_FACTS
    thing = match[1].replace("_", " ").strip() or "item"
    thing = {"pull request": "PR #", "merge request": "MR !", "issue": "issue #"}.get(thing, f"{thing} ")
    label = f"{thing}{number[1]}" if number is not None else thing.strip("#! ")
    return CallFacts(created=(f"{label}: {title}" if title else label,))
