"""What a caller's list of plain dicts looks like after a compaction: speakers, keys, open calls, system messages."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure.context.handoff import HANDOFF_FIRST_LINE
from perdure.core import rules
from perdure.core.messages import Message

Dicts = list[dict[str, Any]]


def dialogue(turns: int = 40) -> Dicts:
    messages: Dicts = [{"role": "system", "content": "A bot."}]
    for i in range(turns):
        messages.append({"role": "user", "content": f"question {i} " + "word " * 80})
        messages.append({"role": "assistant", "content": f"answer {i} " + "word " * 80})
    return messages


def compact(messages: Dicts, **options: Any) -> Dicts:
    report = perdure.compress(messages, context_length=20_000, **options)
    assert report.outcome == "digest"
    return report.messages


@pytest.mark.spec("K1", "D8")
@pytest.mark.parametrize("ask", [perdure.compress, perdure.compress_if_needed])
def test_a_list_that_is_not_compacted_comes_back_as_it_was(ask: Any) -> None:
    messages = [
        {"role": "user", "name": "alice", "content": "Keep the price.", "id": 1},
        {"role": "user", "name": "bob", "content": "Raise it.", "id": 2},
        {"role": "system", "content": "French only."},
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "tool", "tool_call_id": "gone", "content": "12"},
    ]
    report = ask(messages, context_length=20_000)
    assert report.outcome == "nothing_to_do"
    assert report.messages == messages
    assert report.notices == ()


@pytest.mark.spec("K1")
def test_two_speakers_in_a_row_stay_two_speakers() -> None:
    alice = {"role": "user", "name": "alice", "content": "Please keep the old price.", "id": "m-901"}
    bob = {"role": "user", "name": "bob", "content": "No, raise it to 40.", "id": "m-902"}
    last = compact([*dialogue(), alice, bob])[-1]
    assert [p["text"] for p in last["content"]] == ["alice: Please keep the old price.", "bob: No, raise it to 40."]
    assert last.keys() == {"role", "content"}, "no key of one stands on the words of the other"


@pytest.mark.spec("K1")
def test_a_system_message_among_the_last_is_a_note_and_lends_its_keys_to_nobody() -> None:
    switch = {"role": "system", "content": "Answer in French.", "origin": "policy"}
    *_, note, _reply = compact([*dialogue(), switch, {"role": "assistant", "content": "oui"}])
    assert note == {"role": "user", "content": "[System note] Answer in French.", "origin": "policy"}
    last = compact([*dialogue(), switch, {"role": "user", "content": "ready?"}])[-1]
    assert [p["text"] for p in last["content"]] == ["[System note] Answer in French.", "ready?"]
    assert "origin" not in last


@pytest.mark.spec("D2", "D4")
@pytest.mark.parametrize("window", [16_000, 20_000])
def test_the_newest_steps_of_a_model_that_speaks_alone_are_kept_word_for_word(window: int) -> None:
    steps = [f"Step {i}: " + f"module_{i} needs a longer lease for each worker. " * 30 for i in range(40)]
    messages = [{"role": "user", "content": "Port it."}, *({"role": "assistant", "content": s} for s in steps)]
    report = perdure.compress_if_needed(messages, context_length=window)
    assert report.outcome == "digest"
    texts = [p["text"] for m in report.messages if isinstance(m["content"], list) for p in m["content"]]
    assert steps[-3:] == texts[-3:]
    assert rules.violations([Message.from_dict(m) for m in report.messages]) == []


@pytest.mark.spec("D2")
def test_a_list_of_user_messages_is_compacted() -> None:
    messages = [{"role": "user", "content": f"event {i} " + "word " * 300} for i in range(40)]
    report = perdure.compress_if_needed(messages, context_length=8_000)
    assert report.outcome == "digest"
    assert report.after_tokens < 4_000


@pytest.mark.spec("D8")
def test_a_list_that_cannot_be_made_to_fit_is_told_why() -> None:
    messages = [{"role": "user", "content": "word " * 9_000}]
    report = perdure.compress_if_needed(messages, context_length=8_000)
    assert report.outcome == "nothing_to_do"
    assert report.messages == messages
    assert "the window has 8,000" in report.message


@pytest.mark.spec("K2")
def test_a_call_at_the_very_end_stays_open_for_the_result_of_the_caller() -> None:
    asking = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_9", "type": "function", "function": {"name": "tests", "arguments": "{}"}}],
    }
    messages = compact([*dialogue(), {"role": "user", "content": "run the tests"}, asking])
    assert messages[-1] is asking
    messages.append({"role": "tool", "tool_call_id": "call_9", "content": "212 passed"})
    assert rules.violations([Message.from_dict(m) for m in messages]) == []


@pytest.mark.spec("K2")
def test_a_result_without_a_call_is_reported() -> None:
    orphan = {"role": "tool", "tool_call_id": "call_7", "content": "212 passed"}
    report = perdure.compress([*dialogue(), orphan], context_length=20_000)
    assert report.notices == ("1 tool result was left out ('call_7'): no call in the list asks for it.",)


@pytest.mark.spec("D6")
def test_the_handoff_is_put_where_it_need_not_be_merged() -> None:
    messages: Dicts = [{"role": "system", "content": "A bot."}]
    for i in range(40):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages += [
            {"role": "user", "content": f"what is in file_{i}.py?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{i}", "content": f"def f{i}(): pass\n" * 30},
            {"role": "assistant", "content": f"It defines f{i}.", "id": f"msg_{i}"},
        ]
    for given in (messages, messages[:-1], messages[:-2], messages[:-3]):
        compacted = compact(given)
        assert all(isinstance(m["content"], str | None) for m in compacted), "nothing was merged"
        read = [Message.from_dict(m) for m in compacted]
        assert rules.repair_open(read) == read


@pytest.mark.spec("D6")
def test_a_message_that_the_handoff_is_merged_with_lends_it_no_keys() -> None:
    request = {"role": "user", "name": "ann", "content": "Port the parser.", "id": "m-1"}
    steps = [{"role": "assistant", "content": f"module_{i}: " + "the lease is too short. " * 40} for i in range(40)]
    first = compact([request, *steps])[0]
    assert first["content"][0]["text"].startswith(HANDOFF_FIRST_LINE)
    assert first["content"][1]["text"] == "ann: Port the parser."
    assert first.keys() == {"role", "content"}
