"""What a simulated service refuses, in the words the real one uses; every refusal of a rule is on record."""

from __future__ import annotations

import copy
from typing import Any

import httpx
import pytest

from perdure.testing.simulator import Call, Rules, Say, Simulator, strict
from support.simulator import http

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
HEADERS = {"authorization": "Bearer k", "anthropic-version": "2023-06-01"}


def post(sim: Simulator, path: str, body: Any, **fields: Any) -> httpx.Response:
    return http().post(f"{sim.root_url}{path}", json=body, headers=HEADERS, **fields)


def message_of(response: httpx.Response) -> str:
    return str(response.json()["error"]["message"])


def call(call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": "{}"}}


def chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **fields}


def said(role: str, content: Any = "x", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


ASKING = said("assistant", None, tool_calls=[call("call_1"), call("call_2")])
CHAT_CASES = [
    (chat(), "shape", "Invalid 'messages': empty array."),
    ({"messages": [said("user")]}, "shape", "you must provide a model parameter"),
    (chat(said("robot")), "shape", "Invalid value: 'robot'. Supported values are: 'system', 'assistant', 'user'"),
    (chat(said("user", None)), "shape", "Invalid value for 'content': expected a string, got null."),
    (chat(said("user", surprise=1)), "shape", "Unknown parameter: 'messages[0].surprise'."),
    (chat(said("user"), surprise=1), "shape", "Unrecognized request argument supplied: surprise"),
    (chat(said("user"), stream_options={}), "shape", "The 'stream_options' parameter is only allowed when"),
    (chat(said("user"), said("assistant", tool_calls=[])), "shape", "Invalid 'messages[1].tool_calls'"),
    (
        chat(said("user"), ASKING, said("tool", tool_call_id="call_1"), said("user")),
        "pairs",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        "The following tool_call_ids did not have response messages: call_2",
    ),
    (
        chat(said("user"), said("tool", tool_call_id="call_9")),
        "pairs",
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
    ),
    (
        chat(said("user"), ASKING, *[said("tool", tool_call_id=f"call_{n}") for n in (1, 2, 2)]),
        "pairs",
        "Invalid parameter: messages with role 'tool'",
    ),
    (chat(said("user"), said("user")), "alternation", "Conversation roles must alternate"),
    (chat(said("user"), said("assistant"), said("assistant")), "alternation", "Conversation roles must alternate"),
    (
        chat(
            said("user"),
            {**ASKING, "tool_calls": [call()]},
            said("tool", [{"type": "image_url", "image_url": {"url": "u"}}], tool_call_id="call_1"),
        ),
        "shape",
        "Image URLs are only allowed for messages with role 'user'",
    ),
    (chat(said("user"), said("assistant", ""), said("user")), "content", "position 1 with role 'assistant' must not"),
    (chat(said("user"), said("assistant", " \n"), said("user")), "content", "must not be empty"),
    (chat(said("user", "")), "content", "the message at position 0 with role 'user' must not be empty"),
    (chat(said("user", [{"type": "text", "text": ""}])), "content", "must not be empty"),
    (chat(said("user"), said("assistant")), "prefill", "Expected last role User or Tool"),
    (
        chat(said("user"), {**ASKING, "tool_calls": [call("c" * 41)]}, said("tool", tool_call_id="c" * 41)),
        "shape",
        "string too long. Expected a string with maximum length 40",
    ),
    (
        chat(said("user"), {**ASKING, "tool_calls": [call(), call()]}, *[said("tool", tool_call_id="call_1")] * 2),
        "pairs",
        "Duplicate value for 'tool_call_id' of 'call_1' in message[1]",
    ),
    (
        chat(
            said("user"),
            {**ASKING, "tool_calls": [{**call(), "function": {"name": "read", "arguments": "{oops"}}]},
            said("tool", tool_call_id="call_1"),
        ),
        "arguments",
        "not a valid JSON object",
    ),
    (
        chat(said("user", [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}])),
        "marks",
        "cache_control",
    ),
]


