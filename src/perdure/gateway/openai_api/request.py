"""Parse and validate a completion request; split its messages into history and new ones."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from perdure.core.messages import CLIENT_CALL, Message
from perdure.core.turn_options import NO_OPTIONS, TurnOptions
from perdure.gateway.openai_api.parameters import (
    CHAT,
    MAX_CALLS,
    check_model,
    invalid_request,
    parse_flag,
    parse_options,
    stop_sequences,
    unsupported_error,
    user_name,
)

_MAX_MESSAGES = 100_000
# Parameters that the gateway's own settings decide; the response lists those that were ignored.
_IGNORED = frozenset(
    {
        "top_p", "presence_penalty", "frequency_penalty", "seed", "logit_bias", "reasoning_effort", "verbosity",
        "service_tier", "prediction", "store", "metadata", "top_k", "min_p", "repetition_penalty",
        "safety_identifier", "prompt_cache_key", "web_search_options",
    }
)  # fmt: skip
_IMAGE_URL = re.compile(r"(?:https?://|data:image/[a-z0-9.+-]+;base64,)\S+", re.IGNORECASE)

MessageDict = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A parsed request: `history` is the client's copy of the conversation, `new` the message to append, if any.

    Results of the client's tools, which come before it, are part of `options`.
    """

    system: str
    history: tuple[MessageDict, ...]
    new: MessageDict | None
    # The parameter that has the messages.
    field: str = "messages"
    options: TurnOptions = NO_OPTIONS
    stop: tuple[str, ...] = ()
    is_stream: bool = False
    wants_usage: bool = False
    user: str | None = None
    ignored: tuple[str, ...] = ()
    # Of a Responses request: the response it continues, and whether it may be continued itself.
    previous_response_id: str | None = None
    is_stored: bool = False

    @property
    def messages(self) -> tuple[MessageDict, ...]:
        """The client's copy of the conversation, with all that this request adds."""
        results = (result.to_dict() for result in self.options.results)
        return (*self.history, *results, *(() if self.new is None else (self.new,)))


def parse_request(body: object, *, is_named: bool = False) -> CompletionRequest:
    """Parse a request body; in a named conversation, results may come without their calls. Raises ApiException."""
    if not isinstance(body, Mapping):
        raise invalid_request("the body must be a JSON object")
    check_model(body)
    _refuse_unsupported(body)
    messages = [_message(raw, f"messages[{i}]") for i, raw in enumerate(_message_list(body))]
    options, unused_tools = parse_options(body, CHAT)
    stream_options = body.get("stream_options") or {}
    if not isinstance(stream_options, Mapping):
        raise invalid_request("stream_options must be an object", "stream_options")
    stop = stop_sequences(body)
    request = split_messages(messages, replace(options, stop=stop), is_named=is_named)
    return replace(
        request,
        stop=stop,
        is_stream=parse_flag(body, "stream"),
        wants_usage=parse_flag(stream_options, "include_usage"),
        user=user_name(body),
        ignored=(*sorted(name for name in _IGNORED if body.get(name) is not None), *unused_tools),
    )


def split_messages(
    messages: Sequence[dict[str, Any]], options: TurnOptions, *, is_named: bool, field: str = "messages"
) -> CompletionRequest:
    """Split parsed messages into system prompt, history, tool results and the new message. Raises ApiException."""
    check_pairs(messages, is_named=is_named, field=field)
    dialogue = _merge_users([m for m in messages if m["role"] != "system"])
    if not dialogue or dialogue[-1]["role"] == "assistant":
        expected = "message must have the role user or tool" if field == "messages" else "item must be the user's"
        raise invalid_request(f"the last {expected}", field)
    last_answer = max((i for i, m in enumerate(dialogue) if m["role"] == "assistant"), default=-1)
    tail = dialogue[last_answer + 1 :]
    results = tuple(Message.from_dict(m) for m in tail if m["role"] == "tool")
    return CompletionRequest(
        system="\n\n".join(_text_of(m) for m in messages if m["role"] == "system").strip(),
        history=tuple(dialogue[: last_answer + 1]),
        new=tail[-1] if tail[-1]["role"] == "user" else None,
        field=field,
        options=replace(options, results=results),
    )


