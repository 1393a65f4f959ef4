"""The transcript a summarizer reads: old tool results pruned to one line, bounded in size."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from perdure.context.exact_values import facts_in
from perdure.context.patterns import PatternMatcher
from perdure.context.redacted_entries import redact_entries
from perdure.context.tool_calls.output import read_output
from perdure.context.tool_calls.output_extent import find_notes
from perdure.core.messages import Entry, ImagePart, Message, TextPart, ToolCall

PRUNE_CHARS = 200
ARGUMENT_CHARS = 300
CLEARED = "[old tool output cleared]"
SAME_AGAIN = "the same output as a later call"
# A line of a record that begins a message or a call.
_AT_MARGIN = re.compile(r"^(?=\S)", re.MULTILINE)
IMAGE_GONE = "[an earlier image was here]"

EXIT = PatternMatcher(
    marks=("exit", "returncode", "return code", "status code"),
    pattern=re.compile(
        r"(?:\bexit(?:ed)?(?: with)?(?:[ _-]?(?:code|status))?|\breturn ?code|\bstatus code)"
        r"\"?\s*[:=]?\s*\"?(-?\d{1,3})\b(?!\.)",
        re.IGNORECASE,
    ),
)
_SPACE = re.compile(r"\s")
_TROUBLE = (
    "error", "exception", "fail", "fatal", "denied", "not found", "no such", "cannot", "panic",
    "错误", "失败", "エラー", "失敗", "오류", "실패",
)  # fmt: skip
# Created once: `json.dumps` with non-default options creates an encoder per call.
_as_json = json.JSONEncoder(ensure_ascii=False).encode
# The argument that identifies the target of a call, and its verb.
_SUBJECTS = (
    ("command", "ran `{}`"),
    ("cmd", "ran `{}`"),
    ("script", "ran `{}`"),
    ("code", "ran `{}`"),
    ("file_path", "{}"),
    ("path", "{}"),
    ("filename", "{}"),
    ("file", "{}"),
    ("notebook_path", "{}"),
    ("url", "{}"),
    ("pattern", "searched `{}`"),
    ("query", "searched `{}`"),
    ("prompt", "asked `{}`"),
    ("description", "{}"),
)


@dataclass(frozen=True, slots=True)
class CallNote:
    """A short description of a call, and every id that its result may use."""

    ids: frozenset[str]
    name: str
    about: str


def describe_calls(message: Message) -> list[tuple[CallNote, str]]:
    """Return a note and the shortened arguments for each call of a message."""
    return [_describe_call(c) for c in message.tool_calls]


def outcome(text: str) -> str:
    """Summarize a tool result: exit code, size, and its most informative line."""
    if not text.strip():
        return "no output"
    details = []
    edge = ends(text, 400, 800)
    low = edge.lower()
    if any(mark in low for mark in EXIT.marks) and (match := EXIT.pattern.search(edge)):
        details.append(f"exit {match[1]}")
    lines = text.count("\n") + (not text.endswith("\n"))
    if find_notes(text):
        details.append(read_output(text).size)
    else:
        details.append(f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters")
    if telling := _telling_line(edge, low):
        details.append(telling)
    return ", ".join(details)


def ends(text: str, first: int, last: int, between: str = "\n") -> str:
    """Return both ends of a long text, cut between words so that no word or key is halved."""
    if len(text) <= first + last:
        return text
    head, tail = text[:first], text[-last:]
    cut = max(head.rfind(" "), head.rfind("\n"))
    head = head[:cut] if cut > 0 else ""
    match = _SPACE.search(tail)
    tail = tail[match.end() :] if match else ""
    return f"{head}{between}{tail}" if head or tail else f"[{len(text):,} characters without a space]"


def result_line(note: CallNote | None, came_of_it: str) -> str:
    """Return the one line that replaces a pruned tool result."""
    if note is None:
        return CLEARED
    return f"[{note.name}] {note.about} → {came_of_it}" if note.about else f"[{note.name}] → {came_of_it}"


def find_call(notes: Sequence[CallNote], result: Message) -> CallNote | None:
    """Return the note of the call that a result belongs to; None if there is none."""
    call_id = result.tool_call_id
    if not call_id:
        return None
    for note in notes:
        if call_id in note.ids:
            return note
    named = set(call_id.split("|"))
    return next((n for n in notes if not named.isdisjoint(n.ids)), None)


def short_arguments(message: Message, *, most_chars: int = ARGUMENT_CHARS) -> Message:
    """Shorten long strings in call arguments; the JSON stays valid."""
    if not any(len(c.arguments) > most_chars for c in message.tool_calls):
        return message
    calls = tuple(
        replace(c, arguments=shorten_json(c.arguments, most_chars=most_chars)) if len(c.arguments) > most_chars else c
        for c in message.tool_calls
    )
    return replace(message, tool_calls=calls)


def shorten_json(arguments: str, *, most_chars: int = ARGUMENT_CHARS) -> str:
    """Shorten every long string and list of JSON arguments; numbers, booleans, keys and nesting are unchanged."""
    try:
        return _short(json.loads(arguments), most_chars)
    except (ValueError, RecursionError):
        return _wrap_unparsed(arguments, most_chars)


def without_images(message: Message) -> Message:
    """Replace each image of a message by a short placeholder."""
    if not _has_image(message) or not isinstance(message.content, tuple):
        return message
    parts = tuple(TextPart(IMAGE_GONE) if isinstance(p, ImagePart) else p for p in message.content)
    return message.with_content(parts)


def _describe_call(call: ToolCall) -> tuple[CallNote, str]:
    call = call.dispatched
    try:
        value = json.loads(call.arguments)
        about = _about(value) if isinstance(value, dict) else _one_line(call.arguments, 80)
        arguments = _short(value, ARGUMENT_CHARS)
    except (ValueError, RecursionError):
        about, arguments = _one_line(call.arguments, 80), _wrap_unparsed(call.arguments, ARGUMENT_CHARS)
    return CallNote(call.ids, call.name or "tool", about), arguments


def _about(arguments: Mapping[str, Any]) -> str:
    for key, wording in _SUBJECTS:
        if isinstance(value := arguments.get(key), str) and value.strip():
            return wording.format(_one_line(value, 120)) + _span(arguments)
    return _one_line(", ".join(f"{k}={_leaf(v)}" for k, v in arguments.items()), 120)


def _span(arguments: Mapping[str, Any]) -> str:
    limits = [f"{k} {arguments[k]}" for k in ("offset", "limit") if isinstance(arguments.get(k), int)]
    return f" ({', '.join(limits)})" if limits else ""


def _leaf(value: object) -> str:
    return value if isinstance(value, str) else _as_json(value)


def _telling_line(text: str, low: str) -> str:
    """Return the last line that mentions a problem, else the last non-empty one."""
    at = max(low.rfind(word) for word in _TROUBLE)
    # Lower-casing changes the length in a few scripts; then the index is off, and the last line is used.
    if at >= 0 and len(low) == len(text):
        start = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        return f'says: "{_one_line(text[start : end if end >= 0 else len(text)], 140)}"'
    stripped = text.rstrip()
    start = stripped.rfind("\n") + 1
    return f'last: "{_one_line(stripped[start:], 80)}"' if start else ""


def _one_line(text: str, most: int) -> str:
    flat = " ".join(text[: most * 4].split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def _clip_middle(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]}… [{len(text) - most:,} characters left out] …{text[-(most // 3) :]}"


def _short(value: Any, most_chars: int) -> str:
    """Parsed arguments as JSON of bounded length."""
    for most in (most_chars, most_chars // 2, most_chars // 4, 24):
        text = _as_json(_shorten_value(value, most))
        if len(text) <= 4 * most_chars:
            break
    return text


def _wrap_unparsed(arguments: str, most_chars: int) -> str:
    """Wrap arguments that are no JSON, or nested too deeply, as one string of a valid object."""
    return _as_json({"unparsed": _clip_middle(arguments, most_chars)})


def _shorten_value(value: Any, most: int, depth: int = 0) -> Any:
    if isinstance(value, str):
        return _clip_middle(value, most)
    if depth > 20:
        return "…"
    if isinstance(value, dict):
        return {k: _shorten_value(v, most, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        items = [_shorten_value(v, most, depth + 1) for v in value[:20]]
        return [*items, f"… {len(value) - 20} more"] if len(value) > 20 else items
    return value


def _has_image(message: Message) -> bool:
    return isinstance(message.content, tuple) and any(isinstance(p, ImagePart) for p in message.content)


# A message may be a pasted book: keep both ends.
MESSAGE_CHARS = 6_000


@dataclass(frozen=True, slots=True)
class Speech:
    """The text and calls of a message, its size in bytes, and a note for each call."""

    text: str
    size: int
    notes: tuple[CallNote, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultNote:
    """A tool result for the transcript: verbatim if short, else one line about it."""

    text: str
    is_whole: bool
    # Equal results have equal marks; None for short ones, which may well repeat.
    mark: int | None


@dataclass(frozen=True, slots=True)
class ResultBlock:
    """A tool result rendered with its call."""

    text: str
    size: int
    mark: int | None
    call: CallNote | None


@dataclass(frozen=True, slots=True)
class Transcript:
    """Text blocks in order, and the size of each in bytes."""

    blocks: list[str]
    sizes: list[int]


def split_record(record: str) -> Transcript:
    """Split a record into blocks, one for each message or call, so that a long one can be read in parts."""
    starts = [m.start() for m in _AT_MARGIN.finditer(record)]
    blocks = [record[a:b].rstrip("\n") for a, b in zip([0, *starts], [*starts, len(record)], strict=True)]
    blocks = [b for b in blocks if b]
    return Transcript(blocks, list(map(size_of, blocks)))


def prepare(entry: Entry) -> None:
    """Compute and cache what this module needs of a message, ahead of a compaction."""
    if entry.message.role == "tool":
        note_in(entry, PRUNE_CHARS)
    elif entry.message.kind != "handoff":
        speech_in(entry)


def transcribe(entries: Sequence[Entry], *, prune_chars: int = PRUNE_CHARS) -> Transcript:
    """Render the entries as text blocks, without handoffs; of identical long results only the last is kept."""
    redact_entries(entries)
    key = ("block", prune_chars)
    blocks: list[str] = []
    sizes: list[int] = []
    long: dict[int, ResultBlock] = {}
    notes: tuple[CallNote, ...] = ()
    for e in entries:
        message = e.message
        if message.role == "tool":
            block = e.get_memo(key) or e.memo(key, partial(_result_block, note_in(e, prune_chars), notes))
            if block.mark is not None:
                long[len(blocks)] = block
            blocks.append(block.text)
            sizes.append(block.size)
        elif message.kind != "handoff":
            speech = e.get_memo("speech") or speech_in(e)
            notes = speech.notes
            if speech.text:
                blocks.append(speech.text)
                sizes.append(speech.size)
    last = {block.mark: at for at, block in long.items()}
    if len(last) < len(long):
        for at, block in long.items():
            if last[block.mark] != at:
                blocks[at] = result_line(block.call, SAME_AGAIN)
                sizes[at] = size_of(blocks[at])
    return Transcript(blocks, sizes)


def size_of(text: str) -> int:
    """Size of a text in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def note_in(entry: Entry, prune_chars: int) -> ResultNote:
    """Return the note of a tool result, cached on its entry."""
    return entry.memo(("result_note", prune_chars), lambda _: _result_note(_redact(entry), prune_chars))


