"""The middle of a history as text for a summariser: pruned, redacted, one block a message.

Every block is made once per message and kept beside it, so that a long history costs a join. It is made of the redacted
message that facts were read from: redaction comes before any shortening, for half a key is still a key's half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from perdure.context.facts import facts_in
from perdure.context.pruning import (
    PRUNE_CHARS,
    SAME_AGAIN,
    CallNote,
    answered,
    ends,
    noted_calls,
    outcome,
    result_line,
)
from perdure.core.messages import Entry, ImagePart, Message

# A message nobody shortened may still be a pasted book: the ends say most of it.
MESSAGE_CHARS = 6_000


@dataclass(frozen=True, slots=True)
class Speech:
    """What a message says and calls, its length in bytes, and what each of its calls is about."""

    text: str
    size: int
    notes: tuple[CallNote, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultNote:
    """What a tool result comes to: itself where it is short, else one line about it."""

    text: str
    is_whole: bool
    # Equal results have equal marks; None for short ones, which may well repeat.
    mark: int | None


@dataclass(frozen=True, slots=True)
class ResultBlock:
    """A result told with the call it answers."""

    text: str
    size: int
    mark: int | None
    call: CallNote | None


@dataclass(frozen=True, slots=True)
class Transcript:
    """Blocks of text in their order, and the length of each in bytes."""

    blocks: list[str]
    sizes: list[int]


def prepare(entry: Entry) -> None:
    """Does the per-message work of this module now."""
    if entry.message.role == "tool":
        note_in(entry, PRUNE_CHARS)
    elif entry.message.kind != "handoff":
        speech_in(entry)


def transcribe(entries: Sequence[Entry], *, prune_chars: int = PRUNE_CHARS) -> Transcript:
    """The entries as text, one block each, handoffs left out; identical long results are told once, at the last."""
    key = ("block", prune_chars)
    blocks: list[str] = []
    sizes: list[int] = []
    long: dict[int, ResultBlock] = {}
    notes: tuple[CallNote, ...] = ()
    for e in entries:
        message = e.message
        if message.role == "tool":
            told = e.known(key) or e.memo(key, partial(_result_block, note_in(e, prune_chars), notes))
            if told.mark is not None:
                long[len(blocks)] = told
            blocks.append(told.text)
            sizes.append(told.size)
        elif message.kind != "handoff":
            said = e.known("speech") or speech_in(e)
            notes = said.notes
            if said.text:
                blocks.append(said.text)
                sizes.append(said.size)
    last = {told.mark: at for at, told in long.items()}
    if len(last) < len(long):
        for at, told in long.items():
            if last[told.mark] != at:
                blocks[at] = result_line(told.call, SAME_AGAIN)
                sizes[at] = size_of(blocks[at])
    return Transcript(blocks, sizes)


def size_of(text: str) -> int:
    """The length of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def note_in(entry: Entry, prune_chars: int) -> ResultNote:
    """What a result comes to, worked out once."""
    return entry.memo(("result_note", prune_chars), lambda _: _result_note(_redacted(entry), prune_chars))


def speech_in(entry: Entry) -> Speech:
    """What a message says and calls, worked out once."""
    return entry.memo("speech", lambda _: _speech(_redacted(entry)))


def _redacted(entry: Entry) -> Message:
    return facts_in(entry).message


def _result_note(message: Message, prune_chars: int) -> ResultNote:
    text = message.text
    if len(text) <= prune_chars:
        return ResultNote(text.strip(), True, None)
    return ResultNote(outcome(text), False, hash(text))


def _speech(message: Message) -> Speech:
    text = said = message.text.strip()
    if len(said) > MESSAGE_CHARS:
        said = ends(said, MESSAGE_CHARS * 2 // 3, MESSAGE_CHARS // 3, f"\n[… of {len(text):,} characters …]\n")
    content = message.content
    if images := sum(isinstance(p, ImagePart) for p in content) if isinstance(content, tuple) else 0:
        said += f"\n[{images} image{'s' if images > 1 else ''}]"
    calls = noted_calls(message)
    body = "\n".join(filter(None, (said, *(f"→ calls {note.name} {arguments}" for note, arguments in calls))))
    told = f"{_speaker(message)}: {body}" if body else ""
    return Speech(told, size_of(told), tuple(note for note, _ in calls))


def _result_block(note: ResultNote, notes: tuple[CallNote, ...], message: Message) -> ResultBlock:
    """The call that a result answers always stands right before it."""
    call = answered(notes, message)
    if note.is_whole:
        told = f"[{call.name if call else 'tool'}] result: {note.text or 'no output'}"
    else:
        told = result_line(call, note.text)
    return ResultBlock(told, size_of(told), note.mark, call)


def _speaker(message: Message) -> str:
    if message.kind == "note":
        return "NOTE"
    return {"user": "USER", "assistant": "ASSISTANT"}.get(message.role, message.role.upper())