def check_pairs(messages: Sequence[MessageDict], *, is_named: bool, field: str) -> None:
    """Raise ApiException for a tool result without its call or a call without its result."""
    open_ids: list[str] = []
    # In a named conversation, the first results may belong to calls that the client did not send again.
    is_start = is_named
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            if call_id in open_ids:
                open_ids.remove(call_id)
            elif not is_start:
                where = "of the assistant message before it" if field == "messages" else "before it"
                text = f"{field}[{i}]: {call_field(field)} {call_id!r} answers no tool call {where}"
                raise invalid_request(text, f"{field}[{i}]")
        elif message["role"] != "system":
            _refuse_open_calls(open_ids, field)
            open_ids = [call["id"] for call in message.get("tool_calls") or ()]
            if len(set(open_ids)) < len(open_ids):
                repeated = next(call_id for call_id in open_ids if open_ids.count(call_id) > 1)
                raise invalid_request(f"{field}[{i}]: two tool calls have the id {repeated!r}", f"{field}[{i}]")
            is_start = is_start and message["role"] != "assistant"
    _refuse_open_calls(open_ids, field)


def call_field(field: str) -> str:
    """Return the field name of a call id in this API, given the name of its messages parameter."""
    return "tool_call_id" if field == "messages" else "call_id"


def _refuse_open_calls(open_ids: Sequence[str], field: str) -> None:
    if open_ids:
        raise invalid_request(f"these tool calls have no result: {', '.join(open_ids)}", field)


def _refuse_unsupported(body: MessageDict) -> None:
    """Raise ApiException for parameters that would change the response and are not supported."""
    if body.get("functions") or body.get("function_call"):
        raise unsupported_error("functions", "use tools")
    if body.get("n") not in (None, 1):
        raise unsupported_error("n", "a turn has one answer")
    if body.get("logprobs") or body.get("top_logprobs"):
        raise unsupported_error("logprobs", "they are not available")
    if body.get("audio") or body.get("modalities") not in (None, ["text"]):
        raise unsupported_error("modalities", "an agent's answer is text")


def _message_list(body: MessageDict) -> list[Any]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid_request("messages must be a list with at least one message", "messages")
    if len(messages) > _MAX_MESSAGES:
        raise invalid_request(f"messages has more than {_MAX_MESSAGES:,} entries", "messages")
    return messages


def _message(raw: object, path: str) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise invalid_request(f"{path} must be an object", path)
    role = raw.get("role")
    if role == "function" or raw.get("function_call"):
        raise invalid_request(f"{path}: function messages are not supported; use tool messages", path)
    if role == "tool":
        return tool_message(raw.get("tool_call_id"), raw.get("content"), path)
    if role not in ("system", "developer", "user", "assistant"):
        raise invalid_request(f"{path}.role must be system, developer, user, assistant or tool", f"{path}.role")
    is_answer = role == "assistant"
    content = raw.get("content")
    if is_answer and (content is None or content == []):
        content = raw.get("refusal") or ""
    message: dict[str, Any] = {
        "role": "system" if role == "developer" else role,
        "content": parse_content(content, f"{path}.content", takes_images=role == "user"),
    }
    if is_answer and raw.get("tool_calls"):
        message["tool_calls"] = _calls(raw["tool_calls"], f"{path}.tool_calls")
    return message


def tool_message(call_id: object, content: object, path: str) -> dict[str, Any]:
    """Build the result of a tool call. Raises ApiException."""
    if not isinstance(call_id, str) or not call_id:
        field = call_field(path.partition("[")[0])
        raise invalid_request(f"{path}: a tool result names its call in {field}", f"{path}.{field}")
    parsed = parse_content("" if content in (None, []) else content, f"{path}.content", takes_images=True)
    return {"role": "tool", "tool_call_id": call_id, "content": parsed}


