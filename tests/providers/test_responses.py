from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from perdure.core.errors import ProviderError
from perdure.core.messages import Entry, ImagePart, Message, OtherPart, TextPart, ToolCall, tool_result, user
from perdure.providers import responses
from perdure.providers.registry import quirks_of
from perdure.providers.types import Endpoint, ModelRequest
from support.packages import package
from support.wire_scripts import event

openai = package("openai")

SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def built(*messages: Message, **fields: Any) -> dict[str, Any]:
    return json.loads(responses.build(ModelRequest("gpt-5.5", [Entry(i, m) for i, m in enumerate(messages)], **fields)))


def kinds(body: dict[str, Any]) -> list[str]:
    return [i["type"] for i in body["input"]]


def test_a_request_stores_nothing_and_asks_for_sealed_reasoning() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    body = built(user("hi"), system=("S", "note"), tools=(tool,), max_tokens=9, reasoning_effort="high")
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert (body["instructions"], body["max_output_tokens"]) == ("S\n\nnote", 9)
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    wire = {"type": "function", "strict": False, "name": "f", "description": "d", "parameters": {"type": "object"}}
    assert body["tools"] == [wire]


def test_models_and_backends_that_refuse_a_key_do_not_get_it() -> None:
    old = quirks_of("openai-responses", model="gpt-4.1", api_mode="codex_responses")
    assert "include" not in built(user("hi"), quirks=old)
    codex = quirks_of("openai-codex", model="gpt-5.5", api_mode="codex_responses")
    body = built(user("hi"), quirks=codex, max_tokens=9, temperature=0.1)
    assert "max_output_tokens" not in body
    assert "temperature" not in body


@pytest.mark.spec("P3")
def test_the_chatgpt_backend_always_gets_a_stream_and_instructions() -> None:
    codex = quirks_of("openai-codex", model="gpt-5.5", api_mode="codex_responses")
    body = built(user("summarize this"), quirks=codex, is_streaming=False)
    assert (body["stream"], bool(body["instructions"])) == (True, True)
    assert built(user("hi"), quirks=codex, system=("S",))["instructions"] == "S"
    other = built(user("hi"), quirks=quirks_of("openai-responses", model="gpt-5.5"), is_streaming=False)
    assert not {"stream", "instructions"} & set(other)


@pytest.mark.spec("J12", "K2")
def test_sealed_reasoning_goes_back_before_what_it_led_to_and_results_pair_by_call_id() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
    reply = responses.parse({"id": "r", "status": "completed", "output": [SEALED, call]})
    assert reply.finish == "tool_calls"
    assert reply.message.tool_calls == (ToolCall("call_1", "f", "{}", {"item_id": "fc_1"}),)
    body = built(user("?"), reply.message, tool_result("fc_1", "out"))
    assert kinds(body) == ["message", "reasoning", "function_call", "function_call_output"]
    assert body["input"][1] == SEALED
    assert body["input"][2]["call_id"] == body["input"][3]["call_id"] == "call_1"
    assert "id" not in body["input"][2]


@pytest.mark.spec("J12")
def test_items_go_back_in_the_order_they_came_in() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "first"}]}
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
    later = {**SEALED, "id": "rs_2"}
    reply = responses.parse({"id": "r", "status": "completed", "output": [SEALED, said, later, call]})
    body = built(user("?"), reply.message, tool_result("call_1", "out"))
    assert kinds(body) == ["message", "reasoning", "message", "reasoning", "function_call", "function_call_output"]
    stored = Message.from_dict(json.loads(json.dumps(reply.message.to_dict())))
    assert kinds(built(user("?"), stored, tool_result("call_1", "out"))) == kinds(body)


@pytest.mark.spec("J12")
def test_reasoning_with_nothing_behind_it_or_no_seal_is_left_out() -> None:
    lone = Message(role="assistant", content="", kind="assistant", reasoning_details=(SEALED,))
    assert kinds(built(user("?"), lone)) == ["message", "message"]
    bare = {k: v for k, v in SEALED.items() if k != "encrypted_content"}
    named = Message(role="assistant", content="ok", kind="assistant", reasoning_details=(bare,))
    assert kinds(built(user("?"), named)) == ["message", "message"]


