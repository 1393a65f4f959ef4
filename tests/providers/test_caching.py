from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.errors import ConfigError
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user
from perdure.providers.codec import apply_cache_control, cache_ttl_for, caching_notice, supports_caching
from perdure.providers.registry import mode_module
from perdure.providers.routes import adapt_request
from perdure.providers.types import ApiMode, CacheTtl, Endpoint, ModelRequest
from support.wire_scripts import MODES

MARK = {"type": "ephemeral"}


def marks_in(value: Any) -> int:
    """How many marks stand anywhere in a body."""
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(marks_in(v) for v in value.values())
    return sum(marks_in(v) for v in value) if isinstance(value, list) else 0


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [unmarked(v) for v in value] if isinstance(value, list) else value


def chat(*roles: str) -> list[dict[str, Any]]:
    return [{"role": r, "content": f"{r} {i}"} for i, r in enumerate(roles)]


def marked_at(messages: list[dict[str, Any]]) -> list[int]:
    return [i for i, m in enumerate(messages) if marks_in(m)]


@pytest.mark.spec("L1")
def test_the_system_prompt_and_the_last_three_messages_are_marked() -> None:
    out = apply_cache_control(chat("system", *["user", "assistant"] * 5))
    assert marked_at(out) == [0, 8, 9, 10]
    assert out[10]["content"] == [{"type": "text", "text": "assistant 10", "cache_control": MARK}]
    assert marked_at(apply_cache_control(chat(*["user", "assistant"] * 5))) == [7, 8, 9]
    assert marked_at(apply_cache_control(chat("system", "user"))) == [0, 1]
    assert apply_cache_control([]) == []


@pytest.mark.spec("L1", "L3")
def test_an_hour_is_said_and_five_minutes_are_not() -> None:
    assert apply_cache_control(chat("user"), ttl="1h")[0]["content"][0]["cache_control"] == {**MARK, "ttl": "1h"}
    assert apply_cache_control(chat("user"), ttl="5m")[0]["content"][0]["cache_control"] == MARK


@pytest.mark.spec("L3")
@pytest.mark.parametrize("ttl", ["", "10m", "1H", "5 m", None, 5])
def test_any_other_lifetime_is_a_config_error_that_says_what_is_allowed(ttl: Any) -> None:
    with pytest.raises(ConfigError, match="5m, 1h"):
        apply_cache_control(chat("user"), ttl=ttl)


@pytest.mark.spec("L2")
def test_where_the_mark_stands_by_kind_of_content() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]
    messages = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
    ]
    out = apply_cache_control(messages, native_anthropic=True)
    assert "cache_control" not in out[0]["content"][0]
    assert out[0]["content"][1]["cache_control"] == MARK
    assert out[1] == {**messages[1], "cache_control": MARK}
    assert out[2] == {**messages[2], "cache_control": MARK}


@pytest.mark.spec("L2")
def test_a_message_that_cannot_carry_a_mark_hands_it_to_an_earlier_one() -> None:
    messages = chat("system", "user", "assistant", "user", "assistant", "tool", "tool")
    assert marked_at(apply_cache_control(messages)) == [0, 2, 3, 4]
    assert marked_at(apply_cache_control(messages, native_anthropic=True)) == [0, 3, 4, 6]
    odd = [*chat("user", "assistant", "user"), {"role": "assistant", "content": ["not a part"]}]
    assert marked_at(apply_cache_control(odd)) == [0, 1, 2]
    for blank in (" \n", [{"type": "text", "text": "  "}]):
        ending = [*chat("user", "assistant", "user"), {"role": "assistant", "content": blank}]
        assert marked_at(apply_cache_control(ending)) == [0, 1, 2]


@pytest.mark.spec("L2")
@pytest.mark.parametrize("native", [True, False])
def test_however_many_results_come_at_once_the_last_mark_of_the_call_before_is_kept(native: bool) -> None:
    before = chat("system", "user", "assistant", "user")
    last = marked_at(apply_cache_control(before, native_anthropic=native))[-1]
    after = [*before, *chat("assistant", *["tool"] * 9)]
    assert last in marked_at(apply_cache_control(after, native_anthropic=native))


_CONTENT = st.one_of(
    st.none(),
    st.text(max_size=5),
    st.lists(st.builds(lambda t: {"type": "text", "text": t, "cache_control": MARK}, st.text(max_size=3)), max_size=3),
)
_MESSAGE = st.builds(
    lambda role, content, is_marked: (
        {"role": role, "content": content} | ({"cache_control": MARK} if is_marked else {})
    ),
    st.sampled_from(["system", "user", "assistant", "tool"]),
    _CONTENT,
    st.booleans(),
)


