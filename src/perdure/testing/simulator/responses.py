"""OpenAI Responses: count a prompt and render a reply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.core.messages import canonical_json
from perdure.testing.simulator.rules import Issued, Rules, SimulatedRefusal, limit
from perdure.testing.simulator.tokens import PromptBlock, count_blocks, image, role_tag, schema, segment
from perdure.testing.simulator.turn import Scene, SimulatedTurn, frame

OVERFLOW = "Your input exceeds the context window of this model. Please adjust your input and try again."

Item = dict[str, Any]


def items_of(body: Mapping[str, Any]) -> list[Item]:
    """Return the input as items; plain text is one user message."""
    raw = body.get("input")
    return [{"type": "message", "role": "user", "content": raw}] if isinstance(raw, str) else list(raw or ())


def blocks(body: Mapping[str, Any]) -> list[PromptBlock]:
    """Return the prompt as blocks, in the order the model reads it: tools, instructions, items."""
    prompt = [PromptBlock(schema(tool), "tools") for tool in body.get("tools") or ()]
    if body.get("instructions"):
        prompt.append(PromptBlock(role_tag("system") + segment(body["instructions"]), "system"))
    for item in items_of(body):
        prompt.append(PromptBlock(_item_bytes(item), "messages"))
    return prompt


def _item_bytes(item: Mapping[str, Any]) -> bytes:
    kind = item.get("type", "message")
    if kind == "message":
        content = item["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        return role_tag(item["role"]) + b"".join(_part_bytes(p) for p in parts)
    if kind == "function_call":
        return role_tag("assistant") + b"".join(segment(str(item[k])) for k in ("call_id", "name", "arguments"))
    if kind == "function_call_output":
        output = item["output"]
        parts = [{"text": output}] if isinstance(output, str) else output
        return role_tag("tool") + segment(item["call_id"]) + b"".join(_part_bytes(p) for p in parts)
    if kind == "reasoning":
        return role_tag("assistant") + segment(item.get("encrypted_content") or item.get("id") or "")
    return segment(canonical_json(item))


def _part_bytes(part: Mapping[str, Any]) -> bytes:
    if part.get("type") == "input_image":
        return image(part.get("image_url") or part.get("file_id"))
    return segment(str(part.get("text") or part.get("refusal") or ""))


def requested_output(body: Mapping[str, Any]) -> int | None:
    max_tokens = body.get("max_output_tokens")
    return max_tokens if isinstance(max_tokens, int) else None


def check_size(body: Mapping[str, Any], prompt_blocks: list[PromptBlock], rules: Rules) -> None:
    """Raise the service's error for a prompt or max_tokens that does not fit; a full window only ends a reply."""
    max_tokens = requested_output(body)
    if max_tokens is not None and max_tokens > rules.max_output:
        raise limit(
            f"max_tokens is too large: {max_tokens}. This model supports at most {rules.max_output} completion tokens, "
            f"whereas you provided {max_tokens}.",
            param="max_output_tokens",
            code="invalid_value",
        )
    if count_blocks(prompt_blocks) > rules.window:
        raise limit(OVERFLOW, param="input", code="context_length_exceeded")


def error_body(refusal: SimulatedRefusal) -> dict[str, Any]:
    error = {"message": refusal.message, "type": refusal.error_type, "param": refusal.param, "code": refusal.code}
    return {"error": error}


def usage(turn: SimulatedTurn, *, reports_writes: bool) -> dict[str, Any]:
    used = turn.usage
    details = {"cached_tokens": used.cache_read_tokens}
    if reports_writes:
        details["cache_write_tokens"] = used.cache_write_tokens
    return {
        "input_tokens": used.prompt_tokens,
        "input_tokens_details": details,
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.total_tokens,
    }


def output(turn: SimulatedTurn, issued: Issued) -> list[Item]:
    """Return the items of a reply; items issued after a reasoning item are recorded."""
    row: list[Item] = []
    thought = f"rs_sim{turn.number:06d}"
    if turn.thinking:
        summary = [{"type": "summary_text", "text": turn.thinking}]
        sealed = f"enc_{Issued.seal(turn.thinking)}"
        issued.sealed.add(sealed)
        row.append({"id": thought, "type": "reasoning", "summary": summary, "encrypted_content": sealed})
    if turn.text or turn.refusal:
        part: Item = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        if turn.refusal:
            part = {"type": "refusal", "refusal": turn.refusal}
        row.append(
            _completed({"id": f"msg_sim{turn.number:06d}", "type": "message", "role": "assistant", "content": [part]})
        )
    for k, call in enumerate(turn.calls):
        head = {"id": f"fc_sim{turn.number:06d}_{k}", "type": "function_call", "call_id": call.id}
        row.append(_completed({**head, "name": call.name, "arguments": call.arguments_text}))
    if turn.thinking:
        issued.reasoning_of.update({item["id"]: thought for item in row[1:]})
    return row


