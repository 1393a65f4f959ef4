"""The handoff: the structured message that replaces compacted turns.

    [PERDURE HANDOFF: …]      the first line never changes
    Seal: …                   in plain dicts only: proves that Perdure wrote it (`seal`)
    what it is, what it is not, and how to use it
    Source: …                 how many messages it covers, where to open them, the model, time and cost

    ## Notebook               what the model wrote down, where it keeps notes (`context.notebook`)
    ## Active Task            thirteen sections in a fixed order, headings always in English
    …
    ## Earlier Windows        where they are in the log, with the engine `windows`
    ## Record                 the covered messages in order, at a falling resolution (`context.record`)
    ## Index                  exact values that nothing else in view shows
    [END OF PERDURE HANDOFF: …]

`render` and `parse_handoff` are inverses, so that an update can build on the sections of any earlier handoff.

Stored messages have a kind; a plain dict has none, and any web page, pasted file or model can produce a text that looks
like a handoff. So the second line of a handoff for plain dicts is a seal, an HMAC of the rest. A text without a valid
seal is untrusted background. The system message of such a list gets a note about the handoff.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache, partial
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from perdure import prompts
from perdure.config.env import home_dir, installation_key
from perdure.core.datastructures import Interval, merge_intervals
from perdure.core.errors import ConfigError
from perdure.core.messages import HANDOFF_FIRST_LINE, Content, ImagePart, Kind, Message, Part, TextPart, clean, kind_of

SECTIONS: tuple[str, ...] = (
    "Active Task",
    "Goal",
    "Constraints & Preferences",
    "Completed Actions",
    "Active State",
    "In Progress",
    "Blocked",
    "Key Decisions",
    "Resolved Questions",
    "Pending User Asks",
    "Relevant Files",
    "Remaining Work",
    "Critical Context",
)
RECORD = "Record"
INDEX = "Index"
# Of the engine `windows` only.
NOTEBOOK = "Notebook"
WINDOWS = "Earlier Windows"
END_MARKER = "[END OF PERDURE HANDOFF: the conversation goes on below this line]"
NOTHING = "None"
ATTACHED = "Attached: the newest image of the compacted messages."
BY_CODE = "code alone, from the messages themselves (no summary model)"

_ALL_HEADINGS = (*SECTIONS, NOTEBOOK, WINDOWS, RECORD, INDEX)
_HEADING = re.compile(r"^## (" + "|".join(map(re.escape, _ALL_HEADINGS)) + r")[ \t]*$", re.MULTILINE)
_SOURCE = re.compile(
    r"^Source: (?P<count>\d+) messages?(?: \((?P<address>m:[\d,-]+)[^)]*\))?"
    r"(?:; written by (?P<model>.+?))?(?: on (?P<when>\d{4}-\d\d-\d\d \d\d:\d\d) UTC)?"
    r"(?:; cost \$(?P<cost>[\d.]+))?\.$",
    re.MULTILINE,
)
# Lines that a section may not contain, since the handoff could no longer be parsed.
_BREAKS = re.compile(
    r"^#{1,2}(?= )|^(?=\[(?:END OF )?PERDURE HANDOFF)|^(?=Source: \d+ messages?\b|Attached: )", re.MULTILINE
)


# Lines that begin or end a handoff.
_FRAME = re.compile(r"\s*\[(?:END OF )?PERDURE HANDOFF|Source: \d+ messages?\b")


@dataclass(frozen=True, slots=True)
class Handoff:
    """The parsed content of a handoff: its sections, and the messages they cover. Empty sections are left out."""

    sections: Mapping[str, str]
    # Closed intervals of log positions; empty where the messages are in no log.
    covers: tuple[Interval, ...] = ()
    # How many messages it covers, those of the handoffs it builds on included.
    message_count: int = 0
    # The model that wrote it; "" for the digest, which code writes.
    model: str = ""
    created_at_ms: int = 0
    cost_usd: float | None = None
    focus_topic: str | None = None
    # The newest image of the covered messages is attached to the handoff message, after the text.
    has_image: bool = False
    # What was said and done, in order, and the exact values that nothing else in view shows; "" for none.
    record: str = ""
    index: str = ""
    # What the model wrote down (`context.notebook`), and where the earlier windows are; "" without either.
    notebook: str = ""
    windows: str = ""
    # What the check against the sources marked or removed.
    findings: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name in ("record", "index", "notebook", "windows"):
            object.__setattr__(self, name, _tidy(getattr(self, name)))
        texts = {s: _tidy(self.sections.get(s, "")) for s in SECTIONS}
        object.__setattr__(self, "sections", MappingProxyType({s: t for s, t in texts.items() if t}))
        object.__setattr__(self, "covers", merge_intervals(sorted(self.covers)))

    def __reduce__(self) -> tuple[Any, ...]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return partial(Handoff, **(values | {"sections": dict(self.sections)})), ()

    @property
    def address(self) -> str:
        """The address to open the covered messages with, e.g. `m:3-154,170-181`; "" where there is no log."""
        return "m:" + ",".join(f"{lo}-{hi}" for lo, hi in self.covers) if self.covers else ""

    @property
    def is_digest(self) -> bool:
        return not self.model

    @property
    def user_lines(self) -> Mapping[str, list[str]]:
        """The lines the user wrote into it, by section: every later handoff has them, too."""
        marked = {name: [line for line in text.split("\n") if is_by_user(line)] for name, text in self.sections.items()}
        return {name: lines for name, lines in marked.items() if lines}

    def section(self, name: str) -> str:
        return self.sections.get(name, "")

    def with_sections(self, sections: Mapping[str, str]) -> Handoff:
        return replace(self, sections=sections)

    @property
    def body(self) -> str:
        """The text of the non-empty sections, without banner, source line or end marker."""
        return "\n\n".join(f"## {name}\n{text}" for name, text in self.sections.items())


def render(handoff: Handoff, *, banner: str | None = None, is_short: bool = False) -> str:
    """Render the handoff as text for the model; `is_short` omits empty sections, for small windows."""
    if banner is None:
        banner = prompts.load("handoff_banner_short" if is_short else "handoff_banner")
    source = source_line(handoff) + (f"\n{ATTACHED}" if handoff.has_image else "")
    names = tuple(handoff.sections) if is_short else SECTIONS
    texts = [(NOTEBOOK, handoff.notebook)] if handoff.notebook else []
    texts += [(name, handoff.section(name) or NOTHING) for name in names]
    behind = ((WINDOWS, handoff.windows), (RECORD, handoff.record), (INDEX, handoff.index))
    texts += [(name, text) for name, text in behind if text]
    body = "\n\n".join(f"## {name}\n{text}" for name, text in texts)
    return f"{HANDOFF_FIRST_LINE}\n{_tidy(banner)}\n{source}\n\n{body}\n\n{END_MARKER}"


EDITED = ", edited by the user"
# Behind a line that the user wrote into a handoff.
_USER_MARK = "[user]"


def is_by_user(line: str) -> bool:
    return line.rstrip().endswith(_USER_MARK)


def keep_user_lines(sections: Mapping[str, str], previous: Handoff | None) -> dict[str, str]:
    """Return the sections with the lines that the user wrote into the previous handoff."""
    merged = dict(sections)
    for name, lines in (previous.user_lines if previous is not None else {}).items():
        missing = [line for line in lines if line not in merged.get(name, "").split("\n")]
        merged[name] = "\n".join([*missing, merged.get(name, "")]).strip()
    return merged


def editable_text(text: str) -> str:
    """Return the part of a handoff's text that a person may edit: the sections, without banner, source and end."""
    text = text.replace("\r\n", "\n").split(f"\n{END_MARKER}", 1)[0]
    first = _HEADING.search(text)
    return text[first.start() :].strip() + "\n" if first is not None else ""