def speech_in(entry: Entry) -> Speech:
    """Return the text and calls of a message, cached on its entry."""
    return entry.memo("speech", lambda _: _speech(_redact(entry)))


def _redact(entry: Entry) -> Message:
    return facts_in(entry).message


def _result_note(message: Message, prune_chars: int) -> ResultNote:
    text = message.text
    if len(text) <= prune_chars:
        return ResultNote(text.strip(), True, None)
    return ResultNote(outcome(text), False, hash(text))


def _speech(message: Message) -> Speech:
    text = excerpt = message.text.strip()
    if len(excerpt) > MESSAGE_CHARS:
        excerpt = ends(excerpt, MESSAGE_CHARS * 2 // 3, MESSAGE_CHARS // 3, f"\n[… of {len(text):,} characters …]\n")
    content = message.content
    if images := sum(isinstance(p, ImagePart) for p in content) if isinstance(content, tuple) else 0:
        excerpt += f"\n[{images} image{'s' if images > 1 else ''}]"
    if message.cut_off is not None:
        excerpt += "\n[the reply was cut off here]"
    calls = describe_calls(message)
    body = "\n".join(filter(None, (excerpt, *(f"→ calls {note.name} {arguments}" for note, arguments in calls))))
    block = f"{_speaker(message)}: {body}" if body else ""
    return Speech(block, size_of(block), tuple(note for note, _ in calls))


def _result_block(note: ResultNote, notes: tuple[CallNote, ...], message: Message) -> ResultBlock:
    """Render a result; its call is always in the message right before."""
    call = find_call(notes, message)
    if note.is_whole:
        block = f"[{call.name if call else 'tool'}] result: {note.text or 'no output'}"
    else:
        block = result_line(call, note.text)
    return ResultBlock(block, size_of(block), note.mark, call)


def _speaker(message: Message) -> str:
    if message.kind == "note":
        return "NOTE"
    return {"user": "USER", "assistant": "ASSISTANT"}.get(message.role, message.role.upper())