def test_input_items_are_what_the_official_clients_types_describe() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
    said = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "so"}]}
    reply = responses.parse({"id": "r", "status": "completed", "output": [SEALED, said, call]})
    look = Message(role="user", content=(TextPart("?"), ImagePart("https://x/y.png")), kind="user")
    # Servers written in Python check requests with these very types.
    input_items = TypeAdapter(openai.types.responses.ResponseInputParam)
    input_items.validate_python(built(look, reply.message, tool_result("call_1", "out"))["input"])


def test_a_messages_phase_is_kept_and_sent_back() -> None:
    item = {"type": "message", "phase": "final_answer", "content": [{"type": "output_text", "text": "done"}]}
    reply = responses.parse({"id": "r", "status": "completed", "output": [item]})
    assert built(user("?"), reply.message)["input"][1]["phase"] == "final_answer"


def test_images_and_files_in_messages_and_in_results() -> None:
    file = OtherPart({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}})
    look = Message(role="user", content=(TextPart("?"), ImagePart("https://x/y.png"), file), kind="user")
    calls = Message(role="assistant", content=None, tool_calls=(ToolCall("a", "f"),), kind="assistant")
    shot = Message(
        role="tool", tool_call_id="a", kind="tool", content=(TextPart("shot"), ImagePart("data:image/png;base64,AA"))
    )
    body = built(look, calls, shot)
    assert body["input"][0]["content"][1] == {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"}
    assert body["input"][0]["content"][2]["type"] == "input_file"
    assert [p["type"] for p in body["input"][2]["output"]] == ["input_text", "input_image"]


@pytest.mark.parametrize(
    ("head", "finish"),
    [
        ({"status": "completed"}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "model_context_window_exceeded"}},
            "context_overflow",
        ),
    ],
)
def test_stop_reasons(head: dict[str, Any], finish: str) -> None:
    said = {"type": "message", "content": [{"type": "output_text", "text": "x"}]}
    assert responses.parse({"id": "r", **head, "output": [said]}).finish == finish


def test_a_refusal_is_told_and_read() -> None:
    said = {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    reply = responses.parse({"id": "r", "status": "completed", "output": [said]})
    assert (reply.finish, reply.message.content) == ("refusal", "I cannot.")


def test_items_stand_in_where_the_last_event_leaves_its_output_empty() -> None:
    said = {"type": "message", "content": [{"type": "output_text", "text": "hello"}]}
    stream = responses.make_stream()
    stream.feed(event({"type": "response.output_item.done", "output_index": 0, "item": said}))
    stream.feed(event({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}))
    assert stream.finish().message.content == "hello"


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (
            {
                "type": "response.failed",
                "response": {
                    "status": "failed",
                    "error": {
                        "code": "context_length_exceeded",
                        "message": "Your input exceeds the context window of this model.",
                    },
                },
            },
            "prompt_too_long",
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "x"}}},
            "rate_limit",
        ),
        ({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}}, "overloaded"),
        ({"type": "response.failed", "response": {}}, "transport"),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}, "rate_limit"),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}, "bad_request"),
    ],
)
def test_a_failure_in_mid_stream_is_a_verdict_with_what_was_said_so_far(data: dict[str, Any], kind: str) -> None:
    stream = responses.make_stream()
    stream.feed(event({"type": "response.output_text.delta", "delta": "half a "}))
    with pytest.raises(ProviderError) as caught:
        stream.feed(event(data))
    assert (caught.value.verdict.kind, caught.value.partial_text) == (kind, "half a ")


@pytest.mark.parametrize("body", [{}, {"output": None}, {"status": "failed", "error": None}])
def test_a_body_without_an_answer_is_a_failure(body: dict[str, Any]) -> None:
    with pytest.raises(ProviderError) as caught:
        responses.parse(body)
    assert caught.value.verdict.kind == "transport"


def test_the_key_is_a_bearer() -> None:
    endpoint = Endpoint("openai-codex", "https://h", "codex_responses", "m", "k", {"chatgpt-account-id": "1"})
    assert responses.headers(endpoint)["authorization"] == "Bearer k"
    assert responses.headers(endpoint)["chatgpt-account-id"] == "1"
