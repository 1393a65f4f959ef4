"""Encoding shared by the protocols: message bodies, the reasoning that is sent back, cache_control, reply parts.

Reasoning of earlier replies that a request sends back; the rest stays in the log:

| route                                   | what is sent back                                             |
|-----------------------------------------|---------------------------------------------------------------|
| anthropic_messages                      | thinking the service signed, in every turn                    |
| codex_responses                         | encrypted reasoning items, in every turn                      |
| chat_completions, `<think>` tags        | all of it: these models are trained to see it again           |
| chat_completions, a field for reasoning | the current tool loop's; signed or encrypted details always   |
| chat_completions, no such field         | nothing                                                       |

Services with a field for it need the reasoning between a call and its results, and their chat templates drop that of
finished turns. Sending it would only fill the window. Signed reasoning is always sent back: it is small or not billed,
and the cached prefix stays the same.

Prompt caching on Claude routes takes four cache_control blocks, on the system prompt and the last three messages. They
are set on copies when a request is built: neither the messages passed in nor the encoded bytes cached for a message
contain them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from perdure.core.arguments import MESSAGE, MESSAGES, check_arguments, require
from perdure.core.errors import ConfigError, ErrorKind, ErrorVerdict, ProviderError
from perdure.core.messages import (
    OUTPUT_ORDER,
    Content,
    Entry,
    ImagePart,
    Message,
    OtherPart,
    Part,
    TextPart,
    ToolCall,
    clean,
)
from perdure.core.rules import find_call
from perdure.providers.registry import find_provider, is_own_host, quirks_of
from perdure.providers.types import ApiMode, CacheTtl, CallIds, Endpoint, Finish, ReasoningField

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


JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}


def merge_headers(*layers: Mapping[str, str]) -> dict[str, str]:
    """Merge header fields; later layers win. Names become lower case: the same name in two cases is one field.

    Sent as two fields, it makes some servers refuse the request.
    """
    return {name.lower(): value for layer in layers for name, value in layer.items()}


def dumps(value: object) -> bytes:
    """Encode compact JSON as UTF-8; a lone surrogate, which no service accepts, becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace")


def wire_arguments(arguments: str) -> str:
    """Return tool call arguments as the text of a JSON object; any other text is wrapped in one."""
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
    """Return a call id in the form that the service accepts; of two ids joined by `|`, the first."""
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
    """Build a JSON body from small keys and a long list of encoded items, copying the items once."""
    opening = b"".join((dumps(head)[:-1], b',"', key.encode(), b'":['))
    if not pieces:
        return opening + b"]}"
    pieces[0] = opening + pieces[0]
    pieces[-1] += b"]}"
    return b",".join(pieces)


@dataclass(frozen=True, slots=True)
class Fragment:
    """An encoded message, with the data needed to merge it with its neighbours."""

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
    """Encode a tool result under the id of its call; None if no call matches."""
    named = entry.message.tool_call_id or ""
    calls: tuple[ToolCall, ...] = caller.message.tool_calls if caller is not None else ()
    call = find_call(calls, named)
    return encode(replace(entry.message, tool_call_id=call.id)) if call is not None else None


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
        cleaned[OUTPUT_ORDER] = order
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
    """Split a message into reasoning details, texts and calls; `details` are those that this protocol can replay.

    The stored order is restored only if they are all of the message's details.

    Non-text parts are skipped: the content of an assistant message is text on every protocol.
    """
    texts = [p.text for p in message.parts if isinstance(p, TextPart) and p.text]
    order = message.extra.get(OUTPUT_ORDER)
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


_JSON = json.JSONDecoder()


class PartialReply(Protocol):
    """A stream parser, for errors that keep the text received so far."""

    @property
    def partial_text(self) -> str: ...


def decode_event(data: str, stream: PartialReply) -> dict[str, Any] | None:
    """Return the JSON object of an event; None for another JSON value. Raises ProviderError for invalid JSON."""
    try:
        # `json.loads` would look for the white space around the value, which `data` does not have.
        value, end = _JSON.raw_decode(data)
        if end != len(data):
            raise ValueError("more than one value")
    except (ValueError, RecursionError):
        line = "the stream contains invalid JSON"
        raise reply_error("transport", line, partial_text=stream.partial_text) from None
    return value if isinstance(value, dict) else None


def reply_error(kind: ErrorKind, line: str, *, partial_text: str = "") -> ProviderError:
    return ProviderError(ErrorVerdict(kind=kind, message=line), partial_text=partial_text)


def truncated_reply_error(partial_text: str) -> ProviderError:
    """Return the error for a stream that ended without its last event: it must not enter the history."""
    line = "the reply ended before it was complete"
    return reply_error("transport", line, partial_text=partial_text)


