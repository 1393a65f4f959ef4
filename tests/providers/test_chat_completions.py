from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.core.errors import ProviderError
from perdure.core.events import ReasoningDelta, TextDelta
from perdure.core.messages import Entry, ImagePart, Message, TextPart, ToolCall, assistant, tool_result, user
from perdure.providers import chat_completions as chat
from perdure.providers.registry import quirks_of
from perdure.providers.types import Endpoint, ModelRequest, Quirks
from support.wire_scripts import event


def built(*messages: Message, **fields: Any) -> dict[str, Any]:
    entries = [Entry(i, m) for i, m in enumerate(messages)]
    return json.loads(chat.build(ModelRequest("m", entries, **fields)))


def calling(*calls: ToolCall, **fields: Any) -> Message:
    return Message(role="assistant", content=None, tool_calls=calls, kind="assistant", **fields)


def chunk(**delta: Any) -> Any:
    finish = delta.pop("finish", None)
    return event({"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def heard(*events: Any) -> Any:
    stream = chat.make_stream()
    deltas = [d for e in events for d in stream.feed(e)]
    return stream.finish(), deltas


def test_a_request_carries_what_was_asked_for_and_asks_for_usage() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    body = built(user("hi"), system=("S", "note"), tools=(tool,), max_tokens=9, temperature=0.5, extra={"seed": 1})
    assert body["messages"] == [{"role": "system", "content": "S\n\nnote"}, {"role": "user", "content": "hi"}]
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert (body["tools"], body["max_tokens"], body["temperature"], body["seed"]) == ([tool], 9, 0.5, 1)
    assert "stream_options" not in built(user("hi"), is_streaming=False)


def test_newer_openai_models_get_the_newer_names() -> None:
    quirks = quirks_of("openai", model="gpt-5.5")
    body = built(user("hi"), max_tokens=9, temperature=0.5, reasoning_effort="low", quirks=quirks)
    assert (body["max_completion_tokens"], body["reasoning_effort"]) == (9, "low")
    assert "max_tokens" not in body
    assert "temperature" not in body


@pytest.mark.spec("J12")
def test_reasoning_goes_back_under_the_name_its_service_reads() -> None:
    said = Message(role="assistant", content="4", reasoning="2+2", kind="assistant")
    for field in ("reasoning_content", "reasoning"):
        wire = built(user("?"), said, quirks=Quirks(reasoning_field=field))["messages"][1]
        assert wire == {"role": "assistant", "content": "4", field: "2+2"}
    tagged = built(user("?"), said, quirks=Quirks(reasoning_field="think_tags"))["messages"][1]
    assert tagged["content"] == "<think>\n2+2\n</think>\n\n4"
    assert built(user("?"), said)["messages"][1] == {"role": "assistant", "content": "4"}


@pytest.mark.spec("J12")
def test_a_routers_reasoning_blocks_are_joined_from_the_stream_and_go_back_as_they_were() -> None:
    def piece(**detail: Any) -> Any:
        return chunk(reasoning_details=[{"index": 0, "format": "anthropic-claude-v1", **detail}])

    reply, _ = heard(
        piece(type="reasoning.text", text="one "),
        piece(type="reasoning.text", text="two"),
        piece(type="reasoning.text", signature="SIG"),
        piece(type="reasoning.encrypted", data="AAA"),
        chunk(content="ok", finish="stop"),
    )
    assert reply.message.reasoning == "one two"
    text, sealed = reply.message.reasoning_details
    assert (text["text"], text["signature"], sealed["data"]) == ("one two", "SIG", "AAA")
    wire = built(user("?"), reply.message, quirks=Quirks(reasoning_field="reasoning"))["messages"][1]
    assert wire["reasoning_details"] == [text, sealed]


def test_reasoning_signed_by_another_wire_stays_away() -> None:
    signed = Message(
        role="assistant",
        content="x",
        kind="assistant",
        reasoning_details=({"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "reasoning", "id": "rs"}),
    )
    assert (
        "reasoning_details" not in built(user("?"), signed, quirks=Quirks(reasoning_field="reasoning"))["messages"][1]
    )


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_thinking_in_tags_is_told_from_the_answer_however_it_is_cut(size: int) -> None:
    text = "<think>\nso </thin king\n</think>\n\nanswer <think>not this</think>"
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    reply, deltas = heard(*(chunk(content=p) for p in pieces), chunk(finish="stop"))
    assert reply.message.reasoning == "so </thin king"
    assert reply.message.content == "answer <think>not this</think>"
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == reply.message.content
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)).strip() == reply.message.reasoning


def test_a_tag_never_closed_is_text_unless_the_reply_was_cut_off_in_it() -> None:
    reply, _ = heard(chunk(content="<think>is a tag"), chunk(finish="stop"))
    assert (reply.message.content, reply.message.reasoning) == ("<think>is a tag", None)
    reply, _ = heard(chunk(content="<think>is a lo"), chunk(finish="length"))
    assert (reply.message.content, reply.message.reasoning) == ("", "is a lo")
    reply, _ = heard(chunk(content="<thi"), chunk(finish="stop"))
    assert reply.message.content == "<thi"


def test_mistrals_content_parts_are_read() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "ok"}]
    reply, _ = heard(chunk(content=parts), chunk(finish="stop"))
    assert (reply.message.reasoning, reply.message.content) == ("hm", "ok")


