"""What all three wire formats are made with: JSON bytes, ids, names and arguments a service accepts, pairs that match.

Every message is encoded once per wire variant and kept on its entry; a body is joined from those bytes. Rules for what
a history may hold and a wire may not, the same in every mode:

- arguments that are no JSON object go as `{"unparsed_arguments": "<the text>"}`; the log keeps what the model wrote;
- a call id the service would reject becomes `call_` and 24 hexadecimal digits of its SHA-256, in call and result alike;
- characters a tool name may not have become `_`; a missing name becomes `unnamed_tool`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote_to_bytes

from perdure.core.messages import Entry, ImagePart, Message, OtherPart, Part, TextPart, ToolCall, clean
from perdure.core.rules import find_call
from perdure.providers.exchange import CallIds

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
    """Compact JSON as UTF-8; a lone surrogate, which no service accepts, becomes a question mark."""
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
    """The object a text stands for; None where it is anything else, NaN and Infinity included."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def wire_id(call_id: str, rule: CallIds) -> str:
    """The id as this service takes it; where two ids are joined by a bar, the call's own, which stands first."""
    first = call_id.partition("|")[0]
    if _ID_RULES[rule].fullmatch(first):
        return first
    digest = hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()
    return digest[:9] if rule == "mistral" else f"call_{digest[:24]}"


def wire_name(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)[:64] or "unnamed_tool"


def data_url(url: str) -> tuple[str, str] | None:
    """The media type and base64 text of a `data:` URL; None for any other URL."""
    match = _DATA_URL.match(url)
    if match is None:
        return None
    media_type = (match["type"] or "text/plain").lower()
    data = url[match.end() :]
    if "base64" not in match["params"].lower():
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return _MEDIA_TYPES.get(media_type, media_type), data


def described(part: OtherPart) -> str:
    """What stands for a part this wire cannot carry."""
    return f"[{part.raw.get('type') or 'attachment'} omitted: this service does not take it here]"


def texts_of(parts: Sequence[Part]) -> list[str]:
    """The texts of the parts that have any, images left out, unknown parts described."""
    found = [p.text if isinstance(p, TextPart) else described(p) for p in parts if not isinstance(p, ImagePart)]
    return [t for t in found if t]


def joined(head: dict[str, Any], key: str, pieces: list[bytes]) -> bytes:
    """A body of small keys and one long list, its items copied once."""
    opening = b"".join((dumps(head)[:-1], b',"', key.encode(), b'":['))
    if not pieces:
        return opening + b"]}"
    pieces[0] = opening + pieces[0]
    pieces[-1] += b"]}"
    return b",".join(pieces)


@dataclass(frozen=True, slots=True)
class Fragment:
    """One message in wire bytes, with what joining it to its neighbours needs to know."""

    role: str
    body: bytes
    # An assistant's: the wire ids it asks with. A result's: the one it answers.
    ids: frozenset[str] = frozenset()
    # Images of a result that must stand in a message behind it.
    images: tuple[Mapping[str, Any], ...] = ()
    takes_mark: bool = True


Encode = Callable[[Message], Fragment]


def fragments(entries: Sequence[Entry], key: object, encode: Encode) -> Iterator[Fragment]:
    """Each entry's bytes, computed once for its lifetime; a result that names its call otherwise is re-addressed."""
    memo_key = ("wire", key)
    asking: Entry | None = None
    open_ids: frozenset[str] = frozenset()
    for entry in entries:
        fragment = entry.memo(memo_key, encode)
        if fragment.role == "assistant":
            asking, open_ids = entry, fragment.ids
        elif fragment.role == "tool" and not fragment.ids <= open_ids:
            fragment = _readdressed(entry, asking, encode) or fragment
        yield fragment


def _readdressed(entry: Entry, asking: Entry | None, encode: Encode) -> Fragment | None:
    """The result under its call's own id, where it names the call by the second one."""
    named = entry.message.tool_call_id or ""
    calls: tuple[ToolCall, ...] = asking.message.tool_calls if asking is not None else ()
    call = find_call(calls, named)
    return encode(replace(entry.message, tool_call_id=call.id)) if call is not None else None