def tool_call(call_id: object, name: object, arguments: object, path: str) -> dict[str, Any]:
    """Build a call that the client runs. Raises ApiException."""
    if not isinstance(call_id, str) or not call_id or not isinstance(name, str) or not name:
        raise invalid_request(f"{path} needs an id and the name of its function", path)
    if not isinstance(arguments, str):
        raise invalid_request(f"{path}: arguments must be a string of JSON", path)
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, CLIENT_CALL: True}


def _calls(raw: object, path: str) -> list[dict[str, Any]]:
    listed = raw if isinstance(raw, list) else [raw]
    if len(listed) > MAX_CALLS:
        raise invalid_request(f"{path} has more than {MAX_CALLS} calls", path)
    calls = []
    for i, call in enumerate(listed):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(call, Mapping) or not isinstance(function, Mapping):
            raise invalid_request(f"{path}[{i}] must be the call of a function", path)
        calls.append(tool_call(call.get("id"), function.get("name"), function.get("arguments"), f"{path}[{i}]"))
    return calls


def parse_content(raw: object, path: str, *, takes_images: bool) -> str | list[dict[str, Any]]:
    """Parse the content of a message: text, or parts. Raises ApiException."""
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, list) or not raw:
        raise invalid_request(f"{path} must be a string or a list of parts", path)
    parts = [_part(part, f"{path}[{i}]", takes_images=takes_images) for i, part in enumerate(raw)]
    if all(p["type"] == "text" for p in parts):
        return "\n".join(p["text"] for p in parts)
    return parts


def _part(raw: object, path: str, *, takes_images: bool) -> dict[str, Any]:
    kind = raw.get("type") if isinstance(raw, Mapping) else None
    if isinstance(raw, Mapping) and kind in ("text", "input_text", "output_text") and isinstance(raw.get("text"), str):
        return {"type": "text", "text": raw["text"]}
    if isinstance(raw, Mapping) and kind == "refusal" and isinstance(raw.get("refusal"), str):
        return {"type": "text", "text": raw["refusal"]}
    if isinstance(raw, Mapping) and kind in ("image_url", "input_image") and takes_images:
        image = raw.get("image_url")
        url = image.get("url") if isinstance(image, Mapping) else image
        if not isinstance(url, str) or not _IMAGE_URL.fullmatch(url):
            raise invalid_request(f"{path}: an image must be an http(s) URL or a data:image/…;base64 URL", path)
        if url[:5].lower() == "data:" and not _is_base64(url.partition(",")[2]):
            raise invalid_request(f"{path}: the data of the image is not valid base64", path)
        return {"type": "image_url", "image_url": {"url": url}}
    raise invalid_request(f"{path}: only text{' and image_url' if takes_images else ''} parts are supported", path)


def _is_base64(data: str) -> bool:
    """Return whether image data can be decoded; clients leave the padding out."""
    try:
        return bool(base64.b64decode(data + "=" * (-len(data) % 4), validate=True))
    except ValueError:
        return False


def _merge_users(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge user messages in a row into one: a turn starts with a single message, and is matched by it later."""
    merged: list[dict[str, Any]] = []
    for role, group in groupby(messages, key=lambda message: message["role"]):
        in_a_row = list(group)
        merged += [_merge_messages(in_a_row)] if role == "user" else in_a_row
    return merged


def _merge_messages(messages: list[dict[str, Any]]) -> dict[str, Any]:
    if len(messages) == 1:
        return messages[0]
    parts: list[dict[str, Any]] = []
    for message in messages:
        content = message["content"]
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    if all(p["type"] == "text" for p in parts):
        return {"role": "user", "content": "\n\n".join(p["text"] for p in parts)}
    return {"role": "user", "content": parts}


def _text_of(message: MessageDict) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(p.get("text", "") for p in content)
