"""Parse a request of the Responses API into the same form as a completion request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile
from typing import Any

from perdure.gateway.openai_api.parameters import (
    MAX_CALLS,
    RESPONSES,
    Body,
    check_model,
    invalid_request,
    parse_flag,
    parse_options,
    response_id_of_item,
    unsupported_error,
    user_name,
)
from perdure.gateway.openai_api.request import (
    CompletionRequest,
    parse_content,
    split_messages,
    tool_call,
    tool_message,
)

_MAX_ITEMS = 100_000
# Items with their places in the input.
Items = list[tuple[int, Any]]
# Parameters that the gateway's own settings decide; the response lists those that were ignored.
_IGNORED = frozenset(
    {
        "top_p", "reasoning", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "max_tool_calls", "truncation",
    }
)  # fmt: skip
# What an agent thought and what OpenAI's servers did: the stored conversation has the agent's own.
_SKIPPED_ITEMS = frozenset(
    {"reasoning", "item_reference", "web_search_call", "file_search_call", "code_interpreter_call"}
)


def parse_responses_request(body: object, *, is_named: bool = False) -> CompletionRequest:
    """Parse a request body. Raises ApiException with the invalid parameter."""
    if not isinstance(body, Mapping):
        raise invalid_request("the body must be a JSON object")
    check_model(body)
    _refuse_unsupported(body)
    previous = body.get("previous_response_id")
    if previous is not None and (not isinstance(previous, str) or not previous):
        raise invalid_request("previous_response_id must be the id of a response", "previous_response_id")
    options, unused_tools = parse_options(body, RESPONSES)
    items = list(enumerate(_items(body)))
    if previous is None:
        previous, items = _take_references(items)
    messages = _to_messages(items)
    request = split_messages(messages, options, is_named=is_named or previous is not None, field="input")
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise invalid_request("instructions must be a string", "instructions")
    return replace(
        request,
        system="\n\n".join(filter(None, (instructions, request.system))),
        is_stream=parse_flag(body, "stream"),
        user=user_name(body),
        ignored=(*sorted(name for name in _IGNORED if body.get(name) is not None), *unused_tools),
        previous_response_id=previous,
        is_stored=parse_flag(body, "store", default=True),
    )


def _refuse_unsupported(body: Body) -> None:
    for name, reason in (
        ("background", "send the request with stream, or wait for its response"),
        ("conversation", "use previous_response_id, or the header X-Perdure-Conversation"),
        ("prompt", "there are no stored prompts"),
        ("top_logprobs", "they are not available"),
    ):
        if body.get(name):
            raise unsupported_error(name, reason)


def _items(body: Body) -> Sequence[Any]:
    items = body.get("input")
    if isinstance(items, str) and items:
        return [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise invalid_request("input must be a text, or a list with at least one item", "input")
    if len(items) > _MAX_ITEMS:
        raise invalid_request(f"input has more than {_MAX_ITEMS:,} items", "input")
    return items


def _take_references(items: Items) -> tuple[str | None, Items]:
    """Return the response whose items are referenced last, and what comes after them."""
    at = max((n for n, (_, item) in enumerate(items) if _kind(item) == "item_reference"), default=None)
    if at is None:
        return None, items
    i, reference = items[at]
    response_id = response_id_of_item(reference.get("id"))
    if response_id is None:
        raise invalid_request(f"input[{i}]: no item {str(reference.get('id'))[:80]!r}", f"input[{i}]")
    # Calls of the same response may come as items of their own.
    rest = dropwhile(lambda entry: _kind(entry[1]) == "function_call", items[at + 1 :])
    return response_id, list(rest)


def _kind(item: object) -> str:
    return str(item.get("type") or "message") if isinstance(item, Mapping) else ""


def _to_messages(items: Items) -> list[dict[str, Any]]:
    """Convert items to messages: a text of the assistant and the calls after it are one message."""
    messages: list[dict[str, Any]] = []
    for i, item in items:
        path = f"input[{i}]"
        if not isinstance(item, Mapping):
            raise invalid_request(f"{path} must be an object", path)
        kind = _kind(item)
        is_after_answer = bool(messages) and messages[-1]["role"] == "assistant"
        if kind == "message":
            messages.append(_message(item, path))
        elif kind == "function_call":
            if not is_after_answer:
                messages.append({"role": "assistant", "content": ""})
            calls = messages[-1].setdefault("tool_calls", [])
            calls.append(tool_call(item.get("call_id"), item.get("name"), item.get("arguments"), path))
            if len(calls) > MAX_CALLS:
                raise invalid_request(f"{path}: more than {MAX_CALLS} calls in a row", path)
        elif kind == "function_call_output":
            messages.append(tool_message(item.get("call_id"), item.get("output"), path))
        elif kind not in _SKIPPED_ITEMS:
            raise invalid_request(f"{path}: items of type {kind[:40]!r} are not supported", path)
    return messages


def _message(item: Body, path: str) -> dict[str, Any]:
    role, content = item.get("role"), item.get("content")
    if role not in ("system", "developer", "user", "assistant"):
        raise invalid_request(f"{path}.role must be system, developer, user or assistant", f"{path}.role")
    if role == "assistant" and content in (None, []):
        content = ""
    parsed = parse_content(content, f"{path}.content", takes_images=role == "user")
    return {"role": "system" if role == "developer" else role, "content": parsed}
