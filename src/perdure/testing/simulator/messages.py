"""Anthropic Messages: count a prompt and render a reply."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from perdure.core.messages import canonical_json
from perdure.testing.simulator.rules import Issued, Rules, SimulatedRefusal, limit
from perdure.testing.simulator.tokens import PromptBlock, Ttl, cache_ttl, count_blocks, image, role_tag, schema, segment
from perdure.testing.simulator.turn import Scene, SimulatedTurn, frame

_STOP = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
    "window": "model_context_window_exceeded",
}


def blocks(body: Mapping[str, Any]) -> list[PromptBlock]:
    """Return the prompt as blocks, in the order the service caches it: tools, system, messages."""
    prompt = [PromptBlock(schema(_without_cache_control(t)), "tools", cache_ttl(t)) for t in body.get("tools") or ()]
    system = body.get("system") or ()
    for part in [{"text": system}] if isinstance(system, str) else system:
        prompt.append(PromptBlock(role_tag("system") + segment(part["text"]), "system", cache_ttl(part)))
    for message in body["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for i, part in enumerate(parts):
            head = role_tag(message["role"]) if i == 0 else b""
            prompt.append(PromptBlock(head + _part_bytes(part), "messages", _mark(part), _has_image(part)))
    return prompt


def _without_cache_control(part: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in part.items() if k != "cache_control"}


def _mark(part: Mapping[str, Any]) -> Ttl | None:
    """Return the cache TTL of a part; one inside a tool result counts for the result."""
    inner = part.get("content")
    within = [cache_ttl(p) for p in inner] if isinstance(inner, list) else []
    return cache_ttl(part) or next((m for m in within if m), None)


def _has_image(part: Mapping[str, Any]) -> bool:
    inner = part.get("content")
    return part.get("type") == "image" or (isinstance(inner, list) and any(_has_image(p) for p in inner))


def _part_bytes(part: Mapping[str, Any]) -> bytes:
    kind = part["type"]
    if kind == "text":
        return segment(part["text"])
    if kind == "image":
        return image(part["source"])
    if kind == "tool_use":
        return segment(part["id"]) + segment(part["name"]) + segment(canonical_json(part["input"]))
    if kind == "tool_result":
        content = part.get("content") or ""
        inner = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return segment(part["tool_use_id"]) + b"".join(_part_bytes(p) for p in inner)
    if kind == "thinking":
        return segment(part["thinking"])
    return segment(canonical_json(_without_cache_control(part)))


def messages_seed(body: Mapping[str, Any], prompt_blocks: list[PromptBlock]) -> bytes:
    """Return what the cache entries of messages depend on besides blocks: tool_choice, thinking, any images."""
    facts = [body.get("tool_choice"), body.get("thinking"), any(b.has_image for b in prompt_blocks)]
    return canonical_json(facts).encode()


def requested_output(body: Mapping[str, Any]) -> int | None:
    max_tokens = body.get("max_tokens")
    return max_tokens if isinstance(max_tokens, int) else None


def check_size(body: Mapping[str, Any], prompt_blocks: list[PromptBlock], rules: Rules) -> None:
    """Raise the service's error for a prompt or max_tokens that does not fit."""
    max_tokens, prompt = requested_output(body) or 0, count_blocks(prompt_blocks)
    if max_tokens > rules.max_output:
        raise limit(
            f"max_tokens: {max_tokens} > {rules.max_output}, which is the maximum allowed number of output tokens for "
            f"{body['model']}"
        )
    if prompt > rules.window:
        raise limit(f"prompt is too long: {prompt} tokens > {rules.window} maximum")
    if prompt + max_tokens > rules.window and rules.sum_overflow == "error":
        raise limit(
            f"input length and `max_tokens` exceed context limit: {prompt} + {max_tokens} > {rules.window}, "
            "decrease input length or `max_tokens` and try again"
        )


def error_body(refusal: SimulatedRefusal) -> dict[str, Any]:
    error = {"type": refusal.error_type, "message": refusal.message}
    return {"type": "error", "error": error, "request_id": "req_sim000000"}