def edit_handoff(text: str, edited: str) -> str:
    """Return a handoff's text with its sections replaced, and new lines marked as the user's. Raises ConfigError.

    Lines that would end the handoff, or begin another, are left out.
    """
    if not isinstance(edited, str):  # a mistake of a caller in plain Python
        raise ConfigError(
            f"the sections are one text with headings such as “## {SECTIONS[0]}”, not {type(edited).__name__}"
        )
    before = {line.strip() for line in editable_text(text).split("\n")}
    lines = [line for line in clean(edited).replace("\r\n", "\n").split("\n") if not _FRAME.match(line)]
    is_new = [line.strip() not in before and not line.startswith("## ") and not is_by_user(line) for line in lines]
    marked = [f"{line.rstrip()} {_USER_MARK}" if new else line for line, new in zip(lines, is_new, strict=True)]
    sections = "\n".join(marked).strip()
    if not parse_sections(sections):
        raise ConfigError(f"no section is left: a handoff needs at least one heading, such as “## {SECTIONS[0]}”")
    preface, _, rest = text.partition(editable_text(text).rstrip("\n"))
    if (source := _SOURCE.search(preface)) is not None and source["model"] and EDITED not in source["model"]:
        end = source.end("model")
        preface = f"{preface[:end]}{EDITED}{preface[end:]}"
    return f"{preface}{sections}{rest}"


