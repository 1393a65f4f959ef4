"""The ledger of exact facts: what was used in calls, said by whom, how recently and how often.

A summary drops most of the paths, ids and names that an agent goes on to need. Code can know better: `facts_of` reads
each message once, `Ledger` weighs what it read, and `lines_for` quotes, within a budget, the pieces of the sources in
which the weightiest facts stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.context.fact_scan import scan
from perdure.core.messages import Message
from perdure.redaction import redact


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """The facts of one message: those in its text, and those in the arguments of its calls."""

    message: Message
    said: frozenset[str]
    used: frozenset[str]
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class FactLines:
    """Lines for Critical Context and for Relevant Files."""

    critical: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join((*self.files, *self.critical))


def facts_of(message: Message) -> MessageFacts:
    """The facts of a message. Pure, so that it can be kept beside the message."""
    arguments = "\n".join(leaf for call in message.tool_calls for leaf in argument_leaves(call.arguments))
    return MessageFacts(message, scan(message.text), scan(arguments) if arguments else frozenset(), arguments)


def argument_leaves(arguments: str) -> list[str]:
    """Every value in a call's JSON arguments as text, keys left out; arguments that are not JSON are one value."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return [arguments]
    found: list[str] = []
    waiting: list[Any] = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        elif value is not None:
            found.append(str(value))
    return found


class Ledger:
    """Facts weighed over a stretch of messages."""

    def __init__(self, entries: Iterable[MessageFacts] = ()) -> None:
        self._entries = list(entries)

    @classmethod
    def collect(cls, entries: Iterable[MessageFacts], previous: object = None) -> Ledger:
        return cls(entries)

    def lines_for(
        self, *, budget_chars: int | None = None, budget_tokens: int | None = None, already: str = ""
    ) -> FactLines:
        """The weightiest facts that do not stand in `already`, quoted from their sources, within the budget."""
        room = min(budget_chars or 1 << 30, 3 * budget_tokens if budget_tokens is not None else 1 << 30)
        weights: dict[str, float] = {}
        for place, entry in enumerate(self._entries):
            recency = 0.3 + 0.7 * place / max(1, len(self._entries))
            for fact in entry.used:
                weights[fact] = weights.get(fact, 0) + 4 * recency
            for fact in entry.said:
                weights[fact] = weights.get(fact, 0) + recency
        critical: list[str] = []
        for fact in sorted(weights, key=weights.__getitem__, reverse=True):
            line = f"- {redact(fact)}"
            if fact in already:
                continue
            if (room := room - len(line) - 1) < 0:
                break
            critical.append(line)
        return FactLines(tuple(critical))