@pytest.mark.parametrize(
    "pieces",
    [
        # one index for all, as Gemini's
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}},
         {"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}],
        # no index at all
        [{"id": "a", "function": {"name": "f", "arguments": "{}"}},
         {"id": "b", "function": {"name": "g", "arguments": "{}"}}],
        # id and name repeated in every piece
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}},
         {"index": 0, "id": "a", "function": {"name": "f", "arguments": "}"}},
         {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}],
        # arguments as an object
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": {}}},
         {"index": 1, "id": "b", "function": {"name": "g", "arguments": {}}}],
    ],
)  # fmt: skip
def test_calls_are_told_apart_however_servers_number_them(pieces: list[dict[str, Any]]) -> None:
    reply, _ = heard(*(chunk(tool_calls=[p]) for p in pieces), chunk(finish="tool_calls"))
    assert [(c.id, c.name, c.arguments) for c in reply.message.tool_calls] == [("a", "f", "{}"), ("b", "g", "{}")]


def test_a_call_without_an_id_gets_a_stable_one() -> None:
    events = (chunk(tool_calls=[{"index": 0, "function": {"name": "f"}}]), chunk(finish="stop"))
    first, second = heard(*events)[0], heard(*events)[0]
    assert first.message.tool_calls[0].id.startswith("call_")
    assert first.message == second.message
    assert first.finish == "tool_calls"


def test_geminis_thought_signature_goes_back_with_its_call() -> None:
    raw = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"google": {"s": "X"}}}
    reply, _ = heard(chunk(tool_calls=[raw]), chunk(finish="tool_calls"))
    wire = built(user("?"), reply.message, tool_result("a", "r"))["messages"][1]["tool_calls"][0]
    assert wire["extra_content"] == {"google": {"s": "X"}}


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("model_length", "context_overflow"),
        ("model_context_window_exceeded", "context_overflow"),
        ("something_new", "unknown"),
    ],
)
def test_stop_reasons(reason: str, finish: str) -> None:
    assert heard(chunk(content="x"), chunk(finish=reason))[0].finish == finish


def test_a_refusal_is_told_and_read() -> None:
    reply, deltas = heard(chunk(refusal="I can"), chunk(refusal="not."), chunk(finish="stop"))
    assert (reply.finish, reply.message.content) == ("refusal", "I cannot.")
    assert len(deltas) == 2


def test_calls_behind_the_reason_stop_are_calls_and_a_cut_off_stays_one() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x": '}}
    assert heard(chunk(tool_calls=[call]), chunk(finish="stop"))[0].finish == "tool_calls"
    assert heard(chunk(tool_calls=[call]), chunk(finish="length"))[0].finish == "length"


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"error": {"message": "Overloaded", "type": "overloaded_error"}}, "overloaded"),
        ({"error": {"code": 429, "message": "slow"}, "choices": [{"finish_reason": "error"}]}, "rate_limit"),
        ({"error": {"message": "request (9 tokens) exceeds the available context size (8 tokens)"}}, "prompt_too_long"),
        ({"object": "error", "message": "boom", "code": 500}, "overloaded"),
        ({"choices": [{"finish_reason": "network_error"}]}, "transport"),
        ({"choices": [{"finish_reason": "insufficient_system_resource"}]}, "overloaded"),
        ("{broken", "transport"),
    ],
)
def test_a_failure_in_mid_stream_is_a_verdict_with_what_was_said_so_far(data: Any, kind: str) -> None:
    stream = chat.make_stream()
    stream.feed(chunk(content="half a "))
    with pytest.raises(ProviderError) as caught:
        stream.feed(event(data))
    assert (caught.value.verdict.kind, caught.value.partial_text) == (kind, "half a ")


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": None}, {"error": {"message": "x", "code": 502}}])
def test_a_body_without_an_answer_is_a_failure(body: dict[str, Any]) -> None:
    with pytest.raises(ProviderError) as caught:
        chat.parse(body)
    assert caught.value.verdict.kind == "transport"