@pytest.mark.parametrize(("body", "rule", "text"), CHAT_CASES)
def test_chat_completions_refuses(body: dict[str, Any], rule: str, text: str) -> None:
    with Simulator(strict()) as sim:
        response = post(sim, CHAT, body)
        assert response.status_code == 400
        assert text in message_of(response)
        assert [v.rule for v in sim.violations] == [rule]
        assert sim.violations[0].message == message_of(response)


def responses(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items), **fields}


FUNCTION_CALL = {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
RESPONSES_CASES = [
    (responses(), "shape", "Missing required parameter: 'input'."),
    (responses(said("user"), surprise=1), "shape", "Unknown parameter: 'surprise'."),
    (responses(said("tool")), "shape", "Invalid value: 'tool'."),
    (responses(said("user", [{"type": "text", "text": "x"}])), "shape", "Invalid value: 'text'."),
    (responses(said("user"), FUNCTION_CALL), "pairs", "No tool output found for function call call_1."),
    (responses(said("user"), OUTPUT), "pairs", "No tool call found for function call output with call_id call_1."),
    (responses(said("user"), FUNCTION_CALL, OUTPUT, OUTPUT), "pairs", "No tool call found for function call output"),
    (responses(said("user"), FUNCTION_CALL, said("user"), OUTPUT), "pairs", "No tool output found for function call"),
    (
        responses(said("user"), {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "forged"}),
        "reasoning",
        "could not be verified",
    ),
    (
        responses(said("user"), {"type": "reasoning", "id": "rs_1", "summary": []}, said("user")),
        "reasoning",
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ),
    (responses(said("user"), said("user")), "alternation", "two 'user' messages in a row"),
]


@pytest.mark.parametrize(("body", "rule", "text"), RESPONSES_CASES)
def test_responses_refuses(body: dict[str, Any], rule: str, text: str) -> None:
    with Simulator(strict()) as sim:
        response = post(sim, RESPONSES, body)
        assert response.status_code == 400
        assert text in message_of(response)
        assert [v.rule for v in sim.violations] == [rule]


def test_responses_pairs_by_id_wherever_they_stand_unless_told_otherwise() -> None:
    body = responses(said("user"), FUNCTION_CALL, said("user"), OUTPUT)
    with Simulator() as sim:
        assert post(sim, RESPONSES, body).status_code == 200


def test_responses_wants_a_message_back_with_its_reasoning() -> None:
    with Simulator(script=[Say("Hello.", thinking="Hm.")]) as sim:
        given = post(sim, RESPONSES, responses(said("user"))).json()["output"]
        whole = responses(said("user"), *given, said("user"))
        assert post(sim, RESPONSES, whole).status_code == 200
        refused = post(sim, RESPONSES, responses(said("user"), given[1], said("user")))
        assert "was provided without its required 'reasoning' item: 'rs_" in message_of(refused)


def native(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "claude-x", "max_tokens": 100, "messages": list(messages), **fields}


def use(call_id: str = "call_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "read", "input": {}}


def result(call_id: str = "call_1") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "x"}


def marked(text: str, ttl: str | None = None) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}}


