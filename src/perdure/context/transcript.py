"""The middle of a history as text for a summariser: pruned, redacted, one block a message.

Every block is made once per message and kept beside it, so that a long history costs a join. It is made of the redacted
message that facts were read from: redaction comes before any shortening, for half a key is still a key's half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from perdure.context.facts import facts_of
from perdure.context.pruning import (
    PRUNE_CHARS,
    SAME_AGAIN,
    CallNote,
    answered,
    call_notes,
    ends,
    outcome,
    result_line,
)
from perdure.core.messages import Entry, ImagePart, Message

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
        note_in(entry, PRUNE_CHARS)
    elif entry.message.kind != "handoff":
        speech_in(entry)


def blocks(entries: Sequence[Entry], *, prune_chars: int = PRUNE_CHARS) -> list[str]:
    """The entries as text blocks, in order, handoffs left out; identical long results are told once, at the last."""
    note_key, key = ("result_note", prune_chars), ("block", prune_chars)
    # Where each mark was last met, and the calls that stood before it.
    last: dict[int, tuple[int, Entry, tuple[CallNote, ...]]] = {}
    out: list[str] = []
    notes: tuple[CallNote, ...] = ()
    for e in entries:
        if e.message.role == "tool":
            note = e.known(note_key) or note_in(e, prune_chars)
            if (mark := note.mark) is not None:
                if mark in last:
                    at, earlier, before = last[mark]
                    out[at] = result_line(answered(before, earlier.message), SAME_AGAIN)
                last[mark] = (len(out), e, notes)
            out.append(e.known(key) or e.memo(key, partial(_result_block, note, notes)))
        elif e.message.kind != "handoff":
            said = e.known("speech") or speech_in(e)
            notes = said.notes
            if said.text:
                out.append(said.text)
    return out


def note_in(entry: Entry, prune_chars: int) -> ResultNote:
    """What a result comes to, worked out once."""
    return entry.memo(("result_note", prune_chars), lambda _: _result_note(_redacted(entry), prune_chars))


def speech_in(entry: Entry) -> Speech:
    """What a message says and calls, worked out once."""
    return entry.memo("speech", lambda _: _speech(_redacted(entry)))


def _redacted(entry: Entry) -> Message:
    return entry.memo("facts", facts_of).message


def _result_note(message: Message, prune_chars: int) -> ResultNote:
    text = message.text
    if len(text) <= prune_chars:
        return ResultNote(text.strip(), True, None)
    return ResultNote(outcome(text), False, hash(text))


def _speech(message: Message) -> Speech:
    text = said = message.text.strip()
    if len(said) > MESSAGE_CHARS:
        said = ends(said, MESSAGE_CHARS * 2 // 3, MESSAGE_CHARS // 3, f"\n[… of {len(text):,} characters …]\n")
    images = sum(isinstance(p, ImagePart) for p in message.parts)
    if images:
        said += f"\n[{images} image{'s' if images > 1 else ''}]"
    notes = call_notes(message)
    body = "\n".join(filter(None, (said, *(f"→ calls {n.name} {n.arguments}" for n in notes))))
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
