"""The middle of a history as text for a summariser: pruned, redacted, one block a message.

Every block is made once per message and kept beside it, so that a long history costs a join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.context.pruning import (
    PRUNE_CHARS,
    SAME_AGAIN,
    CallNote,
    answered,
    call_notes,
    outcome,
    result_line,
    shorten_json,
)
from perdure.core.messages import Entry, ImagePart, Message
from perdure.redaction import redact

# A message nobody shortened may still be a pasted book: the ends say most of it.
MESSAGE_CHARS = 6_000


@dataclass(frozen=True, slots=True)
class ResultNote:
    """What a tool result comes to: itself where it is short, else one line about it."""

    text: str
    is_whole: bool
    # Equal results have equal marks; None for short ones, which may well repeat.
    mark: int | None


def result_note(message: Message) -> ResultNote:
    """Pure, so that it can be kept beside the message."""
    text = message.text
    if len(text) <= PRUNE_CHARS:
        return ResultNote(redact(text).strip(), True, None)
    return ResultNote(redact(outcome(message)), False, hash(text))


def speech(message: Message) -> str:
    """What a message says and calls, without results. Pure, so that it can be kept beside the message."""
    said = redact(_ends(message.text.strip()))
    images = sum(isinstance(p, ImagePart) for p in message.parts)
    if images:
        said += f"\n[{images} image{'s' if images > 1 else ''}]"
    calls = [f"→ calls {c.name or 'tool'} {redact(shorten_json(c.arguments))}" for c in message.tool_calls]
    body = "\n".join(line for line in (said, *calls) if line)
    return f"{_speaker(message)}: {body}" if body else ""


def prepare(entry: Entry) -> None:
    """Does the per-message work of this module now."""
    if entry.message.role == "tool":
        entry.memo("result_note", result_note)
    else:
        entry.memo("speech", speech)
        if entry.message.tool_calls:
            entry.memo("call_notes", _redacted_notes)


def blocks(entries: Sequence[Entry]) -> list[str]:
    """The entries as text blocks, in order, handoffs left out; identical long results are told once, at the last."""
    last: dict[int, int] = {}
    for i, e in enumerate(entries):
        if e.message.role == "tool" and (mark := e.memo("result_note", result_note).mark) is not None:
            last[mark] = i
    out: list[str] = []
    notes: tuple[CallNote, ...] = ()
    for i, e in enumerate(entries):
        m = e.message
        if m.role == "tool":
            out.append(_result_block(e, notes, last, i))
        elif m.kind != "handoff":
            notes = e.memo("call_notes", _redacted_notes) if m.tool_calls else ()
            if said := e.memo("speech", speech):
                out.append(said)
    return out


def _result_block(entry: Entry, notes: Sequence[CallNote], last: dict[int, int], i: int) -> str:
    kept = entry.memo("result_note", result_note)
    call = answered(notes, entry.message)
    if kept.is_whole:
        return f"[{call.name if call else 'tool'}] result: {kept.text or 'no output'}"
    repeats = kept.mark is not None and last[kept.mark] != i
    return result_line(call, SAME_AGAIN if repeats else kept.text)


def _redacted_notes(message: Message) -> tuple[CallNote, ...]:
    return tuple(CallNote(n.ids, n.name, redact(n.about)) for n in call_notes(message))


def _speaker(message: Message) -> str:
    if message.kind == "note":
        return "NOTE"
    return {"user": "USER", "assistant": "ASSISTANT"}.get(message.role, message.role.upper())


def _ends(text: str) -> str:
    if len(text) <= MESSAGE_CHARS:
        return text
    head, tail = MESSAGE_CHARS * 2 // 3, MESSAGE_CHARS // 3
    return f"{text[:head]}\n[… {len(text) - head - tail:,} characters left out …]\n{text[-tail:]}"
