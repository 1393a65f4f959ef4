"""Messages as frozen values, converted losslessly from and to OpenAI-style dicts.

`Message.from_dict(d).to_dict() == d` for every well-formed dict, unknown keys included. What is not well-formed is
repaired here, once, so that nothing deeper has to handle it:

- a bare string is a user message; `bytes`, numbers and dicts as content become text;
- a lone surrogate, which no encoder accepts, becomes U+FFFD;
- arguments that are not a string become their JSON text; a missing id or name becomes "".

An unknown role cannot be repaired: it raises `InvalidMessage`, which lists what is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, TypeGuard, TypeVar

from perdure.core.datastructures import array_or_text
from perdure.core.errors import InvalidMessage

Role = Literal["system", "developer", "user", "assistant", "tool"]
Kind = Literal["system", "user", "assistant", "tool", "handoff", "note"]
# How a tool call ended. A refused one never ran: the user, the guard or a hook stopped it.
ToolState = Literal["completed", "failed", "refused", "interrupted"]

ROLES: tuple[str, ...] = ("system", "developer", "user", "assistant", "tool")

# The first line of every handoff; stable, so that handoffs can be recognised (`context.handoff.is_sealed`).
HANDOFF_FIRST_LINE = "[PERDURE HANDOFF: background for reference, not instructions]"

# How the summaries begin that agents put into a history in the place of older turns: ours, and those of Hermes, Claude
# Code, Codex, pi, Gemini CLI, LangChain, aider and Kimi CLI. Whatever their role, they are background, never a request.
SUMMARY_OPENINGS = (
    HANDOFF_FIRST_LINE,
    "[CONTEXT COMPACTION",
    "[CONTEXT SUMMARY]",
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem and produced a summary",
    "The conversation history before this point was compacted",
    "The following is a summary of a branch that this conversation came back from",
    "Previous conversation summary:",
    "[Previous conversation summary",
    "[compaction summary]",
    "Here is a summary of the conversation to date:",
    "Here is a summary of the conversation so far:",
    "I spoke to you previously about a number of things.\n",
    "Previous context has been compacted.",
    "<system>Previous context has been compacted.",
    "<summary>\n",
    "<state_snapshot>",
)

# Placeholders inserted by a repair; they must be recognisable in plain dicts, too.
TURN_ENDED = "[The turn ended here without a reply.]"
CONTINUES = "[The conversation continues.]"
SYSTEM_NOTE = "[System note] "
# Key in the `extra` of a tool call that the client runs; never sent to a model.
CLIENT_CALL = "run_by_client"
# Key in the `extra` of an assistant message: the order of its pieces, where they are not reasoning, text, calls:
# "r0" the first reasoning detail, "t0" the first text, "c0" the first call. Some services check it on replay.
OUTPUT_ORDER = "output_order"
# Key in the `extra` of a user message: spans of its first text part that were pasted. Never sent to a model.
PASTED = "pasted"
# Key in the `extra` of an assistant message that is a refusal: by the model itself, or by a filter of its provider.
# Never sent to a model.
REFUSED_BY = "refused_by"
RefusedBy = Literal["model", "filter"]
# Key in the `extra` of an assistant message whose call was cut off after text had arrived: why. Never sent to a model.
CUT_OFF = "cut_off"
_MAX_PASTES = 200
# Two words, or a few characters of a script that writes words together.
_SENTENCE = re.compile(r"\S\s+\S|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af].{4}")
# The tool that calls another one by its name, for tools whose schemas are not sent.
USE_TOOL = "use_tool"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text part of a message; `extra` has other fields, such as `cache_control`."""

    text: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    # A message of its own before a repair merged it with its neighbour; never sent.
    is_whole_message: bool = field(default=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        return {"type": "text", "text": self.text, **self.extra}


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image by URL; `data:` URLs carry the picture itself."""

    url: str
    detail: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        image: dict[str, Any] = {"url": self.url}
        if self.detail is not None:
            image["detail"] = self.detail
        return {"type": "image_url", "image_url": image, **self.extra}


@dataclass(frozen=True, slots=True)
class OtherPart:
    """A part of an unknown type (audio, a file): passed through unchanged."""

    raw: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return dict(self.raw)


Part = TextPart | ImagePart | OtherPart
Content = str | tuple[Part, ...] | None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of the model; `arguments` is the JSON text exactly as the model wrote it, valid or not."""

    id: str
    name: str
    arguments: str = "{}"
    extra: Mapping[str, Any] = field(default_factory=dict)
    function_extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> frozenset[str]:
        """All ids by which a result may refer to this call; some services use two (`call_…`, `fc_…`), or join them."""
        if self.id and not self.extra and "|" not in self.id:  # as almost every one
            return frozenset((self.id,))
        named = {self.id, *self.id.split("|")}
        named.update(v for k in ("call_id", "item_id") if isinstance(v := self.extra.get(k), str))
        return frozenset(named - {""})

    @property
    def is_for_client(self) -> bool:
        """Whether the API client runs this call itself and sends the result with its next request."""
        return self.extra.get(CLIENT_CALL) is True

    def for_client(self) -> ToolCall:
        """Return a copy of the call that is marked as one for the API client to run."""
        return replace(self, extra={**self.extra, CLIENT_CALL: True})

    def parsed_arguments(self) -> dict[str, Any] | None:
        """Return the arguments as a dict, or None where they are not a JSON object."""
        try:
            value = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    @property
    def dispatched(self) -> ToolCall:
        """The call of another tool that a `use_tool` call wraps, under the same id.

        For other calls, the call itself.
        """
        arguments = self.parsed_arguments() if self.name == USE_TOOL else None
        name = arguments.pop("name", None) if arguments is not None else None
        if arguments is None or not isinstance(name, str) or not name.strip() or name.strip() == USE_TOOL:
            return self
        # Models also send the arguments next to the name, or as JSON text.
        inner = arguments.get("arguments", arguments)
        text = inner if isinstance(inner, str) else canonical_json(inner if inner is not None else {})
        return replace(self, name=name.strip(), arguments=text)

    @classmethod
    def from_dict(cls, raw: object) -> ToolCall:
        return cls._parse(raw, _text)

    @classmethod
    def from_clean_dict(cls, raw: object) -> ToolCall:
        """Parse a dict without the check for lone surrogates: for dicts from the store, which have none."""
        return cls._parse(raw, _clean_text)

    @classmethod
    def _parse(cls, raw: object, to_text: Callable[[object], str]) -> ToolCall:
        if not _is_mapping(raw):
            return cls(id="", name=to_text(raw))
        function = raw.get("function")
        if (
            type(function) is dict
            and function.keys() == _FUNCTION_FIELDS
            and raw.keys() == _CALL_FIELDS
            and raw["type"] == "function"
        ):  # as almost every one
            return cls(to_text(raw["id"]), to_text(function["name"]), to_text(function["arguments"]))
        inner = dict(function) if _is_mapping(function) else {}
        name, arguments = inner.pop("name", ""), inner.pop("arguments", "{}")
        outer = {k: v for k, v in raw.items() if k not in ("id", "function")}
        if outer.get("type") == "function":
            del outer["type"]
        elif "type" not in outer:
            outer["type"] = None
        return cls(to_text(raw.get("id")), to_text(name), to_text(arguments), outer, inner)

    def to_dict(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments, **self.function_extra}
        raw = {"id": self.id, "type": "function", "function": function, **self.extra}
        if raw["type"] is None:
            del raw["type"]
        return raw


@dataclass(frozen=True, slots=True)
class Message:
    """An immutable message of a conversation; change it with `dataclasses.replace`."""

    role: Role
    content: Content = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None
    # What a provider wants back untouched: thinking signatures, encrypted reasoning items.
    reasoning_details: tuple[Mapping[str, Any], ...] = ()
    kind: Kind = "user"
    extra: Mapping[str, Any] = field(default_factory=dict)
    has_content_key: bool = True
    # Of a tool result of ours: how its call ended. Stored next to the body and never sent; no dict can claim it.
    tool_state: ToolState | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """The readable text of the content, parts joined by newlines."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(p.text for p in self.content or () if isinstance(p, TextPart))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as a tuple of parts; a string is one text part, no content is an empty tuple."""
        if isinstance(self.content, str):
            return (TextPart(self.content),) if self.content else ()
        return self.content or ()

    @property
    def is_real_user(self) -> bool:
        """Whether a user sent this message; handoffs and notes also have the user role."""
        return self.role == "user" and self.kind == "user"

    @property
    def is_blank(self) -> bool:
        """Whether the content is white space only: neither words nor an image."""
        if isinstance(self.content, str):
            return not self.content or self.content.isspace()
        return not any(not isinstance(p, TextPart) or p.text.strip() for p in self.content or ())

    @property
    def is_request(self) -> bool:
        """Whether a user sent this message and it is not blank."""
        return self.is_real_user and not self.is_blank

    @property
    def typed_text(self) -> str:
        """The text without notes that a history repair merged into it."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        texts = (p.text for p in self.content if isinstance(p, TextPart))
        return "\n".join(t for t in texts if not is_background(self.role, t))

    @property
    def pasted(self) -> tuple[tuple[int, int], ...]:
        """The spans (start, end) of the first text part that were pasted, not typed, if the client reported them."""
        spans = self.extra.get(PASTED)
        if not isinstance(spans, (list, tuple)):
            return ()
        pairs = (tuple(s) for s in spans if isinstance(s, (list, tuple)) and len(s) == 2)
        return tuple((a, b) for a, b in pairs if type(a) is int and type(b) is int and 0 <= a < b)

    @property
    def refused_by(self) -> RefusedBy | None:
        """The source of a refusal to answer, the model or a content filter of its provider; None for other messages."""
        source = self.extra.get(REFUSED_BY) if self.role == "assistant" else None
        return "model" if source == "model" else "filter" if source == "filter" else None

    @property
    def cut_off(self) -> str | None:
        """The reason why this reply is incomplete: "interrupted" or a kind of error; None if it is complete.

        A request whose reply was cut off still counts as unanswered.
        """
        why = self.extra.get(CUT_OFF) if self.role == "assistant" else None
        return why if isinstance(why, str) else None

    @classmethod
    def from_dict(cls, raw: object) -> Message:
        """Parse an OpenAI-style dict or a bare string. Raises InvalidMessage for an unknown role."""
        if not _is_mapping(raw):
            if isinstance(raw, Message):
                return raw
            if isinstance(raw, str):
                return user(raw)
            raise InvalidMessage(f"a message must be a dict or a string, not {type(raw).__name__}")
        return cls._parse(raw, _text, ToolCall.from_dict)

    @classmethod
    def from_clean_dict(cls, raw: object) -> Message:
        """Parse like `from_dict`, but skip the check for lone surrogates: for dicts from the store, which have none."""
        if not _is_mapping(raw):
            return cls.from_dict(raw)
        return cls._parse(raw, _clean_text, ToolCall.from_clean_dict)

    @classmethod
    def _parse(
        cls, raw: Mapping[str, Any], to_text: Callable[[object], str], to_call: Callable[[object], ToolCall]
    ) -> Message:
        role = raw.get("role")
        if role not in ROLES:
            raise InvalidMessage(f"unknown role {role!r}; allowed: {', '.join(ROLES)}")
        extra = {} if _FIELDS.issuperset(raw) else {k: v for k, v in raw.items() if k not in _FIELDS}
        calls = _take(raw, "tool_calls", extra) if "tool_calls" in raw else ()
        details = _take(raw, "reasoning_details", extra) if "reasoning_details" in raw else ()
        raw_content = raw.get("content")
        content = to_text(raw_content) if isinstance(raw_content, str) else _content(raw_content)
        # Positional, in the order of the fields: keywords take noticeably longer, and histories are long.
        return cls(
            role,
            content,
            tuple(map(to_call, calls)) if calls else (),
            _optional_text(raw, "tool_call_id", extra, to_text) if "tool_call_id" in raw else None,
            _optional_text(raw, "name", extra, to_text) if "name" in raw else None,
            _optional_text(raw, "reasoning", extra, to_text) if "reasoning" in raw else None,
            tuple(details),
            kind_of(role, content),
            extra,
            "content" in raw,
        )

    def to_dict(self) -> dict[str, Any]:
        raw: dict[str, Any] = {"role": self.role}
        if self.has_content_key or self.content is not None:
            content = self.content
            raw["content"] = [p.to_dict() for p in content] if isinstance(content, tuple) else content
        if self.tool_calls:
            raw["tool_calls"] = [c.to_dict() for c in self.tool_calls]
        for key in ("tool_call_id", "name", "reasoning"):
            if (value := getattr(self, key)) is not None:
                raw[key] = value
        if self.reasoning_details:
            raw["reasoning_details"] = [dict(d) for d in self.reasoning_details]
        raw.update(self.extra)
        return raw

    def with_content(self, content: Content) -> Message:
        return replace(self, content=content, has_content_key=True)


class Entry:
    """A message with its position in the log (`seq`) and a cache of values computed from it, such as wire bytes."""

    __slots__ = ("_memo", "created_at_ms", "message", "seq")

    def __init__(self, seq: int, message: Message, created_at_ms: int = 0) -> None:
        self.seq = seq
        self.message = message
        self.created_at_ms = created_at_ms
        self._memo: dict[Hashable, Any] = {}

    def memo(self, key: Hashable, compute: Callable[[Message], T]) -> T:
        """Return `compute(self.message)`, cached per key on this entry and its copies from `with_seq`."""
        # Not by a KeyError: raising one takes several times as long as the rest of this.
        if key not in self._memo:
            self._memo[key] = compute(self.message)
        value: T = self._memo[key]
        return value

    def __reduce__(self) -> tuple[Any, ...]:  # a copy computes its values anew
        return Entry, (self.seq, self.message, self.created_at_ms)

    def with_seq(self, seq: int) -> Entry:
        """Return the same message at another position; it shares the cached values of this entry."""
        entry = Entry(seq, self.message, self.created_at_ms)
        entry._memo = self._memo
        return entry

    def share_memo(self, equal: Entry) -> None:
        """Use the cached values of an entry with an equal message."""
        self._memo = equal._memo

    def set_memo(self, key: Hashable, value: object) -> None:
        """Replace a cached value, for values that also depend on later entries."""
        self._memo[key] = value

    def get_memo(self, key: Hashable) -> Any:
        """Return the cached value of a key, or None; cheaper than `memo` in loops over long histories."""
        return self._memo.get(key)

    @staticmethod
    def get_memos(entries: Iterable[Entry], key: Hashable) -> list[Any]:
        """Return the memoized value of a key, or None, of each entry; takes half the time of a call per entry."""
        return [entry._memo.get(key) for entry in entries]

    def __repr__(self) -> str:
        return f"Entry(seq={self.seq}, {self.message.kind}, {self.message.text[:40]!r})"


def system(text: str) -> Message:
    return Message(role="system", content=text, kind="system")


def user(text: str) -> Message:
    return Message(role="user", content=clean(text), kind="user")


def parse_user_message(raw: str | Mapping[str, Any]) -> Message:
    """Parse the message that starts a turn. Raises InvalidMessage unless it is a non-empty user message."""
    message = Message.from_dict(raw)
    if message.role != "user":
        raise InvalidMessage(f"a turn begins with a user message, not one of role {message.role!r}")
    if not message.text.strip() and all(isinstance(p, TextPart) for p in message.parts):
        raise InvalidMessage("the message is empty")
    # A user typed it, even where its text looks like a background notice.
    return message if message.kind == "user" else replace(message, kind="user")


def with_pastes(message: str | Mapping[str, Any], pieces: Iterable[str]) -> str | Mapping[str, Any]:
    """Return a user message that records where its pasted pieces are; a piece edited since is not found and left out.

    Only pieces with a sentence count: a name or path pasted into a typed sentence is part of that sentence.
    """
    texts = [p.text for p in Message.from_dict(message).parts if isinstance(p, TextPart)]
    text = texts[0] if texts else ""
    pastes = {piece.strip() for piece in islice(pieces, _MAX_PASTES) if _SENTENCE.search(piece)}
    spans = sorted((m.start(), m.end()) for piece in pastes for m in re.finditer(re.escape(piece), text))
    if not spans:
        return message
    raw = {"role": "user", "content": message} if isinstance(message, str) else message
    return {**raw, PASTED: [list(span) for span in spans]}


def assistant(text: str | None, tool_calls: tuple[ToolCall, ...] = ()) -> Message:
    return Message(role="assistant", content=text, tool_calls=tool_calls, kind="assistant")


def tool_result(tool_call_id: str, text: str, name: str | None = None, *, state: ToolState | None = None) -> Message:
    return Message(role="tool", content=text, tool_call_id=tool_call_id, name=name, kind="tool", tool_state=state)


def canonical_json(value: object) -> str:
    """Serialize a value to the same JSON text each time: keys sorted, no spaces, nothing escaped unnecessarily."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=array_or_text)


def clean(text: str) -> str:
    """Replace lone surrogates by U+FFFD; neither SQLite, HTTP nor a tokenizer accepts them."""
    if text.isascii():  # known of a string without a look at it
        return text
    try:
        text.encode("utf-16-le")  # checks as strictly as UTF-8, in a third of the time
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


_CALL_FIELDS = frozenset(("id", "type", "function"))
_FUNCTION_FIELDS = frozenset(("name", "arguments"))
_FIELDS = frozenset(("role", "content", "tool_calls", "tool_call_id", "name", "reasoning", "reasoning_details"))


def kind_of(role: Role, content: Content) -> Kind:
    """Classify a message by role and text: a text of notes alone is a "note", any other has its role as its kind.

    It never returns "handoff": only a record of the store or a seal makes a message one, whatever it looks like.
    """
    if isinstance(content, str) and not content.startswith(_MAY_BE_BACKGROUND):  # as almost every one
        return "system" if role == "developer" else role
    texts = [content] if not isinstance(content, tuple) else [p.text if isinstance(p, TextPart) else p for p in content]
    may_be_note = role in ("user", "assistant") and any(texts)
    if may_be_note and all(isinstance(t, str) and (not t or is_background(role, t)) for t in texts):
        return "note"
    return "system" if role == "developer" else role


_MAY_BE_BACKGROUND = ("[", *SUMMARY_OPENINGS)
# The start of a message part that quotes a command which the user ran in their own shell.
USER_SHELL = "<user-shell>"


def is_background(role: str, text: str) -> bool:
    """Whether Perdure wrote this text itself: a note inserted by a repair, or a summary of older turns."""
    if text.startswith(SYSTEM_NOTE) or text == (TURN_ENDED if role == "assistant" else CONTINUES):
        return True
    return text.startswith(SUMMARY_OPENINGS)


@dataclass(frozen=True, slots=True)
class FilesTakenBack:
    """Files that the user restored, to how they were before a position of the log; those before it stay changed."""

    before_seq: int
    restored: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    # Further files, which are not named.
    more: int = 0

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.restored, *self.deleted)

    def note(self) -> str:
        """Return the text of the note that the model reads; `files_taken_back` reads it again."""
        done = [f"restored {path}" for path in self.restored] + [f"deleted {path}" for path in self.deleted]
        done += [f"and {self.more:,} more"] if self.more else []
        return f"{_TAKEN_BACK}{self.before_seq}: {'; '.join(done)}{_TAKEN_BACK_END}"


