"""Request validation of the Responses API, with its error messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.testing.simulator.responses import items_of
from perdure.testing.simulator.rules import Issued, Rules, SimulatedRefusal, words

_BODY_KEYS = words(
    "model input instructions tools tool_choice parallel_tool_calls stream stream_options max_output_tokens "
    "temperature top_p metadata store include reasoning text truncation user service_tier previous_response_id "
    "prompt_cache_key prompt_cache_retention safety_identifier background max_tool_calls prompt top_logprobs "
    "conversation"
)
_MOST_ID_CHARS = 64
_ROLES = ("user", "assistant", "system", "developer")
_INPUT_PARTS = ("input_text", "input_image", "input_file", "input_audio")
_OUTPUT_PARTS = ("output_text", "refusal")


def check(body: Mapping[str, Any], rules: Rules, issued: Issued) -> None:
    """Raise SimulatedRefusal for the first violation."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise SimulatedRefusal("Missing required parameter: 'model'.", param="model", code="missing_required_parameter")
    for key in body:
        if key not in _BODY_KEYS:
            raise SimulatedRefusal(f"Unknown parameter: '{key}'.", param=key, code="unknown_parameter")
    if previous := body.get("previous_response_id"):
        raise SimulatedRefusal(
            f"Previous response with id '{previous}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    items = items_of(body)
    if not items:
        raise SimulatedRefusal("Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
    for i, item in enumerate(items):
        _check_item(f"input[{i}]", item)
    for i, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") == "function" and not tool.get("name"):
            raise SimulatedRefusal(f"Missing required parameter: 'tools[{i}].name'.", param=f"tools[{i}].name")
    _check_pairs(items, needs_adjacency=rules.needs_adjacency)
    _check_reasoning(items, issued, is_stored=bool(body.get("store", True)))
    if rules.needs_alternation:
        _check_turns(items)
    if rules.needs_content:
        _check_not_empty(items)


def _check_item(where: str, item: Any) -> None:
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message":
        _check_message(where, item)
    elif kind == "function_call":
        _need(where, item, "call_id", "name", "arguments")
    elif kind == "function_call_output":
        _need(where, item, "call_id")
        if not isinstance(item.get("output"), str | list):
            raise SimulatedRefusal(f"Missing required parameter: '{where}.output'.", param=f"{where}.output")
    elif kind == "reasoning":
        if not isinstance(item.get("summary"), list):
            raise SimulatedRefusal(f"Missing required parameter: '{where}.summary'.", param=f"{where}.summary")
    else:
        raise SimulatedRefusal(f"Invalid value: '{kind}'.", param=where, code="invalid_value")


def _need(where: str, item: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if key == "call_id" and len(str(item.get(key))) > _MOST_ID_CHARS:
            text = (
                f"Invalid '{where}.call_id': string too long. Expected a string with maximum length {_MOST_ID_CHARS}."
            )
            raise SimulatedRefusal(text, param=f"{where}.call_id", code="string_above_max_length")
        if not isinstance(item.get(key), str):
            raise SimulatedRefusal(
                f"Missing required parameter: '{where}.{key}'.",
                param=f"{where}.{key}",
                code="missing_required_parameter",
            )


def _check_message(where: str, item: Mapping[str, Any]) -> None:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        allowed = "', '".join(_ROLES[:-1]) + f"', and '{_ROLES[-1]}"
        raise SimulatedRefusal(f"Invalid value: '{role}'. Supported values are: '{allowed}'.", param=f"{where}.role")
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        raise SimulatedRefusal(
            f"Invalid type for '{where}.content': expected a string or parts.", param=f"{where}.content"
        )
    allowed_parts = _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS
    for k, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in allowed_parts:
            names = "', '".join(allowed_parts)
            raise SimulatedRefusal(
                f"Invalid value: '{kind}'. Supported values are: '{names}'.",
                param=f"{where}.content[{k}]",
                code="invalid_value",
            )


def _check_pairs(items: Sequence[Mapping[str, Any]], *, needs_adjacency: bool) -> None:
    calls = [i["call_id"] for i in items if i.get("type") == "function_call"]
    answers = [i["call_id"] for i in items if i.get("type") == "function_call_output"]
    for call in calls:
        if call not in answers:
            raise SimulatedRefusal(f"No tool output found for function call {call}.", rule="pairs", param="input")
    result_ids: set[str] = set()
    open_calls: set[str] = set()
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            open_calls.add(item["call_id"])
        elif kind == "function_call_output":
            call_id = item["call_id"]
            if call_id not in calls or call_id in result_ids:
                text = f"No tool call found for function call output with call_id {call_id}."
                raise SimulatedRefusal(text, rule="pairs", param="input")
            if needs_adjacency and call_id not in open_calls:
                raise SimulatedRefusal(
                    f"Function call output {call_id} does not follow its call.", rule="pairs", param="input"
                )
            result_ids.add(call_id)
            open_calls.discard(call_id)
        elif needs_adjacency and kind == "message" and open_calls:
            text = f"No tool output found for function call {min(open_calls)}."
            raise SimulatedRefusal(text, rule="pairs", param="input")


def _check_reasoning(items: Sequence[Mapping[str, Any]], issued: Issued, *, is_stored: bool) -> None:
    reasoning_ids: set[str] = set()
    for i, item in enumerate(items):
        kind, item_id = item.get("type", "message"), item.get("id")
        if kind == "reasoning":
            reasoning_ids.add(str(item_id))
            _check_thought(item, issued, is_stored=is_stored)
            follower = items[i + 1] if i + 1 < len(items) else {"role": "user"}
            is_own = follower.get("type") in ("function_call", "reasoning") or follower.get("role") == "assistant"
            if not is_own:
                raise SimulatedRefusal(
                    f"Item '{item_id}' of type 'reasoning' was provided without its required following item.",
                    rule="reasoning",
                    param="input",
                )
        elif item_id in issued.reasoning_of and issued.reasoning_of[item_id] not in reasoning_ids:
            raise SimulatedRefusal(
                f"Item '{item_id}' of type '{kind}' was provided without its required 'reasoning' item: "
                f"'{issued.reasoning_of[item_id]}'.",
                rule="reasoning",
                param="input",
            )


def _check_thought(item: Mapping[str, Any], issued: Issued, *, is_stored: bool) -> None:
    sealed = item.get("encrypted_content")
    if sealed is None:
        if is_stored:
            return
        raise SimulatedRefusal(
            f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false. Try "
            "again with `store` set to true, or remove this item from your input.",
            rule="reasoning",
            status=404,
            param="input",
        )
    if sealed not in issued.sealed:
        raise SimulatedRefusal(
            f"The encrypted content for item {item.get('id')} could not be verified.",
            rule="reasoning",
            param="input",
            code="invalid_encrypted_content",
        )


def _check_not_empty(items: Sequence[Mapping[str, Any]]) -> None:
    for i, item in enumerate(items):
        if item.get("type", "message") != "message":
            continue
        content = item["content"]
        texts = [content] if isinstance(content, str) else [p.get("text", "…") for p in content]
        if any(not text.strip() for text in texts):
            raise SimulatedRefusal(
                f"input[{i}]: the message with role '{item['role']}' must not be empty", rule="content"
            )


def _check_turns(items: Sequence[Mapping[str, Any]]) -> None:
    """Refuse two user messages in a row; an assistant turn may be any number of items."""
    before = ""
    for item in items:
        role = item.get("role", "tool") if item.get("type", "message") == "message" else "item"
        if role == before == "user":
            raise SimulatedRefusal(
                "Conversation roles must alternate: found two 'user' messages in a row", rule="alternation"
            )
        before = role
