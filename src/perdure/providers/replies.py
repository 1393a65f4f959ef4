"""How the pieces of an answer become one assistant message, the same whichever wire they came over."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.errors import ErrorKind, ErrorVerdict, ProviderError
from perdure.core.messages import Content, Message, TextPart, ToolCall, clean
from perdure.providers.exchange import Finish

# Where an answer's pieces stood otherwise than thinking, text, calls, this key of `Message.extra` keeps their order:
# "r0" the first reasoning detail, "t0" the first text, "c0" the first call. Some services check it on replay.
ORDER = "output_order"


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of reasoning: what can be read of it, and what the service wants back untouched."""

    text: str = ""
    detail: Mapping[str, Any] | None = None


Piece = str | Thought | ToolCall


def assembled(pieces: Sequence[Piece], *, response_id: str = "", extra: Mapping[str, Any] | None = None) -> Message:
    """One assistant message of the pieces, in order; empty texts are dropped, missing ids made up from the reply's."""
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
    kept: dict[str, Any] = _clean_all(extra or {})
    if order != sorted(order, key=lambda o: ("rtc".index(o[0]), int(o[1:]))):
        kept[ORDER] = order
    return Message(
        role="assistant",
        content=_content(texts, has_calls=bool(calls)),
        tool_calls=tuple(calls),
        reasoning="\n\n".join(thoughts) or None,
        reasoning_details=tuple(details),
        kind="assistant",
        extra=kept,
    )


def pieces_of(message: Message, details: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | str | ToolCall]:
    """A message taken apart again in the order its pieces came in; `details` are those this wire may send back.

    Parts that are no text stay out: an assistant's content is text on every wire.
    """
    texts = [p.text for p in message.parts if isinstance(p, TextPart) and p.text]
    order = message.extra.get(ORDER)
    if isinstance(order, list) and details == list(message.reasoning_details):
        return _in_order(order, {"r": list(details), "t": list(texts), "c": list(message.tool_calls)})
    return [*details, *texts, *message.tool_calls]


def _in_order(order: Sequence[object], boxes: dict[str, list[Any]]) -> list[Any]:
    """What the order names, then whatever it does not: a message may have been merged or shortened since."""
    named = {o: _at(boxes, o) for o in order if isinstance(o, str)}
    out = [v for v in named.values() if v is not None]
    for kind in "rtc":
        out += [v for i, v in enumerate(boxes[kind]) if f"{kind}{i}" not in named]
    return out


def _at(boxes: dict[str, list[Any]], place: str) -> Any:
    box, number = boxes.get(place[:1]), place[1:]
    return box[int(number)] if box and number.isascii() and number.isdigit() and int(number) < len(box) else None


def finished(finish: Finish, message: Message) -> Finish:
    """The reason an answer ended; many services say "stop" where the answer in fact asks for tools."""
    return "tool_calls" if message.tool_calls and finish in ("stop", "unknown") else finish


def broken_reply(kind: ErrorKind, line: str, *, partial_text: str = "") -> ProviderError:
    return ProviderError(ErrorVerdict(kind=kind, message=line), partial_text=partial_text)


def cut_off(partial_text: str) -> ProviderError:
    """A stream that ended without its last event: nothing of it may enter the history."""
    line = "the reply broke off before its end; nothing of it was kept"
    return broken_reply("transport", line, partial_text=partial_text)


def as_map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _clean_all(value: Any) -> Any:
    """A decoded value without the lone surrogates that JSON can spell and no store or wire can hold."""
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
