"""OpenAI Chat Completions: validate a request, with the service's error messages; count a prompt; render a reply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.testing.simulator.rules import Issued, Rules, SimulatedRefusal, limit, words
from perdure.testing.simulator.tokens import PromptBlock, Ttl, cache_ttl, count_blocks, image, role_tag, schema, segment
from perdure.testing.simulator.turn import Scene, SimulatedTurn, frame

_FINISH = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "refusal": "stop", "window": "length"}


def blocks(body: Mapping[str, Any]) -> list[PromptBlock]:
    """Return the prompt as blocks, in the order the model reads it: tools, then messages."""
    prompt = [PromptBlock(schema(_without_cache_control(t)), "tools", cache_ttl(t)) for t in body.get("tools") or ()]
    for message in body["messages"]:
        prompt += _message_blocks(message)
    return prompt


def _without_cache_control(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in tool.items() if k != "cache_control"}


def _message_blocks(message: Mapping[str, Any]) -> list[PromptBlock]:
    role = message["role"]
    level: Any = "system" if role in ("system", "developer") else "messages"
    head = role_tag(role) + segment(message.get("tool_call_id") or "")
    content = message.get("content")
    parts: list[tuple[bytes, Ttl | None, bool]] = []
    for part in content if isinstance(content, list) else [{"type": "text", "text": content or ""}]:
        is_image = part.get("type") == "image_url"
        data = image(part["image_url"]) if is_image else segment(str(part.get("text") or part.get("refusal") or ""))
        parts.append((data, cache_ttl(part), is_image))
    for key in ("reasoning_content", "reasoning"):
        if thought := message.get(key):
            parts.insert(0, (segment(str(thought)), None, False))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        data = segment(call["id"]) + segment(function["name"]) + segment(function["arguments"])
        parts.append((data, None, False))
    row = [PromptBlock(head * (i == 0) + data, level, mark, is_image) for i, (data, mark, is_image) in enumerate(parts)]
    if own := cache_ttl(message):
        row[-1] = PromptBlock(row[-1].data, level, own, row[-1].has_image)
    return row


def requested_output(body: Mapping[str, Any]) -> int | None:
    max_tokens = body.get("max_completion_tokens", body.get("max_tokens"))
    return max_tokens if isinstance(max_tokens, int) else None


def check_size(body: Mapping[str, Any], prompt_blocks: list[PromptBlock], rules: Rules) -> None:
    """Raise the service's error for a prompt or max_tokens that does not fit."""
    max_tokens, prompt = requested_output(body), count_blocks(prompt_blocks)
    if max_tokens is not None and max_tokens > rules.max_output:
        key = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
        raise limit(
            f"{key} is too large: {max_tokens}. This model supports at most {rules.max_output} completion tokens, "
            f"whereas you provided {max_tokens}.",
            param=key,
            code="invalid_value",
        )
    opening = f"This model's maximum context length is {rules.window} tokens. However, "
    if prompt > rules.window:
        tools = count_blocks(b for b in prompt_blocks if b.level == "tools")
        split = f" ({prompt - tools} in the messages, {tools} in the functions)" if tools else ""
        what = "messages or functions" if tools else "messages"
        text = f"your messages resulted in {prompt} tokens{split}. Please reduce the length of the {what}."
        raise limit(opening + text, param="messages", code="context_length_exceeded")
    if max_tokens is not None and prompt + max_tokens > rules.window:
        text = (
            f"you requested {prompt + max_tokens} tokens ({prompt} in the messages, {max_tokens} in the completion). "
            "Please reduce the length of the messages or completion."
        )
        raise limit(opening + text, param="messages", code="context_length_exceeded")


def error_body(refusal: SimulatedRefusal) -> dict[str, Any]:
    error = {
        "message": refusal.message,
        "type": refusal.error_type,
        "param": refusal.param,
        "code": refusal.code,
    }
    return {"error": error}


