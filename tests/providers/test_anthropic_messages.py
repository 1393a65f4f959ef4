from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.core.errors import ProviderError
from perdure.core.messages import Entry, ImagePart, Message, OtherPart, TextPart, ToolCall, assistant, tool_result, user
from perdure.providers import anthropic_messages as claude
from perdure.providers.types import Endpoint, ModelRequest
from support.wire_scripts import event

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "EqQB"}


def built(*messages: Message, model: str = "claude-sonnet-4-5", **fields: Any) -> dict[str, Any]:
    return json.loads(claude.build(ModelRequest(model, [Entry(i, m) for i, m in enumerate(messages)], **fields)))


def calling(*calls: ToolCall, **fields: Any) -> Message:
    return Message(role="assistant", content=None, tool_calls=calls, kind="assistant", **fields)


def test_a_request_carries_what_was_asked_for_and_always_a_max_tokens() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"properties": {}}}}
    body = built(user("hi"), system=("S", "note"), tools=(tool,), temperature=0.5)
    assert body["system"] == [{"type": "text", "text": "S"}, {"type": "text", "text": "note"}]
    assert body["tools"] == [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}]
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (32_000, 0.5, True)
    assert built(user("hi"), model="claude-3-opus-20240229")["max_tokens"] == 4_096
    assert built(user("hi"), model="kimi-k2")["max_tokens"] == 8_192
    assert built(user("hi"), max_tokens=7)["max_tokens"] == 7


@pytest.mark.spec("K2")
def test_results_of_parallel_calls_are_one_message_in_call_order() -> None:
    body = built(
        user("?"), calling(ToolCall("a", "f"), ToolCall("b", "g")), tool_result("a", "1"), tool_result("b", "2")
    )
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
    assert [b["tool_use_id"] for b in body["messages"][2]["content"]] == ["a", "b"]


def test_equal_roles_in_a_row_are_joined_too() -> None:
    body = built(user("one"), user("two"), assistant("ok"))
    assert [[b["text"] for b in m["content"]] for m in body["messages"]] == [["one", "two"], ["ok"]]


@pytest.mark.spec("J12")
def test_signed_thinking_goes_back_untouched_and_in_its_place() -> None:
    sealed = {"type": "redacted_thinking", "data": "AAA"}
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}
    content = [THOUGHT, sealed, {"type": "text", "text": "so"}, {**THOUGHT, "signature": "S2"}, call]
    reply = claude.parse({"id": "r", "content": content, "stop_reason": "tool_use"})
    assert reply.message.reasoning == "hm\n\nhm"
    body = built(user("?"), reply.message, tool_result("t1", "out"))
    assert body["messages"][1]["content"] == content
    stored = Message.from_dict(json.loads(json.dumps(reply.message.to_dict())))
    assert built(user("?"), stored, tool_result("t1", "out"))["messages"][1]["content"] == content


@pytest.mark.spec("J12")
def test_thinking_nobody_signed_and_reasoning_of_other_wires_stay_away() -> None:
    foreign = ({"type": "thinking", "thinking": "x"}, {"type": "reasoning", "encrypted_content": "g"})
    said = Message(role="assistant", content="ok", reasoning="x", reasoning_details=foreign, kind="assistant")
    assert built(user("?"), said)["messages"][1]["content"] == [{"type": "text", "text": "ok"}]


def test_an_order_that_no_longer_fits_loses_nothing() -> None:
    order = {"output_order": ["c0", "t0", "r0", "c9", "zz", 5]}
    said = Message(role="assistant", content="ok", reasoning_details=(THOUGHT,), kind="assistant", extra=order)
    assert built(user("?"), said)["messages"][1]["content"] == [{"type": "text", "text": "ok"}, THOUGHT]


def test_thinking_is_asked_for_as_the_model_takes_it() -> None:
    body = built(user("?"), reasoning_effort="high", max_tokens=4_000, temperature=0.2)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 3_000}
    assert "temperature" not in body
    body = built(user("?"), reasoning_effort="minimal", model="claude-opus-4-6")
    assert (body["thinking"]["type"], body["output_config"]) == ("adaptive", {"effort": "low"})
    for skipped in ({"reasoning_effort": "none"}, {"reasoning_effort": "high", "max_tokens": 1_000}):
        assert "thinking" not in built(user("?"), **skipped)
    assert "thinking" not in built(user("?"), reasoning_effort="high", model="claude-3-5-sonnet-latest")


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("claude-3-7-sonnet-latest", "enabled"),
        ("anthropic/claude-3.7-sonnet", "enabled"),
        ("claude-sonnet-4-20250514", "enabled"),
        ("claude-opus-4-1-20250805", "enabled"),
        ("claude-sonnet-4-5@20250929", "enabled"),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "enabled"),
        ("anthropic/claude-sonnet-4.5", "enabled"),
        ("kimi-k2-thinking", "enabled"),
        ("claude-opus-4-6", "adaptive"),
        ("anthropic/claude-opus-4.7", "adaptive"),
        ("claude-sonnet-5-5", "adaptive"),
        ("claude-3-5-haiku-latest", None),
        ("claude-3-opus-20240229", None),
    ],
)
def test_how_each_family_is_asked_to_think(model: str, kind: str | None) -> None:
    asked = built(user("?"), model=model, reasoning_effort="low", max_tokens=9_000).get("thinking")
    assert (asked or {}).get("type") == kind


def test_thinking_does_not_start_in_the_middle_of_a_tool_turn() -> None:
    turn = (user("?"), calling(ToolCall("a", "f")), tool_result("a", "1"))
    assert "thinking" not in built(*turn, reasoning_effort="high")
    thought = (user("?"), calling(ToolCall("a", "f"), reasoning_details=(THOUGHT,)), tool_result("a", "1"))
    assert "thinking" in built(*thought, reasoning_effort="high")
    assert "thinking" in built(*turn, assistant("ok"), user("more"), reasoning_effort="high")


