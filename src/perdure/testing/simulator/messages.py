"""Anthropic Messages: what a prompt comes to, and how a reply looks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from perdure.core.messages import canonical_json
from perdure.testing.simulator.rules import Issued, Rules, SimulatedRefusal, limit
from perdure.testing.simulator.tokens import PromptBlock, Ttl, count_blocks, image, mark_of, role_tag, schema, segment
from perdure.testing.simulator.turn import Scene, SimulatedTurn, frame

_STOP = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
    "window": "model_context_window_exceeded",
}


def blocks(body: Mapping[str, Any]) -> list[PromptBlock]:
    """The prompt in the order the service caches it: tools, system, messages."""
    found = [PromptBlock(schema(_unmarked(t)), "tools", mark_of(t)) for t in body.get("tools") or ()]
    system = body.get("system") or ()
    for part in [{"text": system}] if isinstance(system, str) else system:
        found.append(PromptBlock(role_tag("system") + segment(part["text"]), "system", mark_of(part)))
    for message in body["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for i, part in enumerate(parts):
            head = role_tag(message["role"]) if i == 0 else b""
            found.append(PromptBlock(head + _part_bytes(part), "messages", _mark(part), _has_image(part)))
    return found


def _unmarked(part: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in part.items() if k != "cache_control"}


def _mark(part: Mapping[str, Any]) -> Ttl | None:
    """A mark on a part inside a tool result stands for the result."""
    inner = part.get("content")
    within = [mark_of(p) for p in inner] if isinstance(inner, list) else []
    return mark_of(part) or next((m for m in within if m), None)


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
    return segment(canonical_json(_unmarked(part)))


def messages_seed(body: Mapping[str, Any], found: list[PromptBlock]) -> bytes:
    """What the messages' cache entries depend on besides their blocks: tool_choice, thinking, and images at all."""
    facts = [body.get("tool_choice"), body.get("thinking"), any(b.has_image for b in found)]
    return canonical_json(facts).encode()


def allowance(body: Mapping[str, Any]) -> int | None:
    asked = body.get("max_tokens")
    return asked if isinstance(asked, int) else None


def check_size(body: Mapping[str, Any], found: list[PromptBlock], rules: Rules) -> None:
    """Raises what the service says to a prompt or an allowance that does not fit."""
    asked, prompt = allowance(body) or 0, count_blocks(found)
    if asked > rules.max_output:
        raise limit(
            f"max_tokens: {asked} > {rules.max_output}, which is the maximum allowed number of output tokens for "
            f"{body['model']}"
        )
    if prompt > rules.window:
        raise limit(f"prompt is too long: {prompt} tokens > {rules.window} maximum")
    if prompt + asked > rules.window and rules.sum_overflow == "error":
        raise limit(
            f"input length and `max_tokens` exceed context limit: {prompt} + {asked} > {rules.window}, decrease input "
            "length or `max_tokens` and try again"
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


def whole(turn: SimulatedTurn, scene: Scene) -> dict[str, Any]:
    """The reply to a plain request."""
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
    """The blocks of a reply; thinking given out beside calls is remembered, because it must come back untouched."""
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


def stream(turn: SimulatedTurn, scene: Scene) -> Iterator[bytes]:
    """The reply as events, a ping behind the first block's start."""
    start = {**_envelope(turn), "content": [], "stop_reason": None, "stop_sequence": None}
    if turn.reports_usage:
        start["usage"] = usage(turn, output_tokens=1)
    yield _event("message_start", message=start)
    blocks = content(turn, scene.issued)
    # The calls are the last blocks. They are matched by position: two scripted calls may share an id.
    first_call = len(blocks) - len(turn.calls)
    for index, block in enumerate(blocks):
        yield _event("content_block_start", index=index, content_block=_opened(block))
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


def interrupted(turn: SimulatedTurn, scene: Scene) -> bytes:
    """The event that ends a stream with an error."""
    return _event("error", error={"type": "overloaded_error", "message": "Overloaded"})


def _opened(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block as its start event shows it: empty."""
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
