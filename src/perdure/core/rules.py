"""History rules: each reports violations, repairs them and lists valid cut points.

    SystemFirst       system messages come first only              a later one becomes a note in the user role, with
                                                                   its own keys
    Pairs             every call has one result right after it     late results move up, missing ones get a stub,
                                                                   doubled and stray ones go; ids are made unique
    AlternatingRoles  user, assistant, user, assistant; results    equal neighbours become one message of several parts,
                      only after their call; a user first          labelled where their names differ; a gap is filled
                                                                   with a short placeholder

`repair()` runs them in this order and returns the very list it was given when nothing is wrong, so checking costs one
pass. Repair happens in the request projection only: the log keeps messages as they were.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

from perdure.core.messages import (
    CONTINUES,
    OUTPUT_ORDER,
    PASTED,
    SYSTEM_NOTE,
    TURN_ENDED,
    Kind,
    Message,
    Part,
    TextPart,
    ToolCall,
    tool_result,
)

MISSING_RESULT = "[No result: this call was interrupted, or its result is no longer in view. Outcome unknown.]"


@dataclass(frozen=True, slots=True)
class Violation:
    """A breach of a history rule: its name, the index of the message, and what is wrong."""

    rule: str
    index: int
    what: str


class HistoryRule(Protocol):
    name: str

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Return what breaks this rule, in order; empty for a valid history."""
        ...

    def repair(self, messages: Sequence[Message]) -> list[Message]:
        """Return a history that keeps this rule. Idempotent; never mutates its argument."""
        ...

    def cut_points(self, messages: Sequence[Message]) -> set[int]:
        """Return every index i at which the history may be split into [:i] and [i:], 0 and the length included."""
        ...


class SystemFirst:
    """History rule: system messages come first only. A later one is turned into a note."""

    name = "system_first"

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        start = leading_system(messages)
        return [
            Violation(self.name, i, f"message {i} is a system message behind the conversation's start")
            for i in range(start, len(messages))
            if _is_system(messages[i])
        ]

    def repair(self, messages: Sequence[Message]) -> list[Message]:
        start = leading_system(messages)
        rest = (
            replace(m, role="user", kind="note", content=f"{SYSTEM_NOTE}{m.text}") if _is_system(m) else m
            for m in messages[start:]
        )
        return [*messages[:start], *rest]

    def cut_points(self, messages: Sequence[Message]) -> set[int]:
        return {0, *range(leading_system(messages), len(messages) + 1)}


class Pairs:
    """History rule: every tool call has exactly one result, right after it, and every result has its call."""

    name = "pairs"

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        broken: list[Violation] = []
        open_calls: list[ToolCall] = []
        asked_at = 0
        for i, m in enumerate(messages):
            if m.role == "tool":
                call = _find_answered_call(open_calls, m)
                if call is None:
                    broken.append(Violation(self.name, i, f"result {i} ({m.tool_call_id!r}) answers no open call"))
                else:
                    open_calls.remove(call)
                continue
            broken += _report_unanswered(self.name, asked_at, open_calls)
            open_calls = list(m.tool_calls) if m.role == "assistant" else []
            asked_at = i
            if open_calls and not _has_distinct_ids(open_calls):
                broken.append(Violation(self.name, i, f"message {i} has calls with empty or equal ids"))
        return broken + _report_unanswered(self.name, asked_at, open_calls)

    def repair(self, messages: Sequence[Message]) -> list[Message]:
        late = _stray_results(messages)
        out: list[Message] = []
        i = 0
        while i < len(messages):
            m = messages[i]
            i += 1
            if m.role == "tool":
                continue
            if not m.tool_calls or m.role != "assistant":
                out.append(m)
                continue
            results = []
            while i < len(messages) and messages[i].role == "tool":
                results.append(messages[i])
                i += 1
            out += _repair_group(m, results, late, at=len(out))
        return out

    def cut_points(self, messages: Sequence[Message]) -> set[int]:
        return {i for i in range(len(messages) + 1) if i == len(messages) or messages[i].role != "tool"}


