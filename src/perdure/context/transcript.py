"""The middle of a history as text for a summariser: pruned, redacted, one block a message.

Every block is made once per message and kept beside it, so that a long history costs a join. Redaction comes before any
shortening: half a key is still a key's half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from perdure.context.pruning import (
    PRUNE_CHARS,
    SAME_AGAIN,
    CallNote,
    answered,
    call_notes,
    ends,
    outcome,
    result_line,
    shorten_json,
)
from perdure.core.messages import Entry, ImagePart, Message
from perdure.redaction import redact

# A message nobody shortened may still be a pasted book: the ends say most of it.
MESSAGE_CHARS = 6_000


@dataclass(frozen=True, slots=True)
class Speech:
    """What a message says and calls, and what each of its calls is about."""

    text: str
    notes: tuple[CallNote, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultNote:
    """What a tool result comes to: itself where it is short, else one line about it."""

    text: str
    is_whole: bool
    # Equal results have equal marks; None for short ones, which may well repeat.
    mark: int | None


def prepare(entry: Entry) -> None:
    """Does the per-message work of this module now."""
    if entry.message.role == "tool":
        entry.memo("result_note", result_note)
    elif entry.message.kind != "handoff":
        entry.memo("speech", speech)


def blocks(entries: Sequence[Entry], *, prune_chars: int = PRUNE_CHARS) -> list[str]:
    """The entries as text blocks, in order, handoffs left out; identical long results are told once, at the last."""
    is_usual = prune_chars == PRUNE_CHARS
    key = "result_note" if is_usual else f"result_note:{prune_chars}"
    note_of: Callable[[Message], ResultNote] = partial(result_note, prune_chars=prune_chars)
    results = {i: e.memo(key, note_of) for i, e in enumerate(entries) if e.message.role == "tool"}
    last = {note.mark: i for i, note in results.items()}
    out: list[str] = []
    notes: tuple[CallNote, ...] = ()
    for i, e in enumerate(entries):
        if (note := results.get(i)) is not None:
            if note.mark is not None and last[note.mark] != i:
                out.append(result_line(answered(notes, e.message), SAME_AGAIN))
            else:
                out.append(e.memo(("block", key), partial(_result_block, note, notes)))
        elif e.message.kind != "handoff":
            said = e.memo("speech", speech)
            notes = said.notes
            if said.text:
                out.append(said.text)
    return out


def result_note(message: Message, prune_chars: int = PRUNE_CHARS) -> ResultNote:
    """Pure, so that it can be kept beside the message."""
    text = message.text
    if len(text) <= prune_chars:
        return ResultNote(redact(text).strip(), True, None)
    return ResultNote(outcome(message), False, hash(text))


def speech(message: Message) -> Speech:
    """Pure, so that it can be kept beside the message."""
    text = message.text.strip()
    said = redact(text) if text else ""
    if len(said) > MESSAGE_CHARS:
        said = ends(said, MESSAGE_CHARS * 2 // 3, MESSAGE_CHARS // 3, f"\n[… of {len(text):,} characters …]\n")
    images = sum(isinstance(p, ImagePart) for p in message.parts)
    if images:
        said += f"\n[{images} image{'s' if images > 1 else ''}]"
    calls = tuple(replace(c, arguments=redact(c.arguments)) for c in message.tool_calls)
    asked = [f"→ calls {c.name or 'tool'} {shorten_json(c.arguments)}" for c in calls]
    body = "\n".join(line for line in (said, *asked) if line)
    notes = call_notes(replace(message, tool_calls=calls)) if calls else ()
    return Speech(f"{_speaker(message)}: {body}" if body else "", notes)


def _result_block(note: ResultNote, notes: tuple[CallNote, ...], message: Message) -> str:
    """A result told with the call it answers, which always stands right before it."""
    call = answered(notes, message)
    if note.is_whole:
        return f"[{call.name if call else 'tool'}] result: {note.text or 'no output'}"
    return result_line(call, note.text)


def _speaker(message: Message) -> str:
    if message.kind == "note":
        return "NOTE"
    return {"user": "USER", "assistant": "ASSISTANT"}.get(message.role, message.role.upper())
