"""Extract the facts of a message by where they occur, and the targets of its calls; cached per entry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.context.facts.extraction import LONGEST, PLACES, kind_of, scan
from perdure.context.record.redacted import redact_entries, redact_message, redacted
from perdure.core.messages import Entry, Message

# Memo key of an entry's facts.
FACTS_KEY = "facts"


@dataclass(frozen=True, slots=True)
class CallTarget:
    """The target of a call: its path, URL or command."""

    call_id: str
    tool: str
    target: str


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """Facts of a message: in its text, in call arguments, in short arguments, and those that are a whole argument."""

    message: Message
    mentioned: frozenset[str]
    used: frozenset[str] = frozenset()
    brief: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    arguments: str = ""
    calls: tuple[CallTarget, ...] = ()

    @property
    def role(self) -> str:
        """The kind for handoffs and notes, whose role is borrowed; else the role."""
        return self.message.kind if self.message.kind in ("handoff", "note") else self.message.role


def facts_of(message: Message) -> MessageFacts:
    """Extract the facts of a message without its secrets. Pure, so the result can be cached."""
    return _facts_of(redact_message(message))


def facts_in(entry: Entry) -> MessageFacts:
    """The cached facts of an entry."""
    facts: MessageFacts | None = entry.memoized(FACTS_KEY)
    return facts or entry.memo(FACTS_KEY, lambda _: _facts_of(redacted(entry)))


def read_facts(entries: Iterable[Entry]) -> None:
    """Extract and cache the facts of many entries, redacted in batches."""
    unread = [e for e in entries if e.memoized(FACTS_KEY) is None]
    redact_entries(unread)
    for entry in unread:
        facts_in(entry)


def _facts_of(message: Message) -> MessageFacts:
    if not message.tool_calls:
        return MessageFacts(message, scan(message.text))
    values_by_call = [argument_values(c.arguments) for c in message.tool_calls]
    short = [v for values in values_by_call for v in values if len(v) <= LONGEST and "\n" not in v]
    arguments = "\n".join(v for values in values_by_call for v in values)
    used = scan(arguments)
    brief = scan("\n".join(short)) if len(short) < sum(map(len, values_by_call)) else used
    whole = used.intersection(v.strip().rstrip("/") for v in short)
    calls = tuple(
        CallTarget(c.id, c.name, identifying_value(v)) for c, v in zip(message.tool_calls, values_by_call, strict=True)
    )
    return MessageFacts(message, scan(message.text), used, brief, whole, arguments, calls)


def argument_values(arguments: str) -> list[str]:
    """Every value in JSON arguments as text, without keys; invalid JSON is one value."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return [arguments]
    values: list[str] = []
    waiting: list[Any] = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        elif value is not None:
            values.append(str(value))
    return values


def identifying_value(values: list[str]) -> str:
    """The value that identifies a call: a whole path or URL, else the first line of the first value."""
    for value in values:
        if len(value) <= LONGEST and len(value.split()) == 1 and kind_of(value) in PLACES:
            return value
    return next((v.strip().split("\n", 1)[0][:120] for v in values if v.strip()), "")
