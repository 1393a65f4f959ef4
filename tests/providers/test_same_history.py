"""The same conversation over three wires, streamed or not, gives the same history."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core import rules
from perdure.core.errors import ProviderError
from perdure.core.events import ReasoningDelta, TextDelta, ToolCallParsed
from perdure.core.messages import Entry, ImagePart, Message, TextPart, tool_result, user
from perdure.core.usage import CanonicalUsage
from perdure.providers.types import ModelRequest, Quirks
from support.wire_scripts import MODES, Answer, read_stream, streamed, whole

PIXEL = "data:image/png;base64,iVBORw0KGgo="
STEPS = (
    Answer(
        "Two looks at once.", "Both files matter.", (("call_1", "read", '{"path":"a"}'), ("call_2", "read", '{"n":2}'))
    ),
    Answer("", "", (("call_3", "look", "{}"),)),
    Answer("A cat, and 喵."),
)


def same(message: Message) -> dict[str, Any]:
    """What every mode must agree on: all but what a service signed or numbered for itself."""
    calls = tuple((c.id, c.name, json.loads(c.arguments)) for c in message.tool_calls)
    return {"role": message.role, "content": message.content, "reasoning": message.reasoning, "calls": calls}


def play(mode: str, *, is_streaming: bool) -> Iterator[tuple[Message, bytes]]:
    """Runs the conversation: each reply goes into the history that the next body is built from."""
    picture = Message(role="user", content=(TextPart("What is this?"), ImagePart(PIXEL)), kind="user")
    history = [Entry(0, picture)]
    for step, answer in enumerate(STEPS):
        request = ModelRequest(
            "m", list(history), system=("Be brief.",), quirks=Quirks(reasoning_field="reasoning_content")
        )
        body = MODES[mode].build(replace(request, is_streaming=is_streaming))
        reply = read_stream(mode, streamed(mode, answer))[0] if is_streaming else MODES[mode].parse(whole(mode, answer))
        assert reply.usage == CanonicalUsage(30, 7, 20)
        assert reply.finish == ("tool_calls" if answer.calls else "stop")
        history.append(Entry(len(history), reply.message))
        for call in reply.message.tool_calls:
            history.append(Entry(len(history), tool_result(call.id, f"result {step}")))
        yield reply.message, body
    assert rules.is_valid([e.message for e in history])


@pytest.mark.spec("J3", "J12")
@pytest.mark.parametrize("is_streaming", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_the_same_conversation_gives_the_same_history(mode: str, is_streaming: bool) -> None:
    reference = [same(m) for m, _ in play("chat_completions", is_streaming=False)]
    assert [same(m) for m, _ in play(mode, is_streaming=is_streaming)] == reference
    assert reference[0]["reasoning"] == "Both files matter."
    assert reference[1]["content"] is None


@pytest.mark.parametrize("mode", MODES)
def test_streamed_and_whole_answers_give_equal_messages_down_to_the_last_detail(mode: str) -> None:
    for answer in STEPS:
        reply, _ = read_stream(mode, streamed(mode, answer))
        assert reply.message == MODES[mode].parse(whole(mode, answer)).message


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_deltas_add_up_to_the_reply_however_they_are_cut(mode: str, size: int) -> None:
    reply, deltas = read_stream(mode, streamed(mode, STEPS[0], size=size))
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == reply.message.content
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == reply.message.reasoning
    assert tuple(d.call for d in deltas if isinstance(d, ToolCallParsed)) == reply.message.tool_calls


@pytest.mark.spec("J4")
@pytest.mark.parametrize("mode", MODES)
def test_a_stream_cut_anywhere_before_its_end_is_a_transport_failure_and_keeps_its_text(mode: str) -> None:
    events = streamed(mode, Answer("Hello there", "hm"))
    terminal = {"chat_completions": 3, "codex_responses": 1, "anthropic_messages": 2}[mode]
    for n in range(len(events) - terminal + 1):
        stream = MODES[mode].make_stream()
        heard = "".join(d.text for e in events[:n] for d in stream.feed(e) if isinstance(d, TextDelta))
        with pytest.raises(ProviderError) as caught:
            stream.finish()
        assert caught.value.verdict.kind == "transport"
        assert caught.value.partial_text == heard == stream.partial_text


@pytest.mark.spec("J3")
@pytest.mark.parametrize("mode", MODES)
def test_no_system_message_is_sent_where_there_is_no_system_prompt(mode: str) -> None:
    for system in ((), ("",)):
        body = json.loads(MODES[mode].build(ModelRequest("m", [Entry(0, user("hi"))], system=system)))
        assert "system" not in body
        assert "instructions" not in body
        assert len(body.get("messages") or body["input"]) == 1


@pytest.mark.spec("L4")
@pytest.mark.parametrize("mode", MODES)
def test_building_twice_gives_the_same_bytes_and_the_next_call_extends_the_last(mode: str) -> None:
    bodies = [body for _, body in play(mode, is_streaming=True)]
    again = [body for _, body in play(mode, is_streaming=True)]
    assert bodies == again
    for before, after in pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}").removesuffix(b"]}"))


_TEXT = st.text(max_size=40)
_ARGUMENTS = st.text(max_size=20) | st.dictionaries(_TEXT, _TEXT | st.integers() | st.none(), max_size=3).map(
    json.dumps
)


@settings(max_examples=60, deadline=None)
@given(mode=st.sampled_from(sorted(MODES)), text=_TEXT, call_id=_TEXT, name=_TEXT, arguments=_ARGUMENTS, result=_TEXT)
def test_any_history_becomes_valid_json_with_matching_ids(
    mode: str, text: str, call_id: str, name: str, arguments: str, result: str
) -> None:
    raw = [
        {"role": "user", "content": text},
        {
            "role": "assistant",
            "content": text,
            "tool_calls": [{"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]
    messages = rules.repair([Message.from_dict(m) for m in raw])
    body = json.loads(MODES[mode].build(ModelRequest("m", [Entry(i, m) for i, m in enumerate(messages)])))
    asked, answered = ids_in(mode, body)
    assert asked == answered
    assert len(asked) == 1


def ids_in(mode: str, body: dict[str, Any]) -> tuple[list[str], list[str]]:
    if mode == "chat_completions":
        calls = [c for m in body["messages"] for c in m.get("tool_calls", [])]
        assert all(isinstance(json.loads(c["function"]["arguments"]), dict) for c in calls)
        return [c["id"] for c in calls], [m["tool_call_id"] for m in body["messages"] if m["role"] == "tool"]
    if mode == "codex_responses":
        calls = [i for i in body["input"] if i["type"] == "function_call"]
        assert all(isinstance(json.loads(c["arguments"]), dict) for c in calls)
        outputs = [i for i in body["input"] if i["type"] == "function_call_output"]
        return [c["call_id"] for c in calls], [o["call_id"] for o in outputs]
    blocks = [b for m in body["messages"] for b in m["content"]]
    assert all(b["text"].strip() for b in blocks if b["type"] == "text")
    calls = [b for b in blocks if b["type"] == "tool_use"]
    assert all(isinstance(b["input"], dict) for b in calls)
    return [b["id"] for b in calls], [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]


@pytest.mark.parametrize("mode", MODES)
def test_a_long_history_that_was_sent_before_costs_next_to_nothing_to_send_again(mode: str) -> None:
    turn = [user("q " * 200), Message(role="assistant", content="a " * 200, kind="assistant")]
    request = ModelRequest("m", [Entry(i, turn[i % 2]) for i in range(10_000)], system=("S",))
    spent = []
    for _ in range(7):
        started = time.process_time()
        MODES[mode].build(request)
        spent.append(time.process_time() - started)
    # The figure itself is held in the benchmarks; here only that nothing is encoded twice.
    assert min(spent[1:]) < spent[0] / 3