class AlternatingRoles:
    """History rule: a user message first, then assistant and user in turn; tool results come between call and reply."""

    name = "turns"

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        broken: list[Violation] = []
        before = "start"
        for i in range(leading_system(messages), len(messages)):
            role = messages[i].role
            if (before, role) not in _MAY_FOLLOW:
                broken.append(Violation(self.name, i, f"message {i}: {role} after {before}"))
            before = role
        return broken

    def repair(self, messages: Sequence[Message]) -> list[Message]:
        start = leading_system(messages)
        runs: list[list[Message]] = []
        before = "start"
        for m in messages[start:]:
            if m.role == before and m.role != "tool":
                runs[-1].append(m)
                continue
            if (before, m.role) not in _MAY_FOLLOW:
                runs.append([_filler(before)])
            runs.append([m])
            before = m.role
        return [*messages[:start], *(run[0] if len(run) == 1 else merge(*run) for run in runs)]

    def cut_points(self, messages: Sequence[Message]) -> set[int]:
        return set(range(len(messages) + 1))


RULES: tuple[HistoryRule, ...] = (SystemFirst(), Pairs(), AlternatingRoles())


class HistoryCheck:
    """Checks the history rules incrementally, O(1) for each appended message; tested to agree with `violations`."""

    __slots__ = ("_before", "_in_front", "_open")

    def __init__(self) -> None:
        self._open: list[ToolCall] = []
        self._before = "start"
        self._in_front = True

    def push(self, m: Message) -> bool:
        """Check the next message; return False if it breaks a rule. A call without a result is not a violation yet."""
        role = m.role
        if role == "system" or role == "developer":
            return self._in_front
        self._in_front = False
        if role == "tool":
            call = _find_answered_call(self._open, m)
            if call is None:
                return False
            self._open.remove(call)
        elif self._open:
            return False
        elif role == "assistant" and m.tool_calls:
            self._open = list(m.tool_calls)
            if not _has_distinct_ids(self._open):
                return False
        allowed = (self._before, role) in _MAY_FOLLOW
        self._before = role
        return allowed

    @property
    def is_settled(self) -> bool:
        """Whether every tool call so far has its result."""
        return not self._open


def is_valid(messages: Sequence[Message]) -> bool:
    """Whether a history keeps every rule; one pass that stops at the first violation."""
    check = HistoryCheck()
    push = check.push
    return all(push(m) for m in messages) and check.is_settled


def violations(messages: Sequence[Message]) -> list[Violation]:
    """Return all violations of a history, rule by rule."""
    return [v for rule in RULES for v in rule.violations(messages)]


def repair(messages: Sequence[Message]) -> list[Message]:
    """Return a history that keeps every rule; the same list object if it already does."""
    if is_valid(messages):
        return messages if isinstance(messages, list) else list(messages)
    for rule in RULES:
        messages = rule.repair(messages)
    return list(messages)


def repair_open(messages: Sequence[Message]) -> list[Message]:
    """Repair a history whose last calls may still be running: they get no made-up results."""
    return _reopen(repair(messages), messages)


def repair_pairs(messages: Sequence[Message]) -> list[Message]:
    """Repair all but the alternation of roles, and leave the last calls open; the same list object if nothing changes.

    So every message can still be told from its neighbours.
    """
    if isinstance(messages, list) and is_valid(messages):
        return messages
    mended = _reopen(Pairs().repair(SystemFirst().repair(messages)), messages)
    is_same = len(mended) == len(messages) and all(a is b for a, b in zip(mended, messages, strict=True))
    return messages if is_same and isinstance(messages, list) else mended


def _reopen(mended: list[Message], given: Sequence[Message]) -> list[Message]:
    """Remove the stub results that a repair added at the very end."""
    if not mended or mended[-1].role != "tool":
        return mended
    start = next(i for i in range(len(mended), -1, -1) if i == 0 or mended[i - 1].role != "tool")
    known = set(map(id, given[-(len(mended) - start) :]))
    return [*mended[:start], *(m for m in mended[start:] if m.content != MISSING_RESULT or id(m) in known)]


