"""Parse and validate a completion request; split its messages into history and new ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.gateway.errors import ApiError, ApiException

MODEL = "perdure"
MAX_NAME_CHARS = 200
_MAX_MESSAGES = 100_000
# Parameters that the gateway's own settings decide; the response lists those that were ignored.
_IGNORED = frozenset(
    {
        "temperature", "top_p", "max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty", "seed",
        "stop", "logit_bias", "reasoning_effort", "verbosity", "service_tier", "prediction", "store", "metadata",
        "top_k", "min_p", "repetition_penalty", "safety_identifier", "prompt_cache_key", "web_search_options",
    }
)  # fmt: skip
_IMAGE_URL = re.compile(r"(?:https?://|data:image/[a-z0-9.+-]+;base64,)\S+", re.IGNORECASE)

MessageDict = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A parsed request: `history` is the client's copy of the conversation, `new` the message to append."""

    system: str
    history: tuple[MessageDict, ...]
    new: MessageDict
    is_stream: bool
    wants_usage: bool
    user: str | None
    ignored: tuple[str, ...]


def parse_request(body: object) -> CompletionRequest:
    """Parse a request body. Raises ApiException with the invalid parameter."""
    if not isinstance(body, Mapping):
        raise invalid_request("the body must be a JSON object")
    _refuse_unsupported(body)
    messages = [_message(raw, f"messages[{i}]") for i, raw in enumerate(_message_list(body))]
    dialogue = [m for m in messages if m["role"] != "system"]
    if not dialogue or dialogue[-1]["role"] != "user":
        raise invalid_request("the last message must have the role user", "messages")
    last_answer = max((i for i, m in enumerate(dialogue) if m["role"] == "assistant"), default=-1)
    options = body.get("stream_options")
    user = body.get("user")
    if user is not None and (not isinstance(user, str) or len(user) > MAX_NAME_CHARS):
        raise invalid_request(f"user must be a string of at most {MAX_NAME_CHARS} characters", "user")
    return CompletionRequest(
        system="\n\n".join(_text_of(m) for m in messages if m["role"] == "system").strip(),
        history=tuple(dialogue[: last_answer + 1]),
        new=_merge_messages(dialogue[last_answer + 1 :]),
        is_stream=_flag(body, "stream"),
        wants_usage=isinstance(options, Mapping) and _flag(options, "include_usage"),
        user=user or None,
        ignored=tuple(sorted(name for name in _IGNORED if body.get(name) is not None)),
    )


def invalid_request(message: str, param: str | None = None, *, code: str = "invalid_request") -> ApiException:
    return ApiException(ApiError(400, code, message, param=param))


def _refuse_unsupported(body: MessageDict) -> None:
    """Raise for parameters that would change the meaning of the response and cannot be honoured."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise invalid_request(f"model is required; available: {MODEL}", "model")
    if model != MODEL:
        api_error = ApiError(404, "model_not_found", f"model not found; available: {MODEL}", param="model")
        raise ApiException(api_error)
    for name in ("tools", "functions"):
        if body.get(name):
            raise _unsupported(name, "the agent runs its own tools")
    if body.get("n") not in (None, 1):
        raise _unsupported("n", "a turn has one answer")
    if body.get("logprobs") or body.get("top_logprobs"):
        raise _unsupported("logprobs", "they are not available")
    response_format = body.get("response_format")
    if response_format is not None and (
        not isinstance(response_format, Mapping) or response_format.get("type") != "text"
    ):
        raise _unsupported("response_format", "an agent's answer is text")
    if body.get("audio") or body.get("modalities") not in (None, ["text"]):
        raise _unsupported("modalities", "an agent's answer is text")


def _unsupported(name: str, reason: str) -> ApiException:
    return invalid_request(f"{name} is not supported: {reason}", name, code="unsupported_parameter")


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
    if role in ("tool", "function") or raw.get("tool_calls") or raw.get("function_call"):
        raise invalid_request(f"{path}: tool calls and results are not accepted; the agent runs its own tools", path)
    if role not in ("system", "developer", "user", "assistant"):
        raise invalid_request(f"{path}.role must be system, developer, user or assistant", f"{path}.role")
    is_answer = role == "assistant"
    content = raw.get("content")
    if content is None and is_answer:
        content = raw.get("refusal") or ""
    return {
        "role": "system" if role == "developer" else role,
        "content": _content(content, f"{path}.content", takes_images=role == "user"),
    }


def _content(raw: object, path: str, *, takes_images: bool) -> str | list[dict[str, Any]]:
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
    if isinstance(raw, Mapping) and kind in ("text", "refusal") and isinstance(raw.get(str(kind)), str):
        return {"type": "text", "text": raw[str(kind)]}
    if isinstance(raw, Mapping) and kind == "image_url" and takes_images:
        image = raw.get("image_url")
        url = image.get("url") if isinstance(image, Mapping) else image
        if not isinstance(url, str) or not _IMAGE_URL.fullmatch(url):
            raise invalid_request(f"{path}: an image must be an http(s) URL or a data:image/…;base64 URL", path)
        return {"type": "image_url", "image_url": {"url": url}}
    raise invalid_request(f"{path}: only text{' and image_url' if takes_images else ''} parts are supported", path)


def _merge_messages(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge consecutive user messages into one, since a turn starts with a single message."""
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


def _flag(body: MessageDict, name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid_request(f"{name} must be true or false", name)
    return bool(value)