def usage(turn: SimulatedTurn, *, reports_writes: bool) -> dict[str, Any]:
    used = turn.usage
    details = {"cached_tokens": used.cache_read_tokens, "audio_tokens": 0}
    if reports_writes:
        details["cache_write_tokens"] = used.cache_write_tokens
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
        "prompt_tokens_details": details,
        "completion_tokens_details": {
            "reasoning_tokens": used.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def render_body(turn: SimulatedTurn, scene: Scene) -> dict[str, Any]:
    """Render the reply to a request without streaming."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": turn.text or None,
        "refusal": turn.refusal or None,
        "annotations": [],
    }
    _remember_reasoning(turn, scene)
    if turn.thinking:
        message[scene.rules.chat_thinking_key] = turn.thinking
    if turn.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments_text}}
            for c in turn.calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": turn.finish or _FINISH[turn.ending]}
    reply = {**_envelope(turn, "chat.completion"), "choices": [choice]}
    if turn.reports_usage:
        reply["usage"] = usage(turn, reports_writes=scene.reports_writes)
    return reply


def render_stream(turn: SimulatedTurn, scene: Scene) -> Iterator[bytes]:
    """Render the reply as chunks: role, thinking, text, calls, finish, usage if requested, [DONE]."""
    _remember_reasoning(turn, scene)
    wants_usage = bool((scene.body.get("stream_options") or {}).get("include_usage")) and turn.reports_usage
    envelope = _envelope(turn, "chat.completion.chunk")
    blank = {"usage": None} if wants_usage else {}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return frame({**envelope, "choices": [choice], **blank})

    yield chunk({"role": "assistant", "content": None if turn.calls else "", "refusal": None})
    for piece in turn.pieces(turn.thinking):
        yield chunk({scene.rules.chat_thinking_key: piece})
    for piece in turn.pieces(turn.text):
        yield chunk({"content": piece})
    for piece in turn.pieces(turn.refusal):
        yield chunk({"refusal": piece})
    for index, call in enumerate(turn.calls):
        function = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        for piece in turn.pieces(call.arguments_text):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, turn.finish or _FINISH[turn.ending])
    if wants_usage:
        yield frame({**envelope, "choices": [], "usage": usage(turn, reports_writes=scene.reports_writes)})
    yield frame("[DONE]")


def _remember_reasoning(turn: SimulatedTurn, scene: Scene) -> None:
    if turn.thinking:
        scene.issued.reasoned_calls.update(c.id or "" for c in turn.calls)


def error_event(turn: SimulatedTurn, scene: Scene) -> bytes:
    """Render the event that ends a stream with an error."""
    return frame({"error": {"message": "The server had an error processing your request.", "type": "server_error"}})


def _envelope(turn: SimulatedTurn, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-sim{turn.number:06d}",
        "object": kind,
        "created": turn.created_s,
        "model": turn.model,
        "service_tier": "default",
        "system_fingerprint": "fp_simulator",
    }


ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_MOST_ID_CHARS = 40
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MESSAGE_KEYS = words(
    "role content name tool_calls tool_call_id refusal audio function_call annotations "
    # Reasoning fields that compatible services accept.
    "reasoning reasoning_content reasoning_details cache_control"
)
_BODY_KEYS = words(
    "model messages tools tool_choice parallel_tool_calls stream stream_options max_tokens max_completion_tokens "
    "temperature top_p n stop seed user metadata store response_format reasoning_effort reasoning logprobs "
    "top_logprobs "
    "frequency_penalty presence_penalty logit_bias service_tier verbosity prompt_cache_key prompt_cache_retention "
    "safety_identifier modalities audio prediction functions function_call web_search_options usage provider "
    "include_reasoning thinking transforms"
)

_MAY_FOLLOW = frozenset(
    {
        ("start", "user"),
        ("user", "assistant"),
        ("assistant", "user"),
        ("assistant", "tool"),
        ("tool", "tool"),
        ("tool", "assistant"),
    }
)


def check(body: Mapping[str, Any], rules: Rules, issued: Issued) -> None:
    """Check a request against the rules of the service; raise SimulatedRefusal for the first violation."""
    _check_body(body)
    messages = body["messages"]
    for i, message in enumerate(messages):
        _check_message(i, message)
    _check_pairs(messages)
    if rules.needs_content:
        _check_not_empty(messages)
    if rules.needs_json_arguments:
        _check_arguments(messages)
    if rules.needs_alternation:
        _check_turns(messages)
    if not rules.allows_prefill and messages[-1]["role"] == "assistant":
        text = "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
        raise SimulatedRefusal(text, rule="prefill")
    if rules.needs_loop_reasoning:
        _check_loop_reasoning(messages, issued)
    _check_cache_control(body)


def _check_body(body: Mapping[str, Any]) -> None:
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise SimulatedRefusal("you must provide a model parameter")
    for key in body:
        if key not in _BODY_KEYS:
            raise SimulatedRefusal(f"Unrecognized request argument supplied: {key}")
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise SimulatedRefusal(
            "Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter"
        )
    if not messages:
        raise SimulatedRefusal(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param="messages",
            code="empty_array",
        )
    if body.get("stream_options") is not None and not body.get("stream"):
        raise SimulatedRefusal(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    for i, tool in enumerate(body.get("tools") or ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        if tool.get("type") != "function" or not isinstance(function, dict):
            raise SimulatedRefusal(f"Invalid value: 'tools[{i}]'. Expected a function.", param=f"tools[{i}]")
        if not _NAME.fullmatch(str(function.get("name") or "")):
            raise SimulatedRefusal(
                f"Invalid 'tools[{i}].function.name': string does not match pattern. Expected a string that matches "
                "the pattern '^[a-zA-Z0-9_-]+$'.",
                param=f"tools[{i}].function.name",
                code="invalid_value",
            )


def _check_message(i: int, message: Any) -> None:
    where = f"messages[{i}]"
    if not isinstance(message, dict):
        raise SimulatedRefusal(f"Invalid type for '{where}': expected an object.", param=where, code="invalid_type")
    role = message.get("role")
    if role not in ROLES:
        allowed = "', '".join(ROLES[:-1]) + f"', and '{ROLES[-1]}"
        raise SimulatedRefusal(
            f"Invalid value: '{role}'. Supported values are: '{allowed}'.", param=f"{where}.role", code="invalid_value"
        )
    for key in message:
        if key not in _MESSAGE_KEYS:
            raise SimulatedRefusal(
                f"Unknown parameter: '{where}.{key}'.", param=f"{where}.{key}", code="unknown_parameter"
            )
    _check_content(where, message)
    if "tool_calls" in message:
        _check_calls(where, message)
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise SimulatedRefusal(
            f"Missing parameter '{where}.tool_call_id': messages with role 'tool' must have a 'tool_call_id'."
        )


def _check_content(where: str, message: Mapping[str, Any]) -> None:
    content, role = message.get("content"), message["role"]
    if content is None:
        if role == "assistant" and (message.get("tool_calls") or message.get("refusal")):
            return
        raise SimulatedRefusal("Invalid value for 'content': expected a string, got null.", param=f"{where}.content")
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        raise SimulatedRefusal(
            f"Invalid type for '{where}.content': expected a string or parts.", param=f"{where}.content"
        )
    for k, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        at = f"{where}.content[{k}]"
        if kind == "image_url" and role != "user":
            raise SimulatedRefusal(
                f"Invalid '{where}'. Image URLs are only allowed for messages with role 'user', but this message with "
                f"role '{role}' contains an image URL.",
                param=where,
                code="invalid_value",
            )
        if kind == "text" and not isinstance(part.get("text"), str):
            raise SimulatedRefusal(f"Missing required parameter: '{at}.text'.", param=f"{at}.text")
        if kind == "image_url" and not isinstance((part.get("image_url") or {}).get("url"), str):
            raise SimulatedRefusal(f"Missing required parameter: '{at}.image_url.url'.", param=f"{at}.image_url.url")
        if kind not in ("text", "image_url", "input_audio", "file", "refusal"):
            raise SimulatedRefusal(
                f"Invalid value: '{kind}'. Supported values are: 'text', 'image_url', …", param=f"{at}.type"
            )


def _check_calls(where: str, message: Mapping[str, Any]) -> None:
    calls = message["tool_calls"]
    if message["role"] != "assistant" or not isinstance(calls, list) or not calls:
        raise SimulatedRefusal(f"Invalid '{where}.tool_calls': expected an array with minimum length 1.", param=where)
    for k, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        at = f"{where}.tool_calls[{k}]"
        if not isinstance(function, dict) or call.get("type") != "function" or not call.get("id"):
            raise SimulatedRefusal(f"Missing required parameter: '{at}'.", param=at, code="missing_required_parameter")
        if len(call["id"]) > _MOST_ID_CHARS:
            raise SimulatedRefusal(
                f"Invalid '{at}.id': string too long. Expected a string with maximum length {_MOST_ID_CHARS}, but got "
                f"a string with length {len(call['id'])} instead.",
                param=f"{at}.id",
                code="string_above_max_length",
            )
        if not isinstance(function.get("arguments"), str):
            raise SimulatedRefusal(f"Invalid type for '{at}.function.arguments': expected a string.", param=at)
        if not _NAME.fullmatch(str(function.get("name") or "")):
            raise SimulatedRefusal(f"Invalid '{at}.function.name': string does not match pattern.", param=at)


def _check_pairs(messages: Sequence[Mapping[str, Any]]) -> None:
    waiting: list[str] = []
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise SimulatedRefusal(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    rule="pairs",
                    param=f"messages.[{i}].role",
                )
            waiting.remove(message["tool_call_id"])
            continue
        _check_no_open_calls(waiting, i)
        waiting = [c["id"] for c in message.get("tool_calls") or ()]
        if len(set(waiting)) < len(waiting):
            twice = next(w for w in waiting if waiting.count(w) > 1)
            text = f"Invalid parameter: Duplicate value for 'tool_call_id' of '{twice}' in message[{i}]"
            raise SimulatedRefusal(text, rule="pairs", param=f"messages.[{i}].tool_calls")
    _check_no_open_calls(waiting, len(messages))


def _check_no_open_calls(waiting: Sequence[str], i: int) -> None:
    if waiting:
        raise SimulatedRefusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
            rule="pairs",
            param=f"messages.[{i}].role",
        )


def _check_not_empty(messages: Sequence[Mapping[str, Any]]) -> None:
    for i, message in enumerate(messages):
        content, role = message.get("content"), message["role"]
        if role == "tool" or message.get("tool_calls"):
            continue
        texts = [content] if isinstance(content, str) else [p.get("text", "…") for p in content or ()]
        if not texts or any(not text.strip() for text in texts):
            text = f"Invalid request: the message at position {i} with role '{role}' must not be empty"
            raise SimulatedRefusal(text, rule="content")


def _check_arguments(messages: Sequence[Mapping[str, Any]]) -> None:
    for i, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            try:
                is_object = isinstance(json.loads(call["function"]["arguments"]), dict)
            except ValueError:
                is_object = False
            if not is_object:
                text = f"messages[{i}]: the arguments of tool call {call['id']} are not a valid JSON object"
                raise SimulatedRefusal(text, rule="arguments")


def _check_loop_reasoning(messages: Sequence[Mapping[str, Any]], issued: Issued) -> None:
    """Check that calls of the running tool loop come back with the reasoning they were issued with."""
    start = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=0)
    for i, message in enumerate(messages[start:], start):
        calls = {c["id"] for c in message.get("tool_calls") or ()}
        has_tags = isinstance(message.get("content"), str) and message["content"].startswith("<think>")
        has_reasoning = has_tags or any(message.get(k) for k in ("reasoning_content", "reasoning", "reasoning_details"))
        if calls & issued.reasoned_calls and not has_reasoning:
            text = f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {i}"
            raise SimulatedRefusal(text, rule="reasoning")


def _check_turns(messages: Sequence[Mapping[str, Any]]) -> None:
    roles = [m["role"] for m in messages]
    while roles and roles[0] in ("system", "developer"):
        roles.pop(0)
    before = "start"
    for role in roles:
        if (before, role) not in _MAY_FOLLOW:
            raise SimulatedRefusal(
                "Conversation roles must alternate user/assistant/user/assistant/... "
                f"(found {role!r} after {before!r})",
                rule="alternation",
            )
        before = role


def _check_cache_control(body: Mapping[str, Any]) -> None:
    ttls = [cache_ttl(t) for t in body.get("tools") or ()]
    for message in body["messages"]:
        ttls.append(cache_ttl(message))
        content = message.get("content")
        ttls += [cache_ttl(p) for p in content] if isinstance(content, list) else []
    count = sum(m is not None for m in ttls)
    if count and "claude" not in body["model"].lower():
        raise SimulatedRefusal("Unrecognized request argument supplied: cache_control", rule="marks")
    if count > 4:
        text = f"A maximum of 4 blocks with cache_control may be provided. Found {count}."
        raise SimulatedRefusal(text, rule="marks")