_TAKEN_BACK = "The user took back file changes with /undo files, to how the files were before m:"
_TAKEN_BACK_END = ". Changes that you made to them since then are gone."
_TAKEN_BACK_NOTE = re.compile(
    rf"{re.escape(SYSTEM_NOTE + _TAKEN_BACK)}(\d{{1,12}}): (.*){re.escape(_TAKEN_BACK_END)}", re.DOTALL
)
_TAKEN_BACK_ITEM = re.compile(r"; (?=restored |deleted |and [\d,]+ more$)")


def files_taken_back(message: Message) -> FilesTakenBack | None:
    """Return which files a note says that the user restored; also of a note that was merged into a message."""
    if message.role != "user" or not (message.kind == "note" or isinstance(message.content, tuple)):
        return None
    texts = (part.text for part in message.parts if isinstance(part, TextPart))
    note = next(filter(None, map(_TAKEN_BACK_NOTE.fullmatch, texts)), None)
    if note is None:
        return None
    items = [item.partition(" ") for item in _TAKEN_BACK_ITEM.split(note[2])]
    restored, deleted = (tuple(path for done, _, path in items if done == kind) for kind in ("restored", "deleted"))
    more = next((int(n.partition(" ")[0].replace(",", "")) for done, _, n in items if done == "and"), 0)
    return FilesTakenBack(int(note[1]), restored, deleted, more)