def as_map(value: object) -> Mapping[str, Any]:
    # Parsed JSON is a dict: the test against the abstract class takes several times as long.
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


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


_EXTRAS = ("reasoning_content", "thinking")
_SHORT_CHARS = 300
_SEALS = ("signature", "encrypted_content", "data")


@dataclass(frozen=True, slots=True)
class ReasoningRule:
    """Decides which reasoning of earlier replies an endpoint gets back (the table at the top of this module)."""

    mode: ApiMode
    field: ReasoningField | None = None

    @classmethod
    def of(cls, endpoint: Endpoint) -> ReasoningRule:
        quirks = quirks_of(
            endpoint.provider, model=endpoint.model, base_url=endpoint.base_url, api_mode=endpoint.api_mode
        )
        return cls(endpoint.api_mode, quirks.reasoning_field)

    def filter_message(self, message: Message, *, is_current: bool) -> Message:
        """Return the message with only the reasoning that is sent back.

        `is_current` means that the message belongs to the tool loop that is still running.
        """
        if not has_reasoning(message):
            return message
        if self.mode != "chat_completions":
            details = message.reasoning_details
            # All or nothing: the details of two services in one message cannot be separated again.
            return _with(message, None, details if any(map(_is_sealed, details)) else ())
        if self.field == "think_tags":
            return _with(message, message.reasoning, ())
        text = message.reasoning if is_current and self.field is not None else None
        if self.field != "reasoning":
            return _with(message, text, ())
        return _with(message, text, tuple(d for d in message.reasoning_details if is_current or _is_sealed(d)))


def shorten_reasoning(message: Message) -> Message:
    """Cut readable reasoning to its start and end; it cannot be dropped, as some services refuse a call without it."""
    text = message.reasoning
    if not text or len(text) <= 2 * _SHORT_CHARS:
        return message
    short = f"{text[:_SHORT_CHARS]} [… reasoning omitted …] {text[-_SHORT_CHARS:]}"
    return _with(message, short, tuple(d for d in message.reasoning_details if _is_sealed(d)))


def has_reasoning(message: Message) -> bool:
    return bool(message.reasoning or message.reasoning_details) or any(key in message.extra for key in _EXTRAS)


def _is_sealed(detail: Mapping[str, Any]) -> bool:
    return any(detail.get(key) for key in _SEALS) or detail.get("type") == "redacted_thinking"


def _with(message: Message, text: str | None, details: tuple[Mapping[str, Any], ...]) -> Message:
    has_extras = any(key in message.extra for key in _EXTRAS)
    if text == message.reasoning and details == message.reasoning_details and not has_extras:
        return message
    extra = {k: v for k, v in message.extra.items() if k not in _EXTRAS} if has_extras else message.extra
    return replace(message, reasoning=text, reasoning_details=details, extra=extra)


CacheControl = Mapping[str, str]

MARKED_MESSAGES = 3

_CLAUDE = re.compile(r"(?:^|[/.:_~@-])claude(?:$|[^a-z])", re.IGNORECASE)


def make_cache_control(ttl: str) -> dict[str, str]:
    """Return the cache_control value for a TTL; five minutes is the default and is omitted."""
    if ttl == "5m":
        return {"type": "ephemeral"}
    if ttl == "1h":
        return {"type": "ephemeral", "ttl": "1h"}
    raise ConfigError(f"prompt_caching.cache_ttl is {ttl!r}; allowed: 5m, 1h")


def supports_caching(provider: str, model: str) -> bool:
    """Whether this is a Claude model on a provider that supports cache_control."""
    row = find_provider(provider)
    return row is not None and row.quirks.supports_cache_control and bool(_CLAUDE.search(model))


_BREAKPOINT = {"mode": "explicit"}
# GPT-5.6 and later.
_HAS_BREAKPOINTS = re.compile(r"gpt-(?:5\.(?:[6-9]|\d\d)|[6-9]|\d\d)(?:$|[^0-9])", re.IGNORECASE)
_BREAKPOINT_LIFETIME_S = 1_800.0


def supports_breakpoints(endpoint: Endpoint) -> bool:
    """Whether OpenAI's own service serves a model that takes explicit breakpoints there."""
    row = find_provider(endpoint.provider)
    is_listed = row is not None and row.quirks.takes_cache_breakpoints and is_own_host(endpoint)
    return is_listed and _HAS_BREAKPOINTS.match(endpoint.model) is not None


