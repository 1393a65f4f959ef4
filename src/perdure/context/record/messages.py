"""Read what a message states: who it comes from, and its passages with their worth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from perdure.context.record.decisions import UserReading, announces, read_user, user_reading
from perdure.context.record.entries import redacted
from perdure.context.text import Passage, clip, split_passages
from perdure.core.messages import SUMMARY_OPENINGS, Entry, ImagePart, Message, ToolCall, user

# Who a statement comes from: a report of a delegated agent, a note inserted by a program, a document or an instruction
# file that was read.
Speaker = Literal["user", "assistant", "report", "note", "document", "instructions"]

# Texts of a user message up to this size are quoted as typed.
_WHOLE_CHARS = 700
_PASTED_WORTH = 0.3
_ANNOUNCEMENT_WORTH = 0.1
_LONG_CHARS = 1_500
# A choice such as "1+2" or "the first".
_BARE_CHARS = 12


@dataclass(frozen=True, slots=True)
class Statement:
    """The content of a message as passages to choose from, with its speaker."""

    speaker: Speaker
    passages: tuple[Passage, ...]
    # The user corrected, refused or set a rule: no later compaction may drop it.
    is_binding: bool = False
    # Only agreement or "go on": it refers to what the assistant wrote before.
    is_bare: bool = False
    # The last words of a turn, not a remark between two calls.
    is_final: bool = False
    # Identifies a text that is repeated; 0 for short ones.
    fingerprint: int = 0
    # What a program called it: the name of a command, the title of a task.
    title: str = ""


NOTHING_STATED = Statement("note", ())
CALL = "→"
# The title of the first message of another conversation.
OPENING = "new conversation"
LABELS: Mapping[Speaker, str] = {"user": "USER", "assistant": "ASSISTANT", "report": "REPORT", "note": "NOTE"}
_SPEAKERS: Mapping[str, Speaker] = {label: speaker for speaker, label in LABELS.items()}
_LINE = re.compile(r"^(?:(USER|ASSISTANT|REPORT|NOTE)(?: \(([^\n]{0,200}?)\))?(?: \[\d+\])?: |→ )", re.MULTILINE)

_ELEMENT = re.compile(r"<([a-z][\w-]{1,40})>")
_COMMAND = re.compile(r"<command-name>\s*(/?[^<\n]{1,80}?)\s*</command-name>")
_COMMAND_ARGUMENTS = re.compile(r"<command-args>\s*([^<]{1,4000}?)\s*</command-args>")
# Elements whose content is of no use to a reader.
_NOISE = frozenset(
    ("local-command-caveat", "system-reminder", "command-message", "command-name", "command-args", "task-id", "status")
)
_REPORTS = ("result", "report", "output", "response")
_CORRECTION = re.compile(
    r"^\W*(?:no\b(?! problem| worries| need)|nope|not? (?:that|this|like|quite|what)|don't|do not|stop\b|wrong"
    r"|actually\b|wait\b|undo|revert|instead\b|never\b|please don't|rather\b|i (?:said|meant|don't (?:want|like|think)"
    r"|wanted|told|undid|prefer|would rather|would prefer)|that's (?:not|wrong)|this is (?:not|wrong)"
    r"|you (?:should(?:n't| not)|broke|forgot|missed|fucked)|remove (?:this|that|it)|why (?:did|do|are) you"
    r"|不要|不对|不是|别|错了|停|違う|ちがう|やめ|じゃなく|ではなく|아니|하지 ?마|말고|틀렸)",
    re.IGNORECASE,
)
_SKILL = re.compile(r"^(?:Base directory for this skill|# .*\b[Ss]kill\b|---\nname: )")
_LOG_LINE = re.compile(
    r"\b(?:error|fail(?:ed|ure)?|fatal|panic|exception|traceback|assert\w*|expected|warning)\b|^\s*at \S+:\d+"
    # One character is enough before the dot: a run of them would be tried from each of its places.
    r"|(?<=\S)\.\w{1,4}:\d+",
    re.IGNORECASE,
)


def statement_of(entry: Entry) -> Statement:
    """Return the cached statement of an entry."""
    statement: Statement | None = entry.memoized("statement")
    if statement is not None:
        return statement
    if entry.message.role == "tool":
        return NOTHING_STATED
    reading = user_reading(entry) if entry.message.is_real_user else None
    return entry.memo("statement", lambda _: read_statement(redacted(entry), reading))


def read_statement(message: Message, reading: UserReading | None = None) -> Statement:
    """Read what a message states. Pure, so the result can be cached; the message is redacted before.

    `reading` is that of a user message, where it is cached.
    """
    if message.role == "assistant" and message.kind == "assistant":
        passages = split_passages(message.text) if message.text.strip() else ()
        if message.tool_calls and passages:
            passages = tuple(_introduction(passages, message.tool_calls))
        return Statement("assistant", passages, is_final=not message.tool_calls, fingerprint=_fingerprint(message.text))
    if message.is_real_user:
        return _user_statement(message, reading or read_user(message))
    if message.kind == "note" and message.text.strip():
        return _note(message.text)
    return NOTHING_STATED


def _introduction(passages: Sequence[Passage], calls: Sequence[ToolCall]) -> Iterator[Passage]:
    """The passages before calls: what merely announces them is worth less than their outcome."""
    for passage in passages:
        if announces(passage.text, calls):
            yield replace(passage, worth=min(passage.worth, _ANNOUNCEMENT_WORTH))
        elif passage is passages[-1] and passage.text.endswith((":", "：")):
            yield replace(passage, worth=passage.worth * 0.4)
        else:
            yield passage


def _note(text: str) -> Statement:
    """A summary that another program inserted, or a remark of a repair: background, written by no person."""
    if not text.startswith(SUMMARY_OPENINGS):
        return NOTHING_STATED
    return Statement(
        "note", split_passages(text), fingerprint=_fingerprint(text), title="an earlier summary, not verified"
    )


def _user_statement(message: Message, reading: UserReading) -> Statement:
    text = message.typed_text.strip()
    if not text:
        images = sum(isinstance(p, ImagePart) for p in message.parts)
        return Statement("user", (Passage("[image]", "[image]", 0.5),)) if images else NOTHING_STATED
    if text.startswith(SUMMARY_OPENINGS):
        return _note(text)
    if text.startswith("<") and (wrapped := _wrapped(text)) is not None:
        return wrapped
    if len(text) > _LONG_CHARS and _SKILL.match(text):
        passages = tuple(replace(p, worth=p.worth * _PASTED_WORTH) for p in split_passages(text))
        return Statement("note", passages, fingerprint=_fingerprint(text), title="pasted skill text")
    own = reading.own_words
    is_binding = bool(reading.rules or reading.corrections or reading.may_bind) or bool(_CORRECTION.match(own))
    passages = tuple((_typed_whole if len(text) <= _WHOLE_CHARS else _typed_long)(text, own))
    return Statement(
        "user",
        passages,
        is_binding=is_binding,
        is_bare=reading.is_bare or len(text) <= _BARE_CHARS,
        is_final=True,
        fingerprint=_fingerprint(text),
    )


def _typed_whole(text: str, own: str) -> Iterator[Passage]:
    """The paragraphs as typed; pasted lines count less."""
    for line in filter(None, map(str.strip, text.splitlines())):
        is_own = line in own
        yield Passage(line, clip(line, 240), 1.0 if is_own else 0.5)


def _typed_long(text: str, own: str) -> Iterator[Passage]:
    """The passages of a long message: what was typed counts in full, of pasted logs and documents the telling lines."""
    opening = own[:200]
    for passage in split_passages(text):
        words = passage.text.strip("- ")
        if words in own or words[:40] in opening:
            worth = min(1.0, passage.worth + 0.35)
        elif _LOG_LINE.search(passage.text):
            worth = 0.45
        else:
            worth = passage.worth * _PASTED_WORTH
        yield replace(passage, worth=worth)


def _wrapped(text: str) -> Statement | None:
    """Return the statement of a message that a program wrote in the user's name (a command, a report); else None."""
    if command := _COMMAND.search(text):
        arguments = _COMMAND_ARGUMENTS.search(text)
        words = arguments[1].strip() if arguments else ""
        line = f"{command[1]} {words}".strip()
        return Statement("user", (Passage(line, clip(line, 200), 0.9 if words else 0.2),), is_bare=not words)
    elements = dict(_elements(text))
    if not elements:
        return None
    title = " ".join(elements.get("summary", "").split())[:120]
    body = next((elements[name] for name in _REPORTS if elements.get(name, "").strip()), "")
    if not body:
        body = "\n".join(content for name, content in elements.items() if name not in _NOISE and name != "summary")
        rest = text[text.rfind(">") + 1 :].strip()
        if rest and not title:
            # Words behind the markup are the user's.
            return Statement("user", tuple(_typed_whole(rest, rest)), is_final=True)
    if not body.strip():
        return NOTHING_STATED if not title else Statement("note", (Passage(title, title, 0.3),))
    return Statement(
        "report", split_passages(body), is_final=True, fingerprint=_fingerprint(body), title=title or "output"
    )