@pytest.mark.spec("L1", "L6")
@settings(max_examples=150, deadline=None)
@given(messages=st.lists(_MESSAGE, max_size=12), native=st.booleans())
def test_never_more_than_four_marks_and_never_a_change_to_what_was_handed_in(
    messages: list[dict[str, Any]], native: bool
) -> None:
    before = copy.deepcopy(messages)
    out = apply_cache_control(messages, native_anthropic=native)
    assert messages == before
    assert marks_in(out) <= 4
    texts = [[p["text"] for p in m["content"]] if isinstance(m["content"], list) else m["content"] for m in out]
    for text, message in zip(texts, before, strict=True):
        content = message["content"]
        plain = [p["text"] for p in content] if isinstance(content, list) else content
        assert text in (plain, [plain])


@pytest.mark.spec("L1", "L5")
@pytest.mark.parametrize(
    ("provider", "model", "fits"),
    [
        ("anthropic", "claude-sonnet-5-5", True),
        ("openrouter", "anthropic/claude-opus-4.6", True),
        ("openrouter", "openai/gpt-5.5", False),
        ("litellm", "bedrock/us.anthropic.claude-sonnet-4-5-v1:0", True),
        ("openai", "claude-sonnet-5-5", False),
        ("custom", "claude-sonnet-5-5", False),
        ("anthropic", "claudette-1", False),
        ("nobody", "claude-sonnet-5-5", False),
    ],
)
def test_caching_is_on_where_model_and_provider_fit(provider: str, model: str, fits: bool) -> None:
    assert supports_caching(provider, model) is fits
    assert cache_ttl_for(provider, model, "1h") == ("1h" if fits else None)
    line = caching_notice(provider, model, "1h")
    assert (line is not None) is fits
    assert line is None or (provider in line and "1h" in line)


def history(turns: int) -> list[Entry]:
    """Turns of a question, two parallel calls, a single call, and an answer."""
    messages: list[Message] = []
    for t in range(turns):
        two = (ToolCall(f"a{t}", "f"), ToolCall(f"b{t}", "f"))
        messages += [user(f"question {t}"), assistant(None, two), tool_result(f"a{t}", "1"), tool_result(f"b{t}", "2")]
        messages += [
            assistant(f"looking {t}", (ToolCall(f"c{t}", "f"),)),
            tool_result(f"c{t}", "3"),
            assistant(f"done {t}"),
        ]
    return [Entry(i, m) for i, m in enumerate(messages)]


def calls_of(entries: list[Entry]) -> list[list[Entry]]:
    """The history as it stood at each call: wherever the model is to speak next."""
    ends = [i for i, e in enumerate(entries) if e.message.role == "assistant" and i]
    return [entries[:i] for i in ends]


def wire(mode: str, entries: list[Entry]) -> dict[str, Any]:
    request = ModelRequest("claude-sonnet-5-5", entries, system=("prompt", "note"), cache_ttl="5m")
    return json.loads(MODES[mode].build(request))


@pytest.mark.spec("L1", "L2")
@pytest.mark.parametrize("mode", ["anthropic_messages", "chat_completions"])
def test_every_call_marks_the_prompt_and_three_messages_and_keeps_the_previous_calls_last_mark(mode: str) -> None:
    last = None
    for entries in calls_of(history(4)):
        body = wire(mode, entries)
        messages = [m for m in body["messages"] if m["role"] != "system"]
        prompt = body["system"] if mode == "anthropic_messages" else body["messages"][0]["content"]
        assert [("cache_control" in b) for b in prompt] == [True, False]
        places = marked_at(messages)
        can = [i for i, m in enumerate(messages) if m["role"] != "tool"]
        assert places == can[-3:]
        assert marks_in(body) == 1 + len(places)
        assert last is None or last in places
        last = places[-1]


@pytest.mark.spec("L2")
def test_the_mark_of_joined_results_stands_on_the_last_of_them() -> None:
    entries = history(1)[:4]
    blocks = wire("anthropic_messages", entries)["messages"][2]["content"]
    assert [("cache_control" in b) for b in blocks] == [False, True]


@pytest.mark.spec("K2", "L2")
def test_a_marked_result_that_names_its_calls_second_id_keeps_the_first() -> None:
    call = ToolCall("call_1", "f", "{}", {"item_id": "fc_1"})
    entries = [Entry(0, user("?")), Entry(1, assistant(None, (call,))), Entry(2, tool_result("fc_1", "r"))]
    for _ in range(2):
        block = wire("anthropic_messages", entries)["messages"][2]["content"][0]
        assert (block["tool_use_id"], block["cache_control"]) == ("call_1", MARK)


