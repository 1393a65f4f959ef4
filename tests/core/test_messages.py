"""Messages survive the way in and out; whatever cannot is mended at the door or refused in plain words."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import InvalidMessage
from perdure.core.messages import (
    ROLES,
    SUMMARY_OPENINGS,
    Entry,
    ImagePart,
    Message,
    OtherPart,
    TextPart,
    ToolCall,
    canonical_json,
    clean,
    user,
)
from support.histories import JSON, message_dicts


@given(message_dicts())
def test_every_well_formed_dict_comes_back_as_it_was(raw: dict[str, object]) -> None:
    assert Message.from_dict(raw).to_dict() == raw


_ODD_ROLES = st.sampled_from(ROLES) | JSON


@given(
    st.dictionaries(st.sampled_from(["content", "tool_calls", "name", "reasoning", "x"]), JSON, max_size=5),
    _ODD_ROLES,
)
def test_odd_dicts_are_mended_or_refused_never_a_crash(raw: dict[str, object], role: object) -> None:
    raw = {**raw, "role": role}
    if role not in ROLES:
        with pytest.raises(InvalidMessage, match="role"):
            Message.from_dict(raw)
    else:
        assert json.dumps(Message.from_dict(raw).to_dict(), ensure_ascii=False).encode()


def test_an_unknown_role_names_the_allowed_ones() -> None:
    with pytest.raises(InvalidMessage, match="unknown role 'robot'; allowed: system, developer, user, assistant, tool"):
        Message.from_dict({"role": "robot", "content": "hi"})


@pytest.mark.parametrize("raw", [None, 7, ["role", "user"]])
def test_what_is_no_message_at_all_is_refused_by_its_type(raw: object) -> None:
    with pytest.raises(InvalidMessage, match=type(raw).__name__):
        Message.from_dict(raw)


def test_a_bare_string_is_a_user_message() -> None:
    assert Message.from_dict("hello") == user("hello")


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, ""), ("", ""), ([], ""), (b"caf\xc3\xa9", "café"), (42, "42"), (True, "true"), ({"a": 1}, '{"a":1}')],
)
def test_odd_content_becomes_readable_text(content: object, text: str) -> None:
    assert Message.from_dict({"role": "tool", "content": content, "tool_call_id": "c"}).text == text


@pytest.mark.parametrize("arguments", [{"path": "a.py"}, ["a"], 3, None])
def test_arguments_that_are_no_string_become_their_json_text(arguments: object) -> None:
    call = ToolCall.from_dict({"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}})
    assert isinstance(call.arguments, str)
    assert call.arguments == ("" if arguments is None else canonical_json(arguments))


def test_invalid_json_arguments_are_kept_word_for_word_and_parse_to_none() -> None:
    call = ToolCall("c", "f", '{"path": "a.py"')
    assert call.to_dict()["function"]["arguments"] == '{"path": "a.py"'
    assert call.parsed_arguments() is None
    assert ToolCall("c", "f", "").parsed_arguments() == {}
    assert ToolCall("c", "f", "[1]").parsed_arguments() is None


@given(st.text(st.characters()))
def test_no_lone_surrogate_gets_past_the_door(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert len(cleaned) <= len(text)
    if text.isascii():
        assert cleaned == text


def test_a_surrogate_pair_split_in_two_becomes_its_character() -> None:
    assert clean("a\ud83d\ude00b") == "a😀b"
    assert clean("a\ud83db") == "a�b"


def test_a_string_of_fifty_megabytes_passes() -> None:
    big = "x" * 50_000_000
    assert Message.from_dict({"role": "user", "content": big}).text is big


def test_parts_of_known_kinds_are_values_and_the_rest_is_carried_through() -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "…"}},
    ]
    message = Message.from_dict({"role": "user", "content": content})
    assert [type(p) for p in message.parts] == [TextPart, ImagePart, OtherPart]
    assert message.text == "look"


def test_a_call_is_known_by_both_of_its_ids() -> None:
    assert ToolCall("call_1|fc_2", "f").ids == {"call_1|fc_2", "call_1", "fc_2"}
    assert ToolCall("call_1", "f", extra={"item_id": "fc_9"}).ids == {"call_1", "fc_9"}


@pytest.mark.parametrize("opening", SUMMARY_OPENINGS)
def test_a_summary_of_older_turns_is_a_note_and_never_a_request_or_a_handoff(opening: str) -> None:
    text = f"{opening} …\n\n## Active Task\n> drop all tables"
    for role in ("user", "assistant"):
        for content in (text, [{"type": "text", "text": text}]):
            message = Message.from_dict({"role": role, "content": content})
            assert message.kind == "note"
            assert not message.is_request
    behind = Message.from_dict({"role": "user", "content": [text, "And now?"]})
    assert behind.is_request
    assert behind.typed_text == "And now?"
    assert Message.from_dict({"role": "tool", "content": text, "tool_call_id": "c"}).kind == "tool"
    assert user("hi").is_real_user


@pytest.mark.parametrize(
    "text",
    [
        "Here is a summary of the conversation to date:\n\nThe user wants the export in CSV.",
        "Here is a summary of the conversation so far:\nThe user wants the export in CSV.",
        "I spoke to you previously about a number of things.\nI asked you to drop the cache.",
        "<system>Previous context has been compacted. Here is the compaction output:</system>\nDrop the cache.",
        "[compaction summary] ## Goal\n- Drop the cache",
        "[Previous conversation summary]\nDrop the cache.",
    ],
)
def test_summaries_of_other_tools_are_recognised_by_their_first_words(text: str) -> None:
    message = Message.from_dict({"role": "user", "content": text})
    assert message.kind == "note"
    assert not message.is_request


@pytest.mark.parametrize(
    "text",
    ["Here is a summary of the conversation with the customer, translate it.", "I spoke to you previously about CSV."],
)
def test_a_request_that_mentions_a_conversation_is_no_summary(text: str) -> None:
    assert Message.from_dict({"role": "user", "content": text}).is_request


def test_messages_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        user("hi").content = "bye"  # type: ignore[misc]  # the point of the test


def test_an_entry_computes_each_thing_once() -> None:
    seen: list[Message] = []
    entry = Entry(1, user("hi"))
    for _ in range(3):
        assert entry.memo("length", lambda m: seen.append(m) or len(m.text)) == 2
    assert entry.memo("other", lambda m: m.role) == "user"
    assert seen == [entry.message]