def _elements(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and contents of the elements of a text, outer ones opened. Linear in its length."""
    at = 0
    while tag := _ELEMENT.search(text, at):
        end = text.find(f"</{tag[1]}>", tag.end())
        content = text[tag.end() : end if end >= 0 else len(text)]
        if tag[1].endswith(("notification", "message", "event")) and tag[1] not in _NOISE:
            at = tag.end()
            continue
        yield tag[1], content
        at = end if end >= 0 else len(text)


def _fingerprint(text: str) -> int:
    """A hash of a text long enough to be worth telling once."""
    words = text.strip()
    return hash(words[:2_000]) if len(words) > 200 else 0


def parse_record(record: str) -> Iterator[tuple[str, str]]:
    """Yield the label (`→` for a call) and the text of each item; the header and a cut beginning are skipped."""
    return ((label, text) for label, _, text in parse_items(record))


def parse_items(record: str) -> Iterator[tuple[str, str, str]]:
    """Yield the label, the title and the text of each item of a record."""
    starts = list(_LINE.finditer(record))
    ends = [*(m.start() for m in starts[1:]), len(record)][: len(starts)]
    for start, end in zip(starts, ends, strict=True):
        label = start[1] or CALL
        text = record[start.end() : end].rstrip("\n")
        yield label, start[2] or "", text if label == CALL else text.replace("\n ", "\n")


def carried_statement(label: str, text: str) -> Statement:
    """The statement of an item that was carried over: the user's words are quoted again as they are."""
    speaker = _SPEAKERS[label]
    if speaker != "user":
        return Statement(speaker, split_passages(text), is_final=True)
    read = read_statement(user(text))
    passages = read.passages if read.speaker == "user" else (Passage(text, clip(text, 240), 1.0),)
    return Statement("user", passages, is_binding=read.is_binding, is_bare=read.is_bare, is_final=True)