def test_images_of_tool_results_stand_where_the_service_takes_them() -> None:
    shot = Message(
        role="tool", tool_call_id="a", kind="tool", content=(TextPart("shot"), ImagePart("https://x/y.png", "low"))
    )
    history = (
        user("?"),
        calling(ToolCall("a", "f"), ToolCall("b", "f")),
        shot,
        tool_result("b", "two"),
        assistant("ok"),
    )
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}
    follow = built(*history)["messages"]
    assert [m["role"] for m in follow] == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
    assert follow[2]["content"] == "shot"
    assert follow[5]["content"][1] == image
    inline = built(*history, quirks=Quirks(tool_images="inline"))["messages"]
    assert inline[2]["content"] == [{"type": "text", "text": "shot"}, image]


def test_ids_names_and_arguments_a_service_would_reject_are_mapped_the_same_in_call_and_result() -> None:
    call = ToolCall("x" * 60, "functions.read file", "not json")
    body = built(user("?"), calling(call), tool_result("x" * 60, "r"))
    wire = body["messages"][1]["tool_calls"][0]
    assert wire["id"] == body["messages"][2]["tool_call_id"]
    assert len(wire["id"]) <= 40
    assert wire["function"] == {"name": "functions_read_file", "arguments": '{"unparsed_arguments":"not json"}'}
    mistral = built(
        user("?"), calling(ToolCall("call_1", "f")), tool_result("call_1", "r"), quirks=Quirks(call_ids="mistral")
    )
    assert len(mistral["messages"][1]["tool_calls"][0]["id"]) == 9
    assert mistral["messages"][1]["tool_calls"][0]["id"] == mistral["messages"][2]["tool_call_id"]


@pytest.mark.spec("K2")
def test_a_result_that_names_its_calls_second_id_is_sent_under_the_first() -> None:
    call = ToolCall("call_1", "f", "{}", {"item_id": "fc_1"})
    for named in ("fc_1", "call_1|fc_1", "call_1"):
        body = built(user("?"), calling(call), tool_result(named, "r"))
        assert body["messages"][2]["tool_call_id"] == "call_1"
    assert "item_id" not in body["messages"][1]["tool_calls"][0]


@pytest.mark.parametrize(
    ("provider", "header", "value"),
    [("openai", "authorization", "Bearer k"), ("azure", "api-key", "k"), ("custom", "authorization", "Bearer k")],
)
def test_the_key_goes_into_the_header_its_service_reads(provider: str, header: str, value: str) -> None:
    endpoint = Endpoint(provider, "https://h/v1", "chat_completions", "m", "k", {"X-Mine": "1"})
    assert chat.headers(endpoint)[header] == value
    assert chat.headers(endpoint)["x-mine"] == "1"
    assert "authorization" not in chat.headers(Endpoint("local", "http://h/v1", "chat_completions", "m"))


@pytest.mark.spec("K1")
@pytest.mark.parametrize("content", ["", None, "  \n", (TextPart(""), TextPart(" "))])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_message_that_says_nothing_is_sent_with_a_placeholder(role: str, content: Any) -> None:
    empty = Message(role=role, content=content, kind=role)
    for ttl in (None, "5m"):
        body = json.loads(chat.build(ModelRequest("m", [Entry(0, empty)], cache_ttl=ttl)))
        (sent,) = body["messages"]
        parts = sent["content"] if isinstance(sent["content"], list) else [{"text": sent["content"]}]
        assert [p["text"] for p in parts] == ["(no content)"]