TEXT = {"type": "text", "text": "x"}
MESSAGES_CASES = [
    ({"model": "c", "messages": [said("user")]}, "shape", "max_tokens: Field required"),
    (native(), "shape", "messages: at least one message is required"),
    (native(said("system")), "shape", 'messages: Unexpected role "system".'),
    (native(said("user", "")), "shape", "messages.0: all messages must have non-empty content"),
    (native(said("user", [{"type": "text", "text": ""}])), "shape", "text content blocks must be non-empty"),
    (native(said("user", surprise=1)), "shape", "messages.0.surprise: Extra inputs are not permitted"),
    (native(said("user"), surprise=1), "shape", "surprise: Extra inputs are not permitted"),
    (native(said("assistant")), "alternation", 'first message must use the "user" role'),
    (
        native(said("user"), said("user")),
        "alternation",
        'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row',
    ),
    (
        native(said("user"), said("assistant")),
        "prefill",
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    ),
    (
        native(said("user"), said("assistant", [use()]), said("user")),
        "pairs",
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: call_1. Each "
        "`tool_use` block must have a corresponding `tool_result` block in the next message.",
    ),
    (
        native(said("user"), said("assistant", [use()]), said("user", [TEXT, result()])),
        "pairs",
        "`tool_use` ids were found without `tool_result` blocks immediately after: call_1",
    ),
    (
        native(said("user"), said("assistant", [use()]), said("user", [result(), result("toolu_X")])),
        "pairs",
        "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: toolu_X. Each `tool_result` "
        "block must have a corresponding `tool_use` block in the previous message.",
    ),
    (
        native(said("user"), said("assistant", [use()]), said("user", [result(), result()])),
        "pairs",
        "each tool_use must have a single result",
    ),
    (native(said("user"), said("assistant", [use("a|b")]), said("user")), "shape", "tool_use.id: String should match"),
    (
        native(said("user"), said("assistant", [{**use(), "input": "x"}]), said("user", [result()])),
        "shape",
        "tool_use.input: Input should be a valid dictionary",
    ),
    (
        native(said("user", [marked("x") for _ in range(5)])),
        "marks",
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    (
        native(said("user", [marked("x"), marked("y", "1h")])),
        "marks",
        "a ttl='1h' cache_control block must not come after",
    ),
    (native(said("user", [marked("x", "2h")])), "marks", "cache_control.ttl"),
    (
        native(
            said("user"), said("assistant", [{"type": "thinking", "thinking": "x", "signature": "s"}]), said("user")
        ),
        "thinking",
        "Invalid `signature` in `thinking` block",
    ),
    (native(said("user"), thinking={"type": "enabled", "budget_tokens": 10}), "shape", "greater than or equal to 1024"),
]


@pytest.mark.parametrize(("body", "rule", "text"), MESSAGES_CASES)
def test_anthropic_messages_refuses(body: dict[str, Any], rule: str, text: str) -> None:
    with Simulator(strict()) as sim:
        response = post(sim, MESSAGES, body)
        assert response.status_code == 400
        assert response.json()["type"] == "error"
        assert text in message_of(response)
        assert [v.rule for v in sim.violations] == [rule]


def test_anthropic_merges_equal_roles_and_takes_a_prefill_where_it_is_allowed() -> None:
    with Simulator() as sim:
        parallel = (said("user"), said("assistant", [use("a"), use("b")]), said("user", [result("a")]))
        assert post(sim, MESSAGES, native(*parallel, said("user", [result("b")]))).status_code == 200
        assert post(sim, MESSAGES, native(said("user"), said("assistant", "I"))).status_code == 200


def test_thinking_beside_a_call_must_come_back_as_it_was() -> None:
    step = Say("", thinking="Deep.", calls=(Call("read", {}, "call_1"),))
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
    with Simulator(script=[step]) as sim:
        content = post(sim, MESSAGES, native(said("user"), **thinking)).json()["content"]
        after = said("user", [result()])
        whole = native(said("user"), said("assistant", content), after, **thinking)
        assert post(sim, MESSAGES, whole).status_code == 200
        refused = post(sim, MESSAGES, native(said("user"), said("assistant", content[1:]), after, **thinking))
        assert "blocks in the latest assistant message cannot be modified" in message_of(refused)
        changed = copy.deepcopy(content)
        changed[0]["thinking"] = "Shallow."
        refused = post(sim, MESSAGES, native(said("user"), said("assistant", changed), after, **thinking))
        assert "Invalid `signature`" in message_of(refused)


LONG = "x" * 400  # 100 tokens, and one for the role
SIZES = [
    (
        CHAT,
        chat(said("user", LONG)),
        "This model's maximum context length is 50 tokens. However, your messages resulted in 101 tokens. Please "
        "reduce the length of the messages.",
    ),
    (CHAT, chat(said("user"), max_tokens=49), "you requested 51 tokens (2 in the messages, 49 in the completion)."),
    (CHAT, chat(said("user"), max_tokens=99), "max_tokens is too large: 99. This model supports at most 60 completion"),
    (RESPONSES, responses(said("user", LONG)), "Your input exceeds the context window of this model."),
    (MESSAGES, native(said("user", LONG), max_tokens=1), "prompt is too long: 101 tokens > 50 maximum"),
    (MESSAGES, native(said("user"), max_tokens=49), "input length and `max_tokens` exceed context limit: 2 + 49 > 50"),
    (
        MESSAGES,
        native(said("user"), max_tokens=61),
        "max_tokens: 61 > 60, which is the maximum allowed number of output",
    ),
]


@pytest.mark.spec("G1")
@pytest.mark.parametrize(("path", "body", "text"), SIZES)
def test_what_does_not_fit_is_said_in_the_services_words_and_is_no_violation(
    path: str, body: dict[str, Any], text: str
) -> None:
    with Simulator(strict(window=50, max_output=60)) as sim:
        response = post(sim, path, body)
        assert response.status_code == 400
        assert text in message_of(response)
        assert sim.violations == []
        assert sim.billed == []


def test_a_prompt_of_exactly_the_window_fits_and_one_token_more_does_not() -> None:
    with Simulator(window=101) as sim:
        assert post(sim, CHAT, chat(said("user", LONG))).status_code == 200
        assert post(sim, CHAT, chat(said("user", LONG + "x"))).status_code == 400


def test_newest_models_stop_at_a_full_window_instead() -> None:
    with Simulator(window=50, sum_overflow="stop_reason", script=["y" * 400]) as sim:
        reply = post(sim, MESSAGES, native(said("user"), max_tokens=60)).json()
        assert reply["stop_reason"] == "model_context_window_exceeded"
        assert reply["usage"]["output_tokens"] == 48


def test_an_overflow_may_come_inside_a_responses_stream() -> None:
    with Simulator(window=50, overflows_in_stream=True) as sim:
        text = post(sim, RESPONSES, responses(said("user", LONG), stream=True)).text
        names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
        assert names == ["response.created", "response.in_progress", "response.failed"]
        assert '"code":"context_length_exceeded"' in text


def test_keys_models_headers_and_json_are_checked() -> None:
    with Simulator(api_key="right", models=("m",)) as sim:
        assert post(sim, CHAT, chat(said("user"))).status_code == 401
        sim.change(api_key="k")
        assert post(sim, CHAT, {**chat(said("user")), "model": "other"}).json()["error"]["code"] == "model_not_found"
        assert post(sim, CHAT, chat(said("user"))).status_code == 200
        assert sim.violations == []
        no_version = http().post(f"{sim.root_url}{MESSAGES}", json={"model": "m"}, headers={"x-api-key": "k"})
        assert "anthropic-version" in message_of(no_version)
        broken = http().post(f"{sim.root_url}{CHAT}", content=b"{", headers=HEADERS)
        assert "could not parse the JSON" in message_of(broken)


def test_the_defaults_are_todays_services() -> None:
    assert (Rules().needs_alternation, Rules().allows_prefill) == (False, True)
    with Simulator() as sim:
        assert post(sim, CHAT, chat(said("user"), said("user"))).status_code == 200


def test_reasoning_of_the_tool_loop_under_way_has_to_come_back_and_older_need_not() -> None:
    asking = {**ASKING, "tool_calls": [call("call_7")]}
    result = said("tool", tool_call_id="call_7")
    with Simulator(strict(), script=[Say("", thinking="Hm.", calls=(Call("read", {}, "call_7"),)), "a", "b"]) as sim:
        assert post(sim, CHAT, chat(said("user"))).status_code == 200
        refused = post(sim, CHAT, chat(said("user"), asking, result))
        assert "reasoning_content is missing in assistant tool call message at index 1" in message_of(refused)
        assert post(sim, CHAT, chat(said("user"), {**asking, "reasoning_content": "Hm."}, result)).status_code == 200
        over = chat(said("user"), asking, result, said("assistant"), said("user"))
        assert post(sim, CHAT, over).status_code == 200
        assert [v.rule for v in sim.violations] == ["reasoning"]


def test_too_many_images_are_a_limit_and_no_broken_rule() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    with Simulator(max_images=3) as sim:
        body = {"model": "m", "max_tokens": 9, "messages": [said("user", [image] * 4)]}
        assert message_of(post(sim, MESSAGES, body)) == "too many images and documents: 4 + 0 > 3"
        body["messages"] = [said("user", [image] * 3)]
        assert post(sim, MESSAGES, body).status_code == 200
        assert sim.violations == []
