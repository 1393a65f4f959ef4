"""What a call costs us: building the body of a long history, and reading a streamed answer piece by piece."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from benchmarks.table import Row
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user
from perdure.providers import anthropic_messages, chat_completions, responses
from perdure.providers.errors.classify import classify_error
from perdure.providers.http import SseReader
from perdure.providers.types import ModelRequest, SseEvent

TITLE = "Providers: our own CPU for a call"

MESSAGES = 10_000
CHUNKS = 5_000
ROUNDS = 7
MODES = {
    "chat_completions": chat_completions,
    "codex_responses": responses,
    "anthropic_messages": anthropic_messages,
}


def rows() -> Iterator[Row]:
    entries = history(MESSAGES)
    for name, module in MODES.items():
        marks = "5m" if module is anthropic_messages else None
        request = ModelRequest("claude-sonnet-5-5", entries, system=("You are careful. " * 400,), cache_ttl=marks)
        first_ms = 1000 * cpu_s(lambda m=module, r=request: m.build(r), rounds=1)
        again_ms = 1000 * cpu_s(lambda m=module, r=request: m.build(r))
        size = f"{len(module.build(request)) / 1e6:.1f} MB"
        yield Row(f"{name}: body of {MESSAGES:,} messages sent before", again_ms, "ms", "< 15", size)
        yield Row(f"{name}: the same, first time", first_ms, "ms")
    for name, module in MODES.items():
        wire = stream_bytes(name)
        spent = cpu_s(lambda m=module, w=wire: read(m, w))
        yield Row(f"{name}: one streamed chunk, from bytes to event", 1e6 * spent / CHUNKS, "µs", "< 60")
    body = json.dumps({"error": {"message": "x " * 2_000 + "prompt is too long: 208310 tokens > 200000 maximum"}})
    yield Row("classify one error of 4 kB", 1000 * cpu_s(lambda: classify_error(400, body)), "ms")


def cpu_s(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The least CPU time of several runs: what the work costs, not what the machine was busy with."""
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def history(count: int) -> list[Entry]:
    """Turns of a question, a reply with two calls, their results, and an answer; about a kilobyte a message."""
    text = "The quick brown fox jumps over the lazy dog; 敏捷的棕色狐狸。 " * 14
    messages: list[Message] = []
    for i in range(0, count, 5):
        calls = (ToolCall(f"call_{i}a", "read_file", '{"path":"a.py"}'), ToolCall(f"call_{i}b", "grep", '{"q":"x"}'))
        messages += [user(text), assistant("Looking.", calls)]
        messages += [tool_result(f"call_{i}a", text), tool_result(f"call_{i}b", text), assistant(text)]
    return [Entry(i, m) for i, m in enumerate(messages[:count])]


def stream_bytes(mode: str) -> bytes:
    """A streamed answer of one word a chunk, as it comes off the socket."""
    if mode == "chat_completions":
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "m"}
        piece = {**head, "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}], "usage": None}
        last = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        return b"".join([_event(piece)] * CHUNKS + [_event(last), b"data: [DONE]\n\n"])
    if mode == "codex_responses":
        kind = "response.output_text.delta"
        piece = {"type": kind, "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": " word"}
        done = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}
        return b"".join([_event(piece, kind)] * CHUNKS + [_event(done, "response.completed")])
    kind = "content_block_delta"
    piece = {"type": kind, "index": 0, "delta": {"type": "text_delta", "text": " word"}}
    opened = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    done = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    start = _event(opened, "content_block_start")
    return b"".join([start, *[_event(piece, kind)] * CHUNKS, _event(done, "message_delta")])


def _event(data: dict[str, object], name: str = "") -> bytes:
    line = f"event: {name}\n" if name else ""
    return f"{line}data: {json.dumps(data)}\n\n".encode()


def read(module: object, wire: bytes) -> None:
    """Reads a stream the way the transport does: bytes in network-sized pieces, events, deltas, a reply."""
    reader, stream = SseReader(), module.make_stream()  # type: ignore[attr-defined]  # a mode module
    for i in range(0, len(wire), 1400):
        for event in reader.feed(wire[i : i + 1400]):
            assert isinstance(event, SseEvent)
            stream.feed(event)
    assert len(stream.finish().message.text) == 5 * CHUNKS