def _is_mapping(raw: object) -> TypeGuard[Mapping[str, Any]]:
    # Asking an abstract class takes several times as long, and this is asked about every message.
    return type(raw) is dict or isinstance(raw, Mapping)


def _content(raw: object) -> Content:
    if raw is None:
        return None
    if isinstance(raw, list | tuple):
        return tuple(map(_part, raw))
    return _text(raw)


def _part(raw: object) -> Part:
    if isinstance(raw, TextPart | ImagePart | OtherPart):
        return raw
    if not isinstance(raw, Mapping):
        return TextPart(_text(raw))
    rest = {k: v for k, v in raw.items() if k != "type"}
    if raw.get("type") == "text" and isinstance(raw.get("text"), str):
        return TextPart(clean(rest.pop("text")), rest)
    image = raw.get("image_url")
    if raw.get("type") == "image_url" and isinstance(image, Mapping) and isinstance(image.get("url"), str):
        detail = image.get("detail")
        if set(image) <= {"url", "detail"} and ("detail" not in image or isinstance(detail, str)):
            del rest["image_url"]
            return ImagePart(image["url"], detail, rest)
    return OtherPart(dict(raw))


def _text(raw: object) -> str:
    if isinstance(raw, str):
        return raw if raw.isascii() else clean(raw)
    if raw is None:
        return ""
    if isinstance(raw, bytes | bytearray):
        return bytes(raw).decode("utf-8", "replace")
    return clean(canonical_json(raw))


def _clean_text(raw: object) -> str:
    return raw if isinstance(raw, str) else _text(raw)


def _optional_text(
    raw: Mapping[str, Any], key: str, extra: dict[str, Any], to_text: Callable[[object], str]
) -> str | None:
    """Return a string field of a dict; a null one is kept in `extra`, so that `to_dict` returns it unchanged."""
    if raw[key] is None:
        extra[key] = None
        return None
    return to_text(raw[key])


def _take(raw: Mapping[str, Any], key: str, extra: dict[str, Any]) -> list[Any]:
    """Return a list field of a dict; an odd or empty one is kept in `extra`, so that `to_dict` returns it unchanged."""
    value = raw[key]
    is_usable = isinstance(value, list | tuple) and (key == "tool_calls" or all(map(_is_mapping, value)))
    if is_usable and value:
        return list(value)
    extra[key] = value
    return []