def test_empty_texts_are_never_sent() -> None:
    blank = Message(role="user", content=(TextPart(""), TextPart(" \n")), kind="user")
    body = built(blank, assistant(""), user(""), assistant(None))
    texts = [b["text"] for m in body["messages"] for b in m["content"]]
    assert texts == ["(no content)"] * 4
    body = built(user("?"), calling(ToolCall("a", "f")), tool_result("a", ""))
    assert body["messages"][1]["content"] == [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]
    assert body["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "a"}]


def test_images_and_documents() -> None:
    pdf = OtherPart({"type": "file", "file": {"file_data": "data:application/pdf;base64,AA=="}})
    audio = OtherPart({"type": "input_audio", "input_audio": {"data": "x"}})
    parts = (ImagePart("data:image/jpg;base64,AAAA"), ImagePart("https://x/y.png"), pdf, audio)
    content = built(Message(role="user", content=parts, kind="user"))["messages"][0]["content"]
    assert content[0]["source"] == {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}
    assert content[1]["source"] == {"type": "url", "url": "https://x/y.png"}
    assert (content[2]["type"], content[2]["source"]["media_type"]) == ("document", "application/pdf")
    assert "input_audio omitted" in content[3]["text"]
    shot = Message(role="tool", tool_call_id="a", content=(TextPart("shot"), parts[0]), kind="tool")
    result = built(user("?"), calling(ToolCall("a", "f")), shot)["messages"][2]["content"][0]
    assert [b["type"] for b in result["content"]] == ["text", "image"]


@pytest.mark.parametrize("arguments", ["not json", "[1]", "3", '{"a": NaN}', '{"a":' * 3000])
def test_arguments_that_are_no_object_are_wrapped_not_lost(arguments: str) -> None:
    body = built(user("?"), calling(ToolCall("a", "f", arguments)), tool_result("a", "r"))
    assert body["messages"][1]["content"][0]["input"] == {"unparsed_arguments": arguments}


def test_ids_with_characters_the_service_rejects_are_mapped_and_match() -> None:
    for call_id in ("call:1.2", "functions.read:0", "x" * 80, "ю", "call_1|fc_9"):
        body = built(user("?"), calling(ToolCall(call_id, "f")), tool_result(call_id, "r"))
        wire = body["messages"][1]["content"][0]["id"]
        assert wire == body["messages"][2]["content"][0]["tool_use_id"]
        assert wire.replace("_", "").replace("-", "").isascii()
        assert len(wire) <= 64
        assert wire == built(user("?"), calling(ToolCall(call_id, "f")))["messages"][1]["content"][0]["id"]


def test_a_failed_tools_result_says_so() -> None:
    failed = Message(role="tool", tool_call_id="a", content="no", kind="tool", extra={"is_error": True})
    assert built(user("?"), calling(ToolCall("a", "f")), failed)["messages"][2]["content"][0]["is_error"] is True


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("refusal", "refusal"),
        ("model_context_window_exceeded", "context_overflow"),
        ("pause_turn", "unknown"),
    ],
)
def test_stop_reasons(reason: str, finish: str) -> None:
    reply = claude.parse({"id": "r", "content": [{"type": "text", "text": "x"}], "stop_reason": reason})
    assert reply.finish == finish


def test_usage_is_the_larger_of_start_and_end_for_servers_fill_in_only_one() -> None:
    stream = claude.make_stream()
    stream.feed(event({"type": "message_start", "message": {"usage": {"input_tokens": 0, "output_tokens": 1}}}))
    usage = {"input_tokens": 40, "output_tokens": 9, "cache_read_input_tokens": 3}
    stream.feed(event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}))
    usage_read = stream.finish().usage
    assert (usage_read.prompt_tokens, usage_read.output_tokens) == (43, 9)


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        ({"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}, "prompt_too_long"),
        ({"type": "rate_limit_error", "message": "Number of request tokens has exceeded your limit"}, "rate_limit"),
    ],
)
def test_a_failure_in_mid_stream_is_a_verdict_with_what_was_said_so_far(error: dict[str, Any], kind: str) -> None:
    stream = claude.make_stream()
    stream.feed(event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}))
    stream.feed(event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half a "}}))
    with pytest.raises(ProviderError) as caught:
        stream.feed(event({"type": "error", "error": error}, "error"))
    assert (caught.value.verdict.kind, caught.value.partial_text) == (kind, "half a ")


@pytest.mark.parametrize("body", [{}, {"content": None}, {"type": "error", "error": {"type": "timeout_error"}}])
def test_a_body_without_an_answer_is_a_failure(body: dict[str, Any]) -> None:
    with pytest.raises(ProviderError) as caught:
        claude.parse(body)
    assert caught.value.verdict.kind == "transport"


@pytest.mark.parametrize(
    ("key", "base_url", "header"),
    [
        ("sk-ant-api", "https://api.anthropic.com", ("x-api-key", "sk-ant-api")),
        ("sk-ant-oat01", "https://api.anthropic.com", ("authorization", "Bearer sk-ant-oat01")),
        ("k", "https://openrouter.ai/api", ("authorization", "Bearer k")),
    ],
)
def test_the_key_goes_into_the_header_its_service_reads(key: str, base_url: str, header: tuple[str, str]) -> None:
    sent = claude.headers(Endpoint("anthropic", base_url, "anthropic_messages", "m", key))
    assert sent[header[0]] == header[1]
    assert sent["anthropic-version"] == "2023-06-01"
