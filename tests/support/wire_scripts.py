"""One scripted answer in the words of each wire, whole and streamed, so that modes can be held against each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from perdure.core.events import ReasoningDelta, TextDelta, ToolCallParsed
from perdure.providers import anthropic_messages, chat_completions, responses
from perdure.providers.types import Reply, SseEvent

MODES: dict[str, ModuleType] = {
    "chat_completions": chat_completions,
    "codex_responses": responses,
    "anthropic_messages": anthropic_messages,
}


@dataclass(frozen=True)
class Answer:
    """What a model says: thinking, text and calls (id, name, arguments)."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    finish: str = "stop"


def whole(mode: str, answer: Answer) -> dict[str, Any]:
    """The answer as one body."""
    return {"chat_completions": _chat, "codex_responses": _responses, "anthropic_messages": _anthropic}[mode](answer)


def streamed(mode: str, answer: Answer, *, size: int = 3) -> list[SseEvent]:
    """The answer as events, its texts cut into pieces of `size` characters."""
    make = {
        "chat_completions": _chat_events,
        "codex_responses": _responses_events,
        "anthropic_messages": _anthropic_events,
    }
    return make[mode](answer, size)


def read_stream(mode: str, events: list[SseEvent]) -> tuple[Reply, list[TextDelta | ReasoningDelta | ToolCallParsed]]:
    stream = MODES[mode].make_stream()
    deltas = [d for e in events for d in stream.feed(e)]
    return stream.finish(), deltas


def event(data: Mapping[str, Any] | str, name: str = "") -> SseEvent:
    return SseEvent(name, data if isinstance(data, str) else json.dumps(data))


def cut(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


_CHAT_USAGE = {"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 20}}
_NATIVE_USAGE = {"input_tokens": 50, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 20}}
_CLAUDE_USAGE = {"input_tokens": 30, "output_tokens": 7, "cache_read_input_tokens": 20}


def _chat_calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"index": i, "id": c, "type": "function", "function": {"name": n, "arguments": a}}
        for i, (c, n, a) in enumerate(answer.calls)
    ]


def _chat(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.thinking:
        message["reasoning_content"] = answer.thinking
    if answer.calls:
        message["tool_calls"] = _chat_calls(answer)
    choice = {"index": 0, "message": message, "finish_reason": answer.finish}
    return {"id": "r1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": _CHAT_USAGE}


def _chat_events(answer: Answer, size: int) -> list[SseEvent]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> SseEvent:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return event({"id": "r1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], "usage": None})

    out = [chunk({"role": "assistant", "content": ""})]
    out += [chunk({"reasoning_content": t}) for t in cut(answer.thinking, size)]
    out += [chunk({"content": t}) for t in cut(answer.text, size)]
    for i, (call_id, name, arguments) in enumerate(answer.calls):
        first = {"index": i, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        out.append(chunk({"tool_calls": [first]}))
        out += [chunk({"tool_calls": [{"index": i, "function": {"arguments": a}}]}) for a in cut(arguments, size)]
    out.append(chunk({}, answer.finish))
    out.append(event({"id": "r1", "model": "m", "choices": [], "usage": _CHAT_USAGE}))
    return [*out, event("[DONE]")]


def _items(answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.thinking:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        items.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAA"})
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        items.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content})
    for i, (call_id, name, arguments) in enumerate(answer.calls):
        call = {"type": "function_call", "id": f"fc_{i}", "call_id": call_id, "name": name, "arguments": arguments}
        items.append(call)
    return items


def _responses(answer: Answer) -> dict[str, Any]:
    return {"id": "r1", "model": "m", "status": "completed", "output": _items(answer), "usage": _NATIVE_USAGE}


def _responses_events(answer: Answer, size: int) -> list[SseEvent]:
    def typed(kind: str, **fields: Any) -> SseEvent:
        return event({"type": kind, **fields}, kind)

    started = {"id": "r1", "model": "m", "status": "in_progress", "output": []}
    out = [typed("response.created", response=started), typed("response.in_progress", response=started)]
    for i, item in enumerate(_items(answer)):
        out.append(typed("response.output_item.added", output_index=i, item={**item, "status": "in_progress"}))
        if item["type"] == "reasoning":
            deltas, kind = cut(answer.thinking, size), "response.reasoning_summary_text.delta"
        elif item["type"] == "message":
            deltas, kind = cut(answer.text, size), "response.output_text.delta"
        else:
            deltas, kind = cut(item["arguments"], size), "response.function_call_arguments.delta"
        out += [typed(kind, output_index=i, delta=d) for d in deltas]
        out.append(typed("response.output_item.done", output_index=i, item=item))
    return [*out, typed("response.completed", response=_responses(answer))]


def _blocks(answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.thinking:
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": "EqQB"})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    for call_id, name, arguments in answer.calls:
        blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)})
    return blocks


def _reason(answer: Answer) -> str:
    return (
        "tool_use" if answer.calls else {"stop": "end_turn", "length": "max_tokens"}.get(answer.finish, answer.finish)
    )


def _anthropic(answer: Answer) -> dict[str, Any]:
    head = {"id": "r1", "type": "message", "role": "assistant", "model": "m"}
    return {**head, "content": _blocks(answer), "stop_reason": _reason(answer), "usage": _CLAUDE_USAGE}


def _anthropic_events(answer: Answer, size: int) -> list[SseEvent]:
    def typed(kind: str, **fields: Any) -> SseEvent:
        return event({"type": kind, **fields}, kind)

    start = {**_anthropic(answer), "content": [], "stop_reason": None, "usage": {**_CLAUDE_USAGE, "output_tokens": 1}}
    out = [typed("message_start", message=start), typed("ping")]
    for i, block in enumerate(_blocks(answer)):
        if block["type"] == "thinking":
            opened = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": t} for t in cut(answer.thinking, size)]
            deltas.append({"type": "signature_delta", "signature": "EqQB"})
        elif block["type"] == "text":
            opened = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": t} for t in cut(answer.text, size)]
        else:
            opened = {**block, "input": {}}
            arguments = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in ["", *cut(arguments, size)]]
        out.append(typed("content_block_start", index=i, content_block=opened))
        out += [typed("content_block_delta", index=i, delta=d) for d in deltas]
        out.append(typed("content_block_stop", index=i))
    ending = {"stop_reason": _reason(answer), "stop_sequence": None}
    out.append(typed("message_delta", delta=ending, usage={"output_tokens": 7}))
    return [*out, typed("message_stop")]