def usage(turn: SimulatedTurn, *, output_tokens: int | None = None) -> dict[str, Any]:
    used = turn.usage
    return {
        "input_tokens": used.input_tokens,
        "cache_creation_input_tokens": used.cache_write_tokens,
        "cache_read_input_tokens": used.cache_read_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": used.cache_write_tokens - used.cache_write_1h_tokens,
            "ephemeral_1h_input_tokens": used.cache_write_1h_tokens,
        },
        "output_tokens": used.output_tokens if output_tokens is None else output_tokens,
        "output_tokens_details": {"thinking_tokens": used.reasoning_tokens},
        "service_tier": "standard",
    }


def render_body(turn: SimulatedTurn, scene: Scene) -> dict[str, Any]:
    """Render the reply to a request without streaming."""
    reply = {
        **_envelope(turn),
        "content": content(turn, scene.issued),
        "stop_reason": turn.finish or _STOP[turn.ending],
        "stop_sequence": None,
    }
    if turn.reports_usage:
        reply["usage"] = usage(turn)
    return reply


def content(turn: SimulatedTurn, issued: Issued) -> list[dict[str, Any]]:
    """Return the blocks of a reply; thinking issued with calls is recorded, as it must come back unchanged."""
    row: list[dict[str, Any]] = []
    if turn.thinking:
        row.append({"type": "thinking", "thinking": turn.thinking, "signature": Issued.seal(turn.thinking)})
    thoughts = tuple(row)
    if turn.text or turn.refusal:
        row.append({"type": "text", "text": turn.text or turn.refusal})
    for call in turn.calls:
        issued.thinking[call.id or ""] = thoughts
        row.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments_text)})
    return row


def render_stream(turn: SimulatedTurn, scene: Scene) -> Iterator[bytes]:
    """Render the reply as events, with a ping after the first block start."""
    start = {**_envelope(turn), "content": [], "stop_reason": None, "stop_sequence": None}
    if turn.reports_usage:
        start["usage"] = usage(turn, output_tokens=1)
    yield _event("message_start", message=start)
    blocks = content(turn, scene.issued)
    # The calls are the last blocks. They are matched by position: two scripted calls may share an id.
    first_call = len(blocks) - len(turn.calls)
    for index, block in enumerate(blocks):
        yield _event("content_block_start", index=index, content_block=_empty_block(block))
        if index == 0:
            yield _event("ping")
        arguments = turn.calls[index - first_call].arguments_text if index >= first_call else ""
        for delta in _deltas(block, turn, arguments=arguments):
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": turn.finish or _STOP[turn.ending], "stop_sequence": None}
    final = {"usage": usage(turn)} if turn.reports_usage else {"usage": {"output_tokens": 0}}
    yield _event("message_delta", delta=ending, **final)
    yield _event("message_stop")


def error_event(turn: SimulatedTurn, scene: Scene) -> bytes:
    """Render the event that ends a stream with an error."""
    return _event("error", error={"type": "overloaded_error", "message": "Overloaded"})


def _empty_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block as in its start event: empty."""
    blank: dict[str, dict[str, Any]] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}},
    }
    return {**block, **blank[block["type"]]}


def _deltas(block: Mapping[str, Any], turn: SimulatedTurn, *, arguments: str) -> Iterator[dict[str, Any]]:
    if block["type"] == "text":
        for piece in turn.pieces(block["text"]):
            yield {"type": "text_delta", "text": piece}
    elif block["type"] == "thinking":
        for piece in turn.pieces(block["thinking"]):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": block["signature"]}
    else:
        yield {"type": "input_json_delta", "partial_json": ""}
        for piece in turn.pieces(arguments):
            yield {"type": "input_json_delta", "partial_json": piece}


def _input(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return {}


def _envelope(turn: SimulatedTurn) -> dict[str, Any]:
    return {"id": f"msg_sim{turn.number:06d}", "type": "message", "role": "assistant", "model": turn.model}


def _event(name: str, **fields: Any) -> bytes:
    return frame({"type": name, **fields}, name)