def cut_points(messages: Sequence[Message]) -> set[int]:
    """Return every index at which a history may be split without breaking a rule that it keeps."""
    return set.intersection(*(rule.cut_points(messages) for rule in RULES))


def leading_system(messages: Sequence[Message]) -> int:
    """Count the leading system messages."""
    n = 0
    while n < len(messages) and _is_system(messages[n]):
        n += 1
    return n


def merge(*messages: Message) -> Message:
    """Merge neighbouring messages of one role into one; their texts stay separate parts.

    A name or an unknown key stays only where all of them have it, lest it is taken for that of another's words; where
    the names differ, each text begins with that of its speaker.
    """
    first = messages[0]
    has_one_name = all(m.name == first.name for m in messages)
    speakers = {m.name for m in messages if m.kind not in ("note", "handoff")}
    labelled = messages if has_one_name else [_label(m, speakers) for m in messages]
    parts = tuple(chain.from_iterable(map(_whole_parts, labelled)))
    return replace(
        first,
        content=parts or next((m.content for m in messages if m.content is not None), None),
        tool_calls=tuple(chain.from_iterable(m.tool_calls for m in messages)),
        name=first.name if has_one_name else None,
        reasoning="\n".join(m.reasoning for m in messages if m.reasoning) or None,
        reasoning_details=tuple(chain.from_iterable(m.reasoning_details for m in messages)),
        kind=_merged_kind(messages),
        extra=_common_keys(messages),
        has_content_key=True,
    )


def _label(message: Message, speakers: Collection[str | None]) -> Message:
    """Return a message whose text begins with the name of its speaker, or with its role where only others have one."""
    if message.kind in ("note", "handoff") or message.is_blank:
        return message
    is_one_text = isinstance(message.content, str) or len(message.parts) == 1
    name = message.name or (message.role if len(speakers) > 1 and is_one_text else None)
    if name is None:
        return message
    if isinstance(message.content, str):
        return replace(message, content=f"{name}: {message.content}")
    first, *others = message.parts
    if isinstance(first, TextPart):
        return replace(message, content=(replace(first, text=f"{name}: {first.text}"), *others))
    return replace(message, content=(TextPart(f"{name}:"), first, *others))


def _whole_parts(message: Message) -> tuple[Part, ...]:
    """Return the parts of a message to be merged; a single text is marked as a message of its own."""
    parts = message.parts
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return (replace(parts[0], is_whole_message=True),)
    return parts


def _merged_kind(messages: Sequence[Message]) -> Kind:
    """Return the kind of merged messages. A blank one does not count: a note merged with it must stay a note."""
    kind = messages[0].kind
    is_empty = True
    for m in messages:
        adds_nothing = m.is_blank and not m.tool_calls
        if kind != m.kind and not adds_nothing:
            kind = m.kind if kind == "note" or is_empty else "user" if m.role == "user" else kind
        is_empty = is_empty and adds_nothing
    return kind


# Keys whose values are positions in the content that a message begins with, so that they stay true when more follows.
_POSITIONS = (OUTPUT_ORDER, PASTED)


def _common_keys(messages: Sequence[Message]) -> Mapping[str, Any]:
    """Return the unknown keys that all of the messages have, with the same value."""
    first, *others = (m.extra for m in messages)
    keys = {k: v for k, v in first.items() if k in _POSITIONS or all(k in e and e[k] == v for e in others)}
    if messages[0].kind == "handoff" and PASTED in others[0]:  # it is split off again before its text is read
        keys[PASTED] = others[0][PASTED]
    return keys


_MAY_FOLLOW = frozenset(
    {
        ("start", "user"),
        ("user", "assistant"),
        ("assistant", "user"),
        ("assistant", "tool"),
        ("tool", "tool"),
        ("tool", "assistant"),
    }
)


def _is_system(m: Message) -> bool:
    return m.role == "system" or m.role == "developer"


