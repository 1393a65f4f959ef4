"""OpenAI Responses: validate a request, with the service's error messages; count a prompt; render a reply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.core.messages import canonical_json
from perdure.testing.simulator.rules import Issued, Rules, SimulatedRefusal, limit, words
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
            _mark_completed(
                {"id": f"msg_sim{turn.number:06d}", "type": "message", "role": "assistant", "content": [part]}
            )
        )
    for k, call in enumerate(turn.calls):
        head = {"id": f"fc_sim{turn.number:06d}_{k}", "type": "function_call", "call_id": call.id}
        row.append(_mark_completed({**head, "name": call.name, "arguments": call.arguments_text}))
    if turn.thinking:
        issued.reasoning_of.update({item["id"]: thought for item in row[1:]})
    return row


def _mark_completed(item: Item) -> Item:
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
    """Return an output item as in its first event, before any content."""
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
    """Check a request against the rules of the service; raise SimulatedRefusal for the first violation."""
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
