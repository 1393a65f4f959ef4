"""Limits of a turn: model calls, money, and the same tool calls over and over.

A limit stops *before* the call that would pass it. For repeated calls, every finished call leaves a digest of its name,
arguments and result. When the newest digests are one cycle repeated often enough, the user is warned and the model is
warned once, in the result it is about to read. The digests are not in the view, so a compaction hides no loop; those
of a turn that a crash cut off are derived from the history.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.core.errors import PerdureError
from perdure.core.messages import Message, TextPart, ToolCall, canonical_json

if TYPE_CHECKING:
    from perdure.config.settings import LimitsSettings


class SpendingLimit(PerdureError):
    """Raised before a model call that would exceed a spending limit the user set; the turn ends."""


@dataclass(slots=True)
class Steps:
    """Counts the model calls of one turn against their limit."""

    most: int
    used: int = 0

    @property
    def is_over(self) -> bool:
        return self.used >= self.most


@dataclass(frozen=True, slots=True)
class Spent:
    """Amounts spent so far in US dollars, as far as prices are known."""

    turn_usd: float = 0.0
    session_usd: float = 0.0
    day_usd: float = 0.0


def check_spending(limits: LimitsSettings, spent: Spent, next_call_usd: float | None) -> None:
    """Raise SpendingLimit if the next call would exceed a limit; a call of unknown price counts as free."""
    about = next_call_usd or 0.0
    for name, limit, used in (
        ("limits.max_cost_per_turn", limits.max_cost_per_turn, spent.turn_usd),
        ("limits.max_cost_per_session", limits.max_cost_per_session, spent.session_usd),
        ("limits.max_cost_per_day", limits.max_cost_per_day, spent.day_usd),
    ):
        if limit is not None and used + about > limit:
            raise SpendingLimit(
                f"The next call was not made: ${used:.4f} is spent, it would cost about ${about:.4f}, and {name} is "
                f"${limit:.4f}. Raise the limit with `perdure config set {name} …`, or start afresh with /new."
            )


# A longer cycle is work with a plan; a turn makes about ninety calls.
_LONGEST_CYCLE = 20
# One call repeated is often a wait for something: so many calls must be part of a loop at least.
_LEAST_CALLS = 5
# Fewer rounds than this never count as repetition.
_LEAST_REPEATS = 2
# What differs between equal results: how long a run took, where a long output was stored, and a note of ours.
_VOLATILE = re.compile(
    r"\b\d{1,9}\.\d{1,6} ?(?:ms|s|sec|secs|seconds)\b|\boutput:\w{1,60}(?: \([^)\n]{1,300}\))?"
    r"|\s?\s?\[Perdure: you have now made [^\]]{1,400}\]$"
)


@dataclass(frozen=True, slots=True)
class RepeatedCalls:
    """A cycle of calls that keeps repeating."""

    tools: tuple[str, ...]
    repeats: int

    @property
    def notice(self) -> str:
        """Return the warning for the user."""
        return (
            f"The model seems to go in circles: {self._calls} with the same results {self.repeats} times in a row"
            f" ({', '.join(dict.fromkeys(self.tools))}). It has been told once. Interrupt it if this goes on, and say"
            " what it should do differently."
        )

    @property
    def note(self) -> str:
        """Return the note for the model, which follows the newest result."""
        return (
            f"[Perdure: you have now made {self._calls} with the same arguments and the same results {self.repeats}"
            " times in a row. Repeating them will return the same again. Use what they returned, try something else, or"
            " tell the user what keeps you from going on.]"
        )

    @property
    def _calls(self) -> str:
        return "the same call" if len(self.tools) == 1 else f"the same {len(self.tools)} calls"


class LoopGuard:
    """Detects a turn in which the model repeats the same tool calls with the same results; `repeats` 0 turns it off."""

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._recent: deque[tuple[str, bytes]] = deque(maxlen=_LONGEST_CYCLE * max(repeats, _LEAST_CALLS))
        self._reported: set[frozenset[bytes]] = set()

    def observe(self, calls: Sequence[ToolCall], results: Sequence[Message]) -> RepeatedCalls | None:
        """Record the tool calls of one reply with their results; return a loop if they complete one, once for each."""
        if not self._repeats:
            return None
        self._recent.extend((c.name, _digest(c, r.text)) for c, r in zip(calls, results, strict=False))
        match = self._find()
        if match is None:
            return None
        cycle, repeats = match
        key = frozenset(digest for _, digest in cycle)
        if key in self._reported:
            return None
        self._reported.add(key)
        return RepeatedCalls(tuple(name for name, _ in cycle), repeats)

    def replay(self, messages: Sequence[Message]) -> None:
        """Replay the calls of an interrupted turn, so that a loop spanning both parts is detected; report nothing."""
        for at, message in enumerate(messages):
            if message.tool_calls:
                following = messages[at + 1 : at + 1 + len(message.tool_calls)]
                self.observe(message.tool_calls, [m for m in following if m.role == "tool"])

    def _find(self) -> tuple[list[tuple[str, bytes]], int] | None:
        """Return the shortest cycle that the newest calls repeat often enough, and how often they do."""
        digests = [digest for _, digest in self._recent]
        for length in range(1, _LONGEST_CYCLE + 1):
            least = max(self._repeats, _LEAST_REPEATS, -(-_LEAST_CALLS // length))
            if len(digests) < least * length:
                return None
            repeats = _repeats_at_end(digests, length)
            if repeats >= least:
                return list(self._recent)[-length:], repeats
        return None


def with_note(results: Sequence[Message], note: str) -> list[Message]:
    """Return tool results with a note for the model appended to the last one."""
    *before, last = results
    content = last.content
    if isinstance(content, tuple):
        return [*before, last.with_content((*content, TextPart(note)))]
    return [*before, last.with_content(f"{content}\n\n{note}" if content else note)]


def _repeats_at_end(digests: Sequence[bytes], length: int) -> int:
    """Count how often the last `length` digests repeat at the end."""
    repeats, end = 1, len(digests)
    while end >= (repeats + 1) * length and (
        digests[end - (repeats + 1) * length : end - repeats * length] == digests[end - length :]
    ):
        repeats += 1
    return repeats


def _digest(call: ToolCall, result: str) -> bytes:
    arguments = call.parsed_arguments()
    raw_arguments = call.arguments if arguments is None else canonical_json(arguments)
    text = "\0".join((call.name, raw_arguments, _VOLATILE.sub("", result)))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