def _completed(item: Item) -> Item:
    return {**item, "status": "completed"}


def render_body(turn: SimulatedTurn, scene: Scene) -> dict[str, Any]:
    """Render the reply to a request without streaming; the last event of a stream carries it too."""
    is_cut = turn.ending in ("length", "window")
    reply = _envelope(turn, scene.body, "incomplete" if is_cut else "completed")
    reply["output"] = output(turn, scene.issued)
    reply["incomplete_details"] = {"reason": "max_output_tokens"} if is_cut else None
    if turn.reports_usage:
        reply["usage"] = usage(turn, reports_writes=scene.reports_writes)
    return reply


def render_stream(turn: SimulatedTurn, scene: Scene) -> Iterator[bytes]:
    """Render the reply as numbered events."""
    number = iter(range(1_000_000))

    def event(name: str, /, **fields: Any) -> bytes:
        return frame({"type": name, "sequence_number": next(number), **fields}, name)

    opening = _envelope(turn, scene.body, "in_progress")
    yield event("response.created", response=opening)
    yield event("response.in_progress", response=opening)
    final = render_body(turn, scene)
    for index, item in enumerate(final["output"]):
        yield event("response.output_item.added", output_index=index, item=_empty_item(item))
        for name, fields in _item_events(item, turn):
            yield event(name, item_id=item["id"], output_index=index, **fields)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event(f"response.{final['status']}", response=final)


def failure_event(turn: SimulatedTurn, scene: Scene, *, code: str, message: str) -> bytes:
    """Render the event that ends a stream with an error."""
    response = {**_envelope(turn, scene.body, "failed"), "error": {"code": code, "message": message}}
    return frame({"type": "response.failed", "sequence_number": 2, "response": response}, "response.failed")


def error_event(turn: SimulatedTurn, scene: Scene) -> bytes:
    """Render the event that ends a stream with a server error."""
    return failure_event(turn, scene, code="server_error", message="The server had an error processing your request.")


def _empty_item(item: Item) -> Item:
    """An item as it looks before anything of it has come."""
    blank: dict[str, Item] = {
        "message": {"content": [], "status": "in_progress"},
        "function_call": {"arguments": "", "status": "in_progress"},
        "reasoning": {"summary": [], "encrypted_content": ""},
    }
    return {**item, **blank[item["type"]]}


def _item_events(item: Item, turn: SimulatedTurn) -> Iterator[tuple[str, Item]]:
    if item["type"] == "function_call":
        for piece in turn.pieces(item["arguments"]):
            yield "response.function_call_arguments.delta", {"delta": piece}
        done = {"arguments": item["arguments"], "name": item["name"]}
        yield "response.function_call_arguments.done", done
    elif item["type"] == "reasoning":
        part = item["summary"][0]
        at = {"summary_index": 0}
        yield "response.reasoning_summary_part.added", {**at, "part": {"type": "summary_text", "text": ""}}
        for piece in turn.pieces(part["text"]):
            yield "response.reasoning_summary_text.delta", {**at, "delta": piece}
        yield "response.reasoning_summary_text.done", {**at, "text": part["text"]}
        yield "response.reasoning_summary_part.done", {**at, "part": part}
    else:
        part = item["content"][0]
        key = "refusal" if part["type"] == "refusal" else "text"
        name = "response.refusal" if key == "refusal" else "response.output_text"
        logs: Item = {} if key == "refusal" else {"logprobs": []}
        yield "response.content_part.added", {"content_index": 0, "part": {**part, key: ""}}
        for piece in turn.pieces(part[key]):
            yield f"{name}.delta", {"content_index": 0, "delta": piece, **logs}
        yield f"{name}.done", {"content_index": 0, key: part[key], **logs}
        yield "response.content_part.done", {"content_index": 0, "part": part}


def _envelope(turn: SimulatedTurn, body: Mapping[str, Any], status: str) -> dict[str, Any]:
    return {
        "id": f"resp_sim{turn.number:06d}",
        "object": "response",
        "created_at": turn.created_s,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": turn.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": (body.get("reasoning") or {}).get("effort"), "summary": None},
        "store": bool(body.get("store", True)),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": list(body.get("tools") or ()),
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "metadata": {},
    }
