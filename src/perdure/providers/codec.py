"""Encoding shared by the protocols: message bodies in, reply parts out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote_to_bytes

from perdure.core.errors import ErrorKind, ErrorVerdict, ProviderError
from perdure.core.messages import Content, Entry, ImagePart, Message, OtherPart, Part, TextPart, ToolCall, clean
from perdure.core.rules import find_call
from perdure.providers.types import CallIds, Finish

UNPARSED = "unparsed_arguments"
EMPTY_TEXT = "(no content)"

_ID_RULES: dict[CallIds, re.Pattern[str]] = {
    "openai": re.compile(r"[^\x00-\x1f\x7f]{1,40}"),
    "responses": re.compile(r"[A-Za-z0-9_-]{1,64}"),
    "anthropic": re.compile(r"[A-Za-z0-9_-]{1,64}"),
    "mistral": re.compile(r"[A-Za-z0-9]{9}"),
}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?P<params>(?:;[^;,]*)*),", re.IGNORECASE)
_MEDIA_TYPES = {"image/jpg": "image/jpeg"}


def dumps(value: object) -> bytes:
    """Encode compact JSON as UTF-8; a lone surrogate, which no service accepts, becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace")


def wire_arguments(arguments: str) -> str:
    """The arguments as the text of a JSON object, untouched where they already are one."""
    text = arguments.strip() or "{}"
    value = json_object(text)
    if value is None:
        return dumps({UNPARSED: arguments}).decode()
    if _SURROGATE_ESCAPE.search(text):
        return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return text


def json_object(text: str) -> dict[str, Any] | None:
    """Parse a JSON object; None for anything else, NaN and Infinity included."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def wire_id(call_id: str, rule: CallIds) -> str:
    """Return a call id the service accepts; of two ids joined by a bar, the first is the call's own."""
    first = call_id.partition("|")[0]
    if _ID_RULES[rule].fullmatch(first):
        return first
    digest = hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()
    return digest[:9] if rule == "mistral" else f"call_{digest[:24]}"


def wire_name(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)[:64] or "unnamed_tool"


def data_url(url: str) -> tuple[str, str] | None:
    """Return the media type and base64 text of a `data:` URL; None for any other URL."""
    match = _DATA_URL.match(url)
    if match is None:
        return None
    media_type = (match["type"] or "text/plain").lower()
    data = url[match.end() :]
    if "base64" not in match["params"].lower():
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return _MEDIA_TYPES.get(media_type, media_type), data


def describe_part(part: OtherPart) -> str:
    """Return the placeholder for a part this protocol cannot carry."""
    return f"[{part.raw.get('type') or 'attachment'} omitted: this service does not take it here]"


def texts_of(parts: Sequence[Part]) -> list[str]:
    """Return the non-empty texts of the parts, without images, unknown parts as placeholders."""
    texts = [p.text if isinstance(p, TextPart) else describe_part(p) for p in parts if not isinstance(p, ImagePart)]
    return [t for t in texts if t]


def join_body(head: dict[str, Any], key: str, pieces: list[bytes]) -> bytes:
    """Build a JSON body from small keys and one long list, whose items are copied once."""
    opening = b"".join((dumps(head)[:-1], b',"', key.encode(), b'":['))
    if not pieces:
        return opening + b"]}"
    pieces[0] = opening + pieces[0]
    pieces[-1] += b"]}"
    return b",".join(pieces)


@dataclass(frozen=True, slots=True)
class Fragment:
    """One encoded message, with what is needed to join it to its neighbours."""

    role: str
    body: bytes
    # Tool call ids: all calls of an assistant message, or the one call of a result.
    ids: frozenset[str] = frozenset()
    # Images of a result that go into a message after it.
    images: tuple[Mapping[str, Any], ...] = ()
    is_markable: bool = True


Encode = Callable[[Message], Fragment]


def encode_entries(entries: Sequence[Entry], key: object, encode: Encode) -> Iterator[Fragment]:
    """Encode each entry, cached for its lifetime; a result under another id of its call gets the call's id."""
    memo_key = ("wire", key)
    caller: Entry | None = None
    open_ids: frozenset[str] = frozenset()
    for entry in entries:
        fragment = entry.memo(memo_key, encode)
        if fragment.role == "assistant":
            caller, open_ids = entry, fragment.ids
        elif fragment.role == "tool" and not fragment.ids <= open_ids:
            fragment = _with_caller_id(entry, caller, encode) or fragment
        yield fragment


def _with_caller_id(entry: Entry, caller: Entry | None, encode: Encode) -> Fragment | None:
    """Encode the result under its call's own id; None where no call matches."""
    named = entry.message.tool_call_id or ""
    calls: tuple[ToolCall, ...] = caller.message.tool_calls if caller is not None else ()
    call = find_call(calls, named)
    return encode(replace(entry.message, tool_call_id=call.id)) if call is not None else None