def source_line(handoff: Handoff) -> str:
    """Render the source line: what the handoff covers, who wrote it, when, and at what cost."""
    count = handoff.message_count
    where = f" ({handoff.address}, open with session_search)" if handoff.address else ""
    when = ""
    if handoff.created_at_ms:
        when = f" on {datetime.fromtimestamp(handoff.created_at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    cost = f"; cost ${handoff.cost_usd:.4f}" if handoff.cost_usd is not None else ""
    what = f"{count} message{'' if count == 1 else 's'}{where}"
    return f"Source: {what}; written by {handoff.model or BY_CODE}{when}{cost}."


def parse_handoff(text: str) -> Handoff | None:
    """Parse a text that begins with a handoff; None if it does not.

    The banner, the explanation under its first line, may be any text.
    """
    if not text.startswith(HANDOFF_FIRST_LINE):
        return None
    # A form or a mail may have changed the ends of its lines.
    text = text.replace("\r\n", "\n").split(f"\n{END_MARKER}", 1)[0]
    preface = text[: m.start()] if (m := _HEADING.search(text)) else text
    source = _SOURCE.search(preface)
    sections = parse_sections(text)
    handoff = Handoff(
        {name: text for name, text in sections.items() if name in SECTIONS},
        record=sections.get(RECORD, ""),
        index=sections.get(INDEX, ""),
        notebook=sections.get(NOTEBOOK, ""),
        windows=sections.get(WINDOWS, ""),
    )
    if source is None:
        return handoff
    model = source["model"] or ""
    return replace(
        handoff,
        covers=parse_address(source["address"] or ""),
        message_count=int(source["count"]),
        model="" if model == BY_CODE else model,
        created_at_ms=_epoch_ms(source["when"]),
        cost_usd=float(source["cost"]) if source["cost"] else None,
        has_image=f"\n{ATTACHED}\n" in preface,
    )


def parse_sections(text: str) -> dict[str, str]:
    """Parse the text under each of our headings; texts under a repeated heading are concatenated."""
    sections: dict[str, str] = {}
    heads = list(_HEADING.finditer(text))
    for head, following in zip_longest(heads, heads[1:]):
        body = text[head.end() : following.start() if following else len(text)].strip()
        if body and body.rstrip(".").lower() != NOTHING.lower():
            sections[head[1]] = f"{sections[head[1]]}\n{body}" if head[1] in sections else body
    return sections


def handoff_of(message: Message) -> Handoff | None:
    """Parse the handoff of a message, also of one merged with a later message."""
    first = message.parts[0] if message.parts else None
    return parse_handoff(first.text) if isinstance(first, TextPart) else None


def split_merged(message: Message, is_ours: Callable[[str], bool]) -> tuple[Message, ...]:
    """Split a handoff from the message it was merged with; any other message is returned alone.

    A text that looks like a handoff but is not ours becomes a note.
    """
    first = message.parts[0] if message.parts else None
    if not looks_like_handoff(message) or not isinstance(first, TextPart):
        return (message,)
    kind: Kind = "handoff" if is_ours(first.text) else "note"
    if not is_merged(message):
        return (replace(message, kind=kind),)
    parts = _parted_at_end(message.parts)
    own = _own_parts(parts)
    first = parts[0]
    mine = first.text if own == 1 and isinstance(first, TextPart) else parts[:own]
    rest: Content = parts[own:] or None
    if isinstance(rest, tuple) and len(rest) == 1 and isinstance(rest[0], TextPart) and not rest[0].extra:
        rest = rest[0].text
    behind = replace(message, content=rest, kind=kind_of(message.role, rest))
    return (Message(message.role, mine, kind=kind), *split_merged(behind, is_ours))


def looks_like_handoff(message: Message) -> bool:
    """Whether a message of the user or the assistant begins the way a handoff does."""
    if message.role not in ("user", "assistant"):
        return False
    content = message.content
    if isinstance(content, str):  # as almost every one
        return content.startswith(HANDOFF_FIRST_LINE)
    first = content[0] if content else None
    return isinstance(first, TextPart) and first.text.startswith(HANDOFF_FIRST_LINE)


def is_merged(message: Message) -> bool:
    """Whether a message has content of its own after what looks like a handoff."""
    if not looks_like_handoff(message):
        return False
    parts = message.parts
    return len(_parted_at_end(parts)) > _own_parts(parts) or bool(message.tool_calls)


def _own_parts(parts: Sequence[Part]) -> int:
    """Return how many of a message's parts belong to the handoff it begins with."""
    first = parts[0] if parts else None
    if not isinstance(first, TextPart) or len(parts) < 2 or not isinstance(parts[1], ImagePart):
        return 1
    return 2 if f"\n{ATTACHED}\n" in first.text.split("\n## ", 1)[0] else 1


