"""Anthropic Messages: validate a request, with the service's error messages; count a prompt; render a reply."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.core.messages import canonical_json
from perdure.testing.simulator.rules import Issued, Rules, SimulatedRefusal, limit, words
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
    """Return what the cache entries of messages depend on in addition to blocks: tool_choice, thinking, any images."""
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


MAX_MARKS = 4
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_BODY_KEYS = words(
    "model messages max_tokens system tools tool_choice stream temperature top_p top_k stop_sequences metadata "
    "thinking service_tier container context_management mcp_servers output_config"
)
_BLOCK_KEYS = {
    "text": words("type text cache_control citations"),
    "image": words("type source cache_control"),
    "document": words("type source title context citations cache_control"),
    "tool_use": words("type id name input cache_control caller"),
    "tool_result": words("type tool_use_id content is_error cache_control"),
    "thinking": words("type thinking signature"),
    "redacted_thinking": words("type data"),
}


def check(body: Mapping[str, Any], rules: Rules, issued: Issued) -> None:
    """Check a request against the rules of the service; raise SimulatedRefusal for the first violation."""
    _check_body(body)
    messages = body["messages"]
    for i, message in enumerate(messages):
        _check_message(i, message, is_last=i == len(messages) - 1)
    _check_turns(messages, rules)
    merged = list(_merge_messages(messages))
    _check_pairs(merged)
    _check_thinking(merged, body, issued)
    _check_cache_control(body)
    _check_images(messages, rules)


def parts_of(message: Mapping[str, Any]) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _check_body(body: Mapping[str, Any]) -> None:
    for key in body:
        if key not in _BODY_KEYS:
            raise SimulatedRefusal(f"{key}: Extra inputs are not permitted")
    for key in ("model", "max_tokens", "messages"):
        if key not in body:
            raise SimulatedRefusal(f"{key}: Field required")
    if not isinstance(body["max_tokens"], int) or body["max_tokens"] < 1:
        raise SimulatedRefusal("max_tokens: Input should be greater than or equal to 1")
    if not isinstance(body["messages"], list) or not body["messages"]:
        raise SimulatedRefusal("messages: at least one message is required")
    system = body.get("system", "")
    for i, part in enumerate(system if isinstance(system, list) else ()):
        if part.get("type") != "text":
            raise SimulatedRefusal(f"system.{i}.type: Input should be 'text'")
        if not part.get("text"):
            raise SimulatedRefusal("system: text content blocks must be non-empty")
    for i, tool in enumerate(body.get("tools") or ()):
        if not _NAME.fullmatch(str(tool.get("name", ""))):
            raise SimulatedRefusal(f"tools.{i}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if not isinstance(tool.get("input_schema"), dict):
            raise SimulatedRefusal(f"tools.{i}.custom.input_schema: Field required")
    _check_budget(body)


def _check_budget(body: Mapping[str, Any]) -> None:
    thinking = body.get("thinking") or {}
    if thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens", 0)
    if budget < 1024:
        raise SimulatedRefusal("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if budget >= body["max_tokens"]:
        raise SimulatedRefusal("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if body.get("temperature", 1) != 1:
        raise SimulatedRefusal("`temperature` may only be set to 1 when thinking is enabled.")


def _check_message(i: int, message: Any, *, is_last: bool) -> None:
    role = message.get("role") if isinstance(message, dict) else None
    if role == "system":
        raise SimulatedRefusal(
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not "system" '
            "as an input message role."
        )
    if role not in ("user", "assistant"):
        raise SimulatedRefusal(f"messages.{i}.role: Input should be 'user' or 'assistant'")
    for key in message:
        if key not in ("role", "content"):
            raise SimulatedRefusal(f"messages.{i}.{key}: Extra inputs are not permitted")
    content = message.get("content")
    if not isinstance(content, str | list):
        raise SimulatedRefusal(f"messages.{i}.content: Input should be a valid list")
    if not content and not (is_last and role == "assistant"):
        raise SimulatedRefusal(
            f"messages.{i}: all messages must have non-empty content except for the optional final assistant message"
        )
    for k, part in enumerate(parts_of(message)):
        _check_part(f"messages.{i}.content.{k}", part, role)


def _check_part(where: str, part: Any, role: str) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _BLOCK_KEYS:
        raise SimulatedRefusal(
            f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
        )
    for key in part:
        if key not in _BLOCK_KEYS[kind]:
            raise SimulatedRefusal(f"{where}.{kind}.{key}: Extra inputs are not permitted")
    if kind == "text" and not (isinstance(part.get("text"), str) and part["text"]):
        raise SimulatedRefusal("messages: text content blocks must be non-empty")
    if kind == "text" and not part["text"].strip():
        raise SimulatedRefusal("messages: text content blocks must contain non-whitespace text")
    if kind == "tool_use":
        if not _ID.fullmatch(str(part.get("id", ""))):
            raise SimulatedRefusal(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        if not isinstance(part.get("input"), dict):
            raise SimulatedRefusal(f"{where}.tool_use.input: Input should be a valid dictionary")
        if not _NAME.fullmatch(str(part.get("name", ""))):
            raise SimulatedRefusal(f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if kind == "image" and not isinstance(part.get("source"), dict):
        raise SimulatedRefusal(f"{where}.image.source: Field required")
    misplaced = {"user": ("tool_use", "thinking", "redacted_thinking"), "assistant": ("tool_result", "image")}
    if kind in misplaced[role]:
        raise SimulatedRefusal(f"{where}: `{kind}` blocks cannot be in {role} messages")
    content = part.get("content")
    for k, inner in enumerate(content if kind == "tool_result" and isinstance(content, list) else ()):
        if inner.get("type") not in ("text", "image", "document"):
            raise SimulatedRefusal(
                f"{where}.tool_result.content.{k}.type: Input should be 'text', 'image' or 'document'"
            )
        _check_part(f"{where}.tool_result.content.{k}", inner, role)


def _check_turns(messages: Sequence[Mapping[str, Any]], rules: Rules) -> None:
    if messages[0]["role"] != "user":
        raise SimulatedRefusal('messages: first message must use the "user" role', rule="alternation")
    if rules.needs_alternation:
        for before, message in itertools.pairwise(messages):
            if before["role"] == message["role"]:
                raise SimulatedRefusal(
                    'messages: roles must alternate between "user" and "assistant", but found multiple '
                    f'"{message["role"]}" roles in a row',
                    rule="alternation",
                )
    if messages[-1]["role"] == "assistant" and not rules.allows_prefill:
        raise SimulatedRefusal(
            "This model does not support assistant message prefill. The conversation must end with a user message.",
            rule="prefill",
        )


def _merge_messages(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str, list[Any]]]:
    """Yield consecutive messages of one role merged into one, as the service does, with the index of the first."""
    row: list[tuple[int, str, list[Any]]] = []
    for i, message in enumerate(messages):
        if row and row[-1][1] == message["role"]:
            row[-1][2].extend(parts_of(message))
        else:
            row.append((i, message["role"], list(parts_of(message))))
    yield from row


def _check_pairs(merged: Sequence[tuple[int, str, list[Any]]]) -> None:
    used_ids: set[str] = set()
    waiting: list[str] = []
    call_index = 0
    for i, role, parts in merged:
        if role == "assistant":
            waiting, call_index = [p["id"] for p in parts if p["type"] == "tool_use"], i
            if len(set(waiting)) < len(waiting) or used_ids & set(waiting):
                raise SimulatedRefusal("messages: `tool_use` ids must be unique", rule="pairs")
            used_ids.update(waiting)
            continue
        _check_results(i, parts, waiting, call_index)
        waiting = []
    if waiting:
        raise _missing_result_error(call_index, waiting)


def _check_results(i: int, parts: Sequence[Mapping[str, Any]], waiting: list[str], call_index: int) -> None:
    result_ids: list[str] = []
    has_other = False
    for k, part in enumerate(parts):
        if part["type"] != "tool_result":
            has_other = True
            continue
        call_id = part.get("tool_use_id")
        if call_id in result_ids:
            raise SimulatedRefusal(f"messages.{i}.content.{k}: each tool_use must have a single result", rule="pairs")
        if call_id not in waiting:
            raise SimulatedRefusal(
                f"messages.{i}.content.{k}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message.",
                rule="pairs",
            )
        if has_other:
            # Results come first in their message; text before one hides it from the service.
            raise _missing_result_error(call_index, [call_id])
        result_ids.append(call_id)
    if missing := [w for w in waiting if w not in result_ids]:
        raise _missing_result_error(call_index, missing)


def _missing_result_error(i: int, ids: Sequence[str]) -> SimulatedRefusal:
    return SimulatedRefusal(
        f"messages.{i}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(ids)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        rule="pairs",
    )


def _check_thinking(merged: Sequence[tuple[int, str, list[Any]]], body: Mapping[str, Any], issued: Issued) -> None:
    for i, _role, parts in merged:
        for k, part in enumerate(parts):
            if part["type"] == "thinking" and part.get("signature") != Issued.seal(str(part.get("thinking"))):
                raise SimulatedRefusal(
                    f"messages.{i}.content.{k}: Invalid `signature` in `thinking` block", rule="thinking"
                )
    replies = [(i, parts) for i, role, parts in merged if role == "assistant"]
    is_thinking = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    if not replies or not is_thinking or merged[-1][1] == "assistant":
        return
    i, parts = replies[-1]
    thinking = [p for p in parts if p["type"] in ("thinking", "redacted_thinking")]
    for call in (p for p in parts if p["type"] == "tool_use"):
        expected = issued.thinking.get(call["id"])
        if expected is not None and list(expected) != thinking:
            raise SimulatedRefusal(
                f"messages.{i}.content.{parts.index(call)}: `thinking` or `redacted_thinking` blocks in the latest "
                "assistant message cannot be modified. These blocks must remain as they were in the original response.",
                rule="thinking",
            )


def _check_images(messages: Sequence[Mapping[str, Any]], rules: Rules) -> None:
    """Raise a limit error, not a violation, for too many images."""
    kinds = [kind for message in messages for part in parts_of(message) for kind in _media_kinds(part)]
    images, documents = kinds.count("image"), kinds.count("document")
    if images + documents > rules.max_images:
        raise limit(f"too many images and documents: {images} + {documents} > {rules.max_images}")


def _media_kinds(part: Mapping[str, Any]) -> list[str]:
    inner = part.get("content")
    return (
        [part["type"], *(p["type"] for p in inner if part["type"] == "tool_result")]
        if isinstance(inner, list)
        else [part["type"]]
    )


def _check_cache_control(body: Mapping[str, Any]) -> None:
    system = body.get("system") or ()
    parts = [*(body.get("tools") or ()), *(system if isinstance(system, list) else ())]
    for message in body["messages"]:
        for part in parts_of(message):
            parts.append(part)
            inner = part.get("content")
            parts += inner if part["type"] == "tool_result" and isinstance(inner, list) else []
    controls = [p["cache_control"] for p in parts if p.get("cache_control") is not None]
    for control in controls:
        if control.get("type") != "ephemeral" or control.get("ttl", "5m") not in ("5m", "1h"):
            raise SimulatedRefusal("cache_control.ttl: Input should be '5m' or '1h'", rule="marks")
    if len(controls) > MAX_MARKS:
        text = f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(controls)}."
        raise SimulatedRefusal(text, rule="marks")
    ttls = [cache_ttl(p) for p in parts if cache_ttl(p)]
    if "5m" in ttls and "1h" in ttls[ttls.index("5m") :]:
        raise SimulatedRefusal(
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are "
            "processed in the following order: `tools`, `system`, `messages`.",
            rule="marks",
        )