# The order of a reply's pieces, stored in `Message.extra` where it differs from reasoning, text, calls:
# "r0" the first reasoning detail, "t0" the first text, "c0" the first call. Some services check it on replay.
ORDER = "output_order"


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of reasoning: its readable text, and the detail the service needs back unchanged."""

    text: str = ""
    detail: Mapping[str, Any] | None = None


Piece = str | Thought | ToolCall


def build_message(pieces: Sequence[Piece], *, response_id: str = "", extra: Mapping[str, Any] | None = None) -> Message:
    """Build one assistant message; empty texts are dropped, missing call ids derived from the response id."""
    texts: list[str] = []
    thoughts: list[str] = []
    details: list[Mapping[str, Any]] = []
    calls: list[ToolCall] = []
    order: list[str] = []
    for piece in pieces:
        if isinstance(piece, ToolCall):
            order.append(f"c{len(calls)}")
            calls.append(_with_id(piece, len(calls), response_id))
        elif isinstance(piece, Thought):
            if piece.text:
                thoughts.append(clean(piece.text))
            if piece.detail is not None:
                order.append(f"r{len(details)}")
                details.append(_clean_all(piece.detail))
        elif piece:
            order.append(f"t{len(texts)}")
            texts.append(clean(piece))
    cleaned: dict[str, Any] = _clean_all(extra or {})
    if order != sorted(order, key=lambda o: ("rtc".index(o[0]), int(o[1:]))):
        cleaned[ORDER] = order
    return Message(
        role="assistant",
        content=_content(texts, has_calls=bool(calls)),
        tool_calls=tuple(calls),
        reasoning="\n\n".join(thoughts) or None,
        reasoning_details=tuple(details),
        kind="assistant",
        extra=cleaned,
    )


def split_message(message: Message, details: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | str | ToolCall]:
    """Split a message into its pieces in their original order; `details` are those this protocol may send back.

    Non-text parts are skipped: the content of an assistant message is text on every protocol.
    """
    texts = [p.text for p in message.parts if isinstance(p, TextPart) and p.text]
    order = message.extra.get(ORDER)
    if isinstance(order, list) and details == list(message.reasoning_details):
        return _sort_items(order, {"r": list(details), "t": list(texts), "c": list(message.tool_calls)})
    return [*details, *texts, *message.tool_calls]


def _sort_items(order: Sequence[object], items_by_kind: dict[str, list[Any]]) -> list[Any]:
    """Return the items in the stored order, then the others: a message may have been merged or shortened since."""
    named = {o: _at(items_by_kind, o) for o in order if isinstance(o, str)}
    out = [v for v in named.values() if v is not None]
    for kind in "rtc":
        out += [v for i, v in enumerate(items_by_kind[kind]) if f"{kind}{i}" not in named]
    return out


def _at(items_by_kind: dict[str, list[Any]], key: str) -> Any:
    items, number = items_by_kind.get(key[:1]), key[1:]
    return items[int(number)] if items and number.isascii() and number.isdigit() and int(number) < len(items) else None


def normalize_finish(finish: Finish, message: Message) -> Finish:
    """Return the finish reason; many services send "stop" for a reply with tool calls."""
    return "tool_calls" if message.tool_calls and finish in ("stop", "unknown") else finish


def reply_error(kind: ErrorKind, line: str, *, partial_text: str = "") -> ProviderError:
    return ProviderError(ErrorVerdict(kind=kind, message=line), partial_text=partial_text)


def truncated_reply_error(partial_text: str) -> ProviderError:
    """Return the error for a stream that ended without its last event: it must not enter the history."""
    line = "the reply ended before it was complete and was discarded"
    return reply_error("transport", line, partial_text=partial_text)


def as_map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _clean_all(value: Any) -> Any:
    """Remove lone surrogates, which JSON can encode but UTF-8 cannot."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(k)): _clean_all(v) for k, v in value.items()}
    return [_clean_all(v) for v in value] if isinstance(value, list | tuple) else value


def _content(texts: list[str], *, has_calls: bool) -> Content:
    if len(texts) == 1:
        return texts[0]
    if texts:
        return tuple(TextPart(t) for t in texts)
    return None if has_calls else ""


def _with_id(call: ToolCall, index: int, response_id: str) -> ToolCall:
    extra = _clean_all(call.extra) if call.extra else call.extra
    call = replace(call, id=clean(call.id), name=clean(call.name), arguments=clean(call.arguments), extra=extra)
    if call.id:
        return call
    seed = f"{response_id}|{index}|{call.name}|{call.arguments}"
    return replace(call, id=f"call_{hashlib.sha256(seed.encode('utf-8', 'replace')).hexdigest()[:16]}")