def system_parts(blocks: Sequence[str], kind: str, mark: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the system prompt as content parts; the first block, which every session shares, carries the mark."""
    parts: list[dict[str, Any]] = [{"type": kind, "text": text} for text in blocks]
    return [{**parts[0], **mark}, *parts[1:]] if parts else []


def breakpoint_mark() -> dict[str, Any]:
    """Return the key that makes the end of a content part an explicit breakpoint."""
    return {"prompt_cache_breakpoint": dict(_BREAKPOINT)}


def last_markable(is_markable: Sequence[bool], count: int = MARKED_MESSAGES) -> list[int]:
    """Return the indexes of the last `count` messages that can carry cache_control, last first."""
    indexes: list[int] = []
    for i in range(len(is_markable) - 1, -1, -1):
        if is_markable[i]:
            indexes.append(i)
            if len(indexes) == count:
                break
    return indexes


def cache_ttl_for(provider: str, model: str, ttl: CacheTtl) -> CacheTtl | None:
    """Return the cache TTL for a route; None where cache_control is not supported."""
    make_cache_control(ttl)
    return ttl if supports_caching(provider, model) else None


_TTL_S: Mapping[CacheTtl, float] = {"5m": 300.0, "1h": 3_600.0}


def prefix_lifetime_s(endpoint: Endpoint, ttl: CacheTtl) -> float | None:
    """Return how long the provider serves a cached prefix after its last use; None where that is not known."""
    if (marked := cache_ttl_for(endpoint.provider, endpoint.model, ttl)) is not None:
        return _TTL_S[marked]
    if supports_breakpoints(endpoint):
        return _BREAKPOINT_LIFETIME_S
    row = find_provider(endpoint.provider)
    return row.quirks.cache_lifetime_s if row is not None else None


def caching_notice(provider: str, model: str, ttl: CacheTtl) -> str | None:
    """Return the line shown at startup; None where caching is off."""
    return f"prompt caching on ({provider}, {model}, {ttl})" if supports_caching(provider, model) else None


@check_arguments(messages=MESSAGES)
def apply_cache_control(
    messages: Iterable[Mapping[str, Any]], *, ttl: str = "5m", native_anthropic: bool = False
) -> list[dict[str, Any]]:
    """Return copies of the messages with up to four cache_control blocks; the arguments are never modified.

    The system prompt takes one, the last three other messages that can carry one take the rest. Existing blocks are
    removed first, so that there are never more than four.
    """
    control = make_cache_control(ttl)
    out = [_without_cache_control(m) for m in messages]
    if out and _is_system(out[0]):
        out[0] = _with_cache_control(out[0], control)
    markable = [not _is_system(m) and _is_markable(m, native_anthropic=native_anthropic) for m in out]
    for i in range(len(out) - 1):
        # Results of parallel calls become one message on Anthropic: only the last carries cache_control.
        if out[i].get("role") == out[i + 1].get("role") == "tool":
            markable[i] = False
    for i in last_markable(markable):
        out[i] = _with_cache_control(out[i], control)
    return out


@check_arguments(messages=MESSAGES)
def apply_anthropic_cache_control(
    messages: Iterable[Mapping[str, Any]], cache_ttl: str = "5m", native_anthropic: bool = False
) -> list[dict[str, Any]]:
    """Same as `apply_cache_control`, under the name and with the arguments that other agents use."""
    return apply_cache_control(messages, ttl=cache_ttl, native_anthropic=native_anthropic)


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def _is_markable(message: Mapping[str, Any], *, native_anthropic: bool) -> bool:
    if message.get("role") == "tool":
        return native_anthropic
    content = message.get("content")
    if content is None or isinstance(content, str):
        return not content or not content.isspace()
    return isinstance(content, list | tuple) and (not content or _is_markable_part(content[-1]))


def _is_markable_part(part: object) -> bool:
    """Whether a content part may have cache_control: not a thinking block, nor a text without words."""
    if not isinstance(part, Mapping) or part.get("type") in ("thinking", "redacted_thinking"):
        return False
    return part.get("type") != "text" or bool(str(part.get("text") or "").strip())


def _with_cache_control(message: dict[str, Any], control: CacheControl) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") == "tool" or not content:
        return {**message, "cache_control": dict(control)}
    if isinstance(content, str):
        return {**message, "content": [{"type": "text", "text": content, "cache_control": dict(control)}]}
    if not isinstance(content, list | tuple) or not isinstance(content[-1], Mapping):
        return message
    return {**message, "content": [*content[:-1], {**content[-1], "cache_control": dict(control)}]}


def _without_cache_control(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy without cache_control, also in its parts; nested values are shared. Raises InvalidMessage."""
    require("a message", message, MESSAGE)
    out = {k: v for k, v in message.items() if k != "cache_control"}
    content = out.get("content")
    if isinstance(content, list | tuple):
        out["content"] = [
            {k: v for k, v in p.items() if k != "cache_control"} if isinstance(p, Mapping) else p for p in content
        ]
    return out