@pytest.mark.spec("L4")
@pytest.mark.parametrize("mode", ["anthropic_messages", "chat_completions", "codex_responses"])
def test_the_prefix_is_identical_from_call_to_call_marks_aside(mode: str) -> None:
    before: dict[str, Any] | None = None
    for entries in calls_of(history(4)):
        body = unmarked(wire(mode, entries))
        key = "input" if mode == "codex_responses" else "messages"
        sent = body.pop(key)
        if before is not None:
            assert {k: v for k, v in before.items() if k != key} == body
            assert json.dumps(before[key]) == json.dumps(sent[: len(before[key])])
        before = {**body, key: sent}


@pytest.mark.spec("L4", "L6")
@pytest.mark.parametrize("mode", ["anthropic_messages", "chat_completions"])
def test_marks_change_nothing_that_is_kept(mode: str) -> None:
    entries = history(2)
    plain = ModelRequest("claude-sonnet-5-5", entries, system=("prompt",), cache_ttl=None)
    once = MODES[mode].build(plain)
    wire(mode, entries)
    assert MODES[mode].build(plain) == once
    assert marks_in(json.loads(once)) == 0


@pytest.mark.spec("L2")
def test_thinking_alone_carries_no_mark() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "S"}
    said = Message(
        role="assistant",
        content="x",
        kind="assistant",
        reasoning_details=(thought,),
        extra={"output_order": ["t0", "r0"]},
    )
    entries = [Entry(0, user("a")), Entry(1, assistant("b")), Entry(2, user("c")), Entry(3, said), Entry(4, user("d"))]
    assert marked_at(wire("anthropic_messages", entries)["messages"]) == [1, 2, 4]


# -- OpenAI -----------------------------------------------------------------------------------------------------------

OPENAI = "https://api.openai.com/v1"
BREAKPOINT = {"mode": "explicit"}


def openai_body(endpoint: Endpoint, cache_ttl: CacheTtl | None = "5m") -> dict[str, Any]:
    request = ModelRequest("m", [Entry(1, user("hello"))], system=("Prompt.", "Note."), cache_key="c_1")
    adapted = adapt_request(request, endpoint, cache_ttl=cache_ttl)
    body: dict[str, Any] = json.loads(mode_module(endpoint.api_mode).build(adapted))
    return body


@pytest.mark.parametrize(
    ("provider", "url", "mode", "has_key"),
    [
        ("openai", OPENAI, "chat_completions", True),
        ("openai-responses", OPENAI, "codex_responses", True),
        ("openai-codex", "https://chatgpt.com/backend-api/codex", "codex_responses", True),
        ("openai", "http://127.0.0.1:4000/v1", "chat_completions", False),
        ("groq", "https://api.groq.com/openai/v1", "chat_completions", False),
        ("custom", "https://proxy.example/v1", "chat_completions", False),
    ],
)
def test_a_conversation_has_a_cache_key_at_openai_and_nowhere_else(
    provider: str, url: str, mode: ApiMode, has_key: bool
) -> None:
    endpoint = Endpoint(provider, url, mode, "gpt-5.5")
    assert openai_body(endpoint).get("prompt_cache_key") == ("c_1" if has_key else None)
    assert "prompt_cache_key" not in openai_body(endpoint, cache_ttl=None), "a request sent once"


@pytest.mark.parametrize(
    ("model", "is_marked"),
    [
        *((model, True) for model in ("gpt-5.6", "gpt-5.6-mini", "gpt-5.10", "gpt-6")),
        *((model, False) for model in ("gpt-5.5", "gpt-5", "gpt-4o", "o5", "my-gpt-6")),
    ],
)
def test_the_system_prompt_ends_with_a_breakpoint_on_models_that_take_them(model: str, is_marked: bool) -> None:
    chat_body = openai_body(Endpoint("openai", OPENAI, "chat_completions", model))
    marked = [
        {"type": "text", "text": "Prompt.", "prompt_cache_breakpoint": BREAKPOINT},
        {"type": "text", "text": "Note."},
    ]
    assert chat_body["messages"][0]["content"] == (marked if is_marked else "Prompt.\n\nNote.")
    responses_body = openai_body(Endpoint("openai-responses", OPENAI, "codex_responses", model))
    if is_marked:
        first = responses_body["input"][0]
        assert (first["role"], first["content"][0]["prompt_cache_breakpoint"]) == ("developer", BREAKPOINT)
        assert "instructions" not in responses_body
    else:
        assert responses_body["instructions"] == "Prompt.\n\nNote."
        assert len(responses_body["input"]) == 1


def test_the_chatgpt_backend_gets_no_breakpoint() -> None:
    body = openai_body(Endpoint("openai-codex", "https://chatgpt.com/backend-api/codex", "codex_responses", "gpt-5.6"))
    assert body["instructions"] == "Prompt.\n\nNote."