def _filler(before: str) -> Message:
    """Return the placeholder for a gap: a user message before an opening reply, an assistant message after results."""
    if before == "start":
        return Message(role="user", content=CONTINUES, kind="note")
    return Message(role="assistant", content=TURN_ENDED, kind="note")


def find_call(calls: Sequence[ToolCall], result_id: str | None) -> ToolCall | None:
    """Return the call that a result refers to: by its whole id, else by a part of the id that only one call has."""
    if not result_id:
        return None
    for call in calls:
        if call.id == result_id:
            return call
    named = {result_id, *result_id.split("|")} - {""}
    sharing = [c for c in calls if not named.isdisjoint(c.ids)]
    return sharing[0] if len(sharing) == 1 else None


def _find_answered_call(calls: Sequence[ToolCall], result: Message) -> ToolCall | None:
    return find_call(calls, result.tool_call_id)


def _has_distinct_ids(calls: Sequence[ToolCall]) -> bool:
    """Whether all calls have different ids, compared by the part before `|`, which is all that some services get."""
    if len(calls) == 1:
        return bool(calls[0].id)
    return len({c.id.partition("|")[0] for c in calls} - {""}) == len(calls)


def _report_unanswered(rule: str, index: int, calls: list[ToolCall]) -> list[Violation]:
    return [Violation(rule, index, f"call {c.id!r} of message {index} has no result right after it") for c in calls]


def _stray_results(messages: Sequence[Message]) -> dict[str, list[Message]]:
    """Return tool results that do not directly follow their call, by call id."""
    strays: dict[str, list[Message]] = {}
    calls: list[ToolCall] = []
    for m in messages:
        if m.role != "tool":
            calls = list(m.tool_calls)
        elif _find_answered_call(calls, m) is None and m.tool_call_id:
            strays.setdefault(m.tool_call_id, []).append(m)
    return strays


def _repair_group(asking: Message, results: list[Message], late: dict[str, list[Message]], *, at: int) -> list[Message]:
    """Return a message with tool calls, its ids made unique, followed by exactly one result for each, in call order."""
    if len(results) == 1 == len(asking.tool_calls):  # as almost always
        call_id = asking.tool_calls[0].id
        if call_id and call_id == results[0].tool_call_id and not call_id.startswith("|"):
            return [asking, results[0]]
    waiting = list(results)
    named = {id(r): find_call(asking.tool_calls, r.tool_call_id) for r in results}
    # What is sent of the ids given out so far: the half before the bar.
    used_ids: set[str] = set()
    calls, answers = [], []
    for k, call in enumerate(asking.tool_calls):
        answer = next((r for r in waiting if r.tool_call_id == call.id and call.id), None)
        if answer is None:
            answer = next((r for r in waiting if named[id(r)] is call), None)
        if answer is None and not call.id:
            answer = next((r for r in waiting if not r.tool_call_id), None)
        if answer is not None:
            waiting = [r for r in waiting if r is not answer]
        elif strays := late.get(call.id):
            answer = strays.pop(0)
        sent_id = call.id.partition("|")[0]
        is_free = bool(sent_id) and sent_id not in used_ids
        new_id = call.id if is_free else _free_id(call.id.replace("|", "_") or f"call_{at}_{k}", used_ids)
        used_ids.add(new_id.partition("|")[0])
        answers.append(_address_result(answer, call, new_id))
        calls.append(call if new_id == call.id else replace(call, id=new_id))
    unchanged = all(a is b for a, b in zip(calls, asking.tool_calls, strict=True))
    return [asking if unchanged else replace(asking, tool_calls=tuple(calls)), *answers]


def _free_id(base_id: str, used_ids: set[str]) -> str:
    n, candidate = 1, base_id
    while candidate in used_ids:
        n += 1
        candidate = f"{base_id}-{n}"
    return candidate


def _address_result(answer: Message | None, call: ToolCall, new_id: str) -> Message:
    if answer is None:
        return tool_result(new_id, MISSING_RESULT, call.name or None)
    if new_id == call.id:  # the result may name the call by its other id: leave it as it was
        return answer
    return replace(answer, tool_call_id=new_id)
