"""Extract the facts of a message by where they occur, and the targets of its calls; cached per entry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.context.facts.extraction import LONGEST, PLACES, kind_of, scan
from perdure.core.messages import Entry, Message, TextPart
from perdure.redaction import are_clean, redact

# Memo key of an entry's facts.
FACTS_KEY = "facts"
# Characters to scan for secrets in one batch.
_MOST_TOGETHER = 100_000


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
    """Extract the facts of a message. Pure, so the result can be cached."""
    return _facts_of(without_secrets(message))


def facts_in(entry: Entry) -> MessageFacts:
    """The cached facts of an entry."""
    facts: MessageFacts | None = entry.memoized(FACTS_KEY)
    return facts or entry.memo(FACTS_KEY, facts_of)


def read_facts(entries: Iterable[Entry]) -> None:
    """Extract and cache the facts of many entries in batches."""
    for group in _together([e for e in entries if e.memoized(FACTS_KEY) is None]):
        # Secrets are rare: scan many texts at once, and one by one only after a match.
        is_clean = len(group) > 1 and are_clean(t for e in group for t in _texts(e.message))
        for entry in group:
            entry.memo(FACTS_KEY, _facts_of if is_clean else facts_of)


def _together(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    group: list[Entry] = []
    chars = 0
    for entry in entries:
        group.append(entry)
        chars += sum(map(len, _texts(entry.message)))
        if chars >= _MOST_TOGETHER:
            yield group
            group, chars = [], 0
    if group:
        yield group


def _texts(message: Message) -> list[str]:
    """The texts of a message to scan for secrets."""
    content = message.content
    parts = [content] if isinstance(content, str) else [p.text for p in content or () if isinstance(p, TextPart)]
    return parts + [c.arguments for c in message.tool_calls]


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


def without_secrets(message: Message) -> Message:
    """Redact a message before truncation: half a URL with a password would not be recognised."""
    content = message.content
    if isinstance(content, str):
        content = redact(content)
    elif content is not None:
        content = tuple(replace(p, text=redact(p.text)) if isinstance(p, TextPart) else p for p in content)
    arguments = [redact(c.arguments) for c in message.tool_calls]
    if content == message.content and arguments == [c.arguments for c in message.tool_calls]:
        return message
    calls = tuple(replace(c, arguments=a) for c, a in zip(message.tool_calls, arguments, strict=True))
    return replace(message, content=content, tool_calls=calls)


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
