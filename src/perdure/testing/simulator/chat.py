"""OpenAI Chat Completions: count a prompt and render a reply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.testing.simulator.rules import Rules, SimulatedRefusal, limit
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