def _parted_at_end(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Split the text after the end marker into a part of its own.

    A client that sends plain strings joins the two parts, and the text after the handoff must not be lost with it.
    """
    first = parts[0]
    if not isinstance(first, TextPart) or first.text.endswith(END_MARKER):
        return parts
    text, marker, behind = first.text.partition(f"\n{END_MARKER}")
    if not behind.strip():
        return parts
    own = _own_parts(parts)
    return (TextPart(text + marker, first.extra), *parts[1:own], TextPart(behind.strip("\n")), *parts[own:])


def parse_address(address: str) -> tuple[Interval, ...]:
    """Parse an address such as `m:3-154,170` into intervals."""
    intervals = []
    for piece in address.removeprefix("m:").split(","):
        lo, _, hi = piece.partition("-")
        if lo.isdigit() and (not hi or hi.isdigit()):
            intervals.append((int(lo), int(hi or lo)))
    return tuple(intervals)


def _tidy(text: str) -> str:
    """Escape lines that would parse as a heading, a source line or an end marker.

    JSON arguments may escape a lone surrogate, which no encoder accepts.
    """
    return _BREAKS.sub(lambda m: "###" if m[0] else "\\", clean(text.strip()))


def _epoch_ms(when: str | None) -> int:
    return int(datetime.strptime(when, "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp() * 1000) if when else 0


_MARK = "Seal: "
_HEX_CHARS = 24
# Length that a seal adds to a handoff.
SEAL_CHARS = len(_MARK) + _HEX_CHARS + 1
# Room for the sealed frame of a handoff, whose length varies with the figures and names in it.
LEAST_HANDOFF_CHARS = 500


def check_handoff_options(max_chars: int | None, key: bytes | None) -> None:
    """Raise ConfigError for a limit that no handoff can keep, or a key that seals nothing."""
    if max_chars is not None and max_chars < LEAST_HANDOFF_CHARS:
        raise ConfigError(f"handoff_max_chars is at least {LEAST_HANDOFF_CHARS}, or None; given: {max_chars!r}")
    if key is not None and not key:
        raise ConfigError("handoff_key is empty: anybody could seal a handoff with it; pass random bytes")


# Hex digits come to up to one token for each 1.5 of them.
SEAL_TOKENS = 20


def seal(text: str, key: bytes) -> str:
    """Insert the seal as the second line of a handoff."""
    first, _, rest = text.partition("\n")
    return f"{first}\n{_MARK}{_checksum(first, rest, key)}\n{rest}"


def is_sealed(text: str, key: bytes) -> bool:
    """Whether a text is a handoff with a valid seal for this key, ignoring line endings."""
    if not text.startswith(HANDOFF_FIRST_LINE):
        return False
    first, _, rest = text.replace("\r\n", "\n").partition("\n")
    line, _, rest = rest.partition("\n")
    checksum = line.strip().removeprefix(_MARK)
    return hmac.compare_digest(checksum.encode("utf-8", "replace"), _checksum(first, rest, key).encode())


def default_key() -> bytes:
    """Return the seal key of this installation; one of this process if its folder is not writable."""
    try:
        return installation_key(home_dir())
    except ConfigError:
        return _process_key()


@cache
def _process_key() -> bytes:
    return secrets.token_bytes(32)


def _checksum(first: str, rest: str, key: bytes) -> str:
    body = rest.partition(f"\n{END_MARKER}")[0]
    lines = "\n".join(line.rstrip() for line in (first, *body.splitlines()))
    return hmac.new(key, lines.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:_HEX_CHARS]


def compaction_note() -> str:
    """Return the text of the note that is added to the system message after a compaction."""
    return prompts.load("compaction_note_plain").strip()


def with_compaction_note(messages: Sequence[Mapping[str, Any]], front: int) -> list[Mapping[str, Any]]:
    """Append the note to the last of the `front` leading system messages, once; without any, change nothing.

    The text before the note is unchanged, so that the cached prefix stays valid; a list of parts gets one more part.
    """
    if not front:
        return list(messages)
    return [*messages[: front - 1], _append_note(messages[front - 1]), *messages[front:]]


def needs_note(message: Message) -> bool:
    """Whether a system message lacks the note about the handoff."""
    return compaction_note() not in message.text


def _append_note(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    note, content = compaction_note(), raw.get("content")
    if not needs_note(Message.from_dict(raw)):
        return raw
    if isinstance(content, list | tuple):
        return {**raw, "content": [*content, {"type": "text", "text": note}]}
    return {**raw, "content": f"{content}\n\n{note}" if content else note}
