"""What of a request counts, and as what."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.errors import InvalidMessage
from perdure.core.messages import ROLES, Entry, Message, ToolCall, assistant, tool_result, user
from perdure.models.tokens import entry_figures, estimate_message, estimate_text, estimate_tokens, family_of, figures_of

PICTURE = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 400).decode()
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Reads a part of a file.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "offset": {"type": "integer"}}},
        },
    }
]


@pytest.mark.spec("B1")
def test_history_system_prompt_and_tools_all_count() -> None:
    history = [{"role": "user", "content": "Where is the config file read?"}]
    alone = estimate_tokens(history)
    with_system = estimate_tokens(history, system="You are a careful programmer. " * 20)
    with_all = estimate_tokens(history, system="You are a careful programmer. " * 20, tools=TOOLS)
    assert alone == pytest.approx(11, abs=3)
    assert with_system - alone > 100
    assert with_all - with_system == pytest.approx(estimate_text(json.dumps(TOOLS, separators=(",", ":"))), abs=3)


@pytest.mark.spec("B2")
def test_arguments_and_names_of_calls_count() -> None:
    arguments = json.dumps({"path": "src/perdure/models/tokens.py", "offset": 1200})
    plain = estimate_message(assistant("Let me look."))
    calling = estimate_message(assistant("Let me look.", (ToolCall("call_1", "read_file", arguments),)))
    assert calling - plain >= estimate_text(arguments)


@pytest.mark.spec("B2")
@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": PICTURE}},
        {"type": "image_url", "image_url": {"url": PICTURE, "detail": "high"}},
        {"type": "image_url", "image_url": PICTURE},
        {"type": "input_image", "image_url": PICTURE},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
        {"type": "file", "file": {"file_data": PICTURE}},
    ],
)
def test_an_image_costs_a_fixed_amount_whatever_its_bytes(part: dict[str, Any]) -> None:
    message = Message.from_dict({"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]})
    assert figures_of(message).images == 1
    without = estimate_message(
        Message.from_dict({"role": "user", "content": [{"type": "text", "text": "What is this?"}]})
    )
    assert estimate_message(message) - without == family_of(None).image_tokens


@pytest.mark.spec("B2")
def test_reasoning_is_kept_apart_and_ciphers_count_for_nothing() -> None:
    bare = figures_of(assistant("Done."))
    thinking = Message(role="assistant", content="Done.", reasoning="First I look at the file. " * 50, kind="assistant")
    assert figures_of(thinking).counts == bare.counts
    assert sum(figures_of(thinking).reasoning) > 0
    cipher = Message(
        role="assistant",
        content="Done.",
        kind="assistant",
        reasoning_details=(
            {"type": "reasoning.encrypted", "id": "rs_1", "data": PICTURE, "encrypted_content": PICTURE},
        ),
    )
    assert figures_of(cipher) == bare
    signed = Message(
        role="assistant",
        content="Done.",
        kind="assistant",
        reasoning_details=({"type": "thinking", "thinking": "I look.", "signature": PICTURE},),
    )
    family = family_of("claude-sonnet-4-5")
    assert 0 < family.text_tokens(figures_of(signed).reasoning) < 10
    assert estimate_message(thinking) == estimate_message(assistant("Done."))


@pytest.mark.spec("B2")
def test_a_part_of_an_unknown_kind_counts_its_text_only() -> None:
    odd = Message.from_dict(
        {"role": "user", "content": [{"type": "note", "body": ["some words here", {"data": "A" * 9_000}]}]}
    )
    assert 2 <= estimate_message(odd) <= 20


@pytest.mark.spec("B3")
def test_an_entry_is_measured_once() -> None:
    entry = Entry(1, user("hello there"))
    assert entry_figures(entry) is entry_figures(entry)


def test_dicts_strings_and_messages_come_to_the_same() -> None:
    text = "a question of some length, twice asked"
    assert (
        estimate_tokens([{"role": "user", "content": text}]) == estimate_tokens([user(text)]) == estimate_tokens([text])  # type: ignore[list-item]  # what people hand in
    )


@pytest.mark.parametrize(
    "content", [None, "", [], [None], 7, {"a": 1}, b"bytes", ["text", 3], [{"type": "text"}], "\ud800"]
)
def test_odd_content_is_measured_without_error(content: object) -> None:
    assert estimate_tokens([{"role": "user", "content": content}]) < 40


def test_an_unknown_role_is_refused_in_plain_words() -> None:
    with pytest.raises(InvalidMessage, match="allowed: system"):
        estimate_tokens([{"role": "narrator", "content": "once"}])


def test_fifty_megabytes_in_one_result_are_measured() -> None:
    result = tool_result("call_1", "line of output 123\n" * 2_760_000)
    assert estimate_message(result) == pytest.approx(2_760_000 * 5, rel=0.3)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.spec("B2")
@settings(max_examples=150)
@given(
    role=st.sampled_from(ROLES),
    content=json_values,
    calls=st.none()
    | json_values
    | st.lists(st.fixed_dictionaries({"id": json_values, "function": json_values}), max_size=2),
    rest=st.dictionaries(st.sampled_from(["reasoning", "reasoning_details", "name", "thinking", "x"]), json_values),
)
def test_no_message_however_odd_breaks_an_estimate(
    role: str, content: object, calls: object, rest: dict[str, Any]
) -> None:
    assert estimate_tokens([{**rest, "role": role, "content": content, "tool_calls": calls}]) >= 0


@given(st.lists(st.text(max_size=80), max_size=6))
def test_more_text_is_never_fewer_tokens(texts: list[str]) -> None:
    sizes = [estimate_tokens([user(t) for t in texts[:n]]) for n in range(len(texts) + 1)]
    assert sizes == sorted(sizes)
