"""Limits a service states about one request: how many images, how much output, how many tokens for its rate tier."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.model_request import LEFT_OUT, count_images, surplus_images, without_images
from perdure.config.settings import Settings
from perdure.core.messages import Entry, ImagePart, Message
from perdure.testing.simulator import Call, Fail, Raw, Say
from perdure.testing.simulator.script import ScriptRequest
from perdure.tools.builtin.agent_tools import SessionSearch
from perdure.tools.tool import ToolContext, ToolReply, tool_from_function
from support.agents import bench
from support.long_histories import working_session

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}


def picture_message(count: int, text: str = "look") -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}, *[PICTURE] * count]}


def images_in(body: Any) -> int:
    return json.dumps(body).count('"image_url": {')


def refuse_images(most: int) -> Any:
    def answer(asked: ScriptRequest) -> Say | Fail:
        count = images_in(asked.body["messages"])
        if count <= most:
            return Say("I see them.")
        text = f"too many images and documents: {count} + 0 > {most}"
        return Fail(status=400, body={"type": "error", "error": {"type": "invalid_request_error", "message": text}})

    return answer


@pytest.mark.spec("G1", "G2", "G3")
def test_too_many_images_leave_the_request_and_not_the_window(tmp_path: Path) -> None:
    settings = Settings.model_validate({"context": {"max_images": None}})
    with bench(tmp_path, refuse_images(20), window=200_000, settings=settings) as b:
        outcomes = [b.agent.run_conversation(picture_message(6)).outcome for _ in range(8)]
        assert outcomes == ["completed"] * 8
        assert b.agent.gauge.window == 200_000
        assert b.models.learned == []
        assert len(b.sim.requests) == 9, "one refusal teaches it for the rest of the conversation"
        assert LEFT_OUT.format(address="m:1") in json.dumps(b.sim.requests[-1].body)
        kept = b.store.log.originals(b.agent.session_id or "")
        assert sum(images_in(e.message.to_dict()) for e in kept) == 48, "the history keeps every image"


@pytest.mark.spec("G2")
def test_where_no_number_is_stated_the_refusal_ends_the_turn_with_advice(tmp_path: Path) -> None:
    refused = Fail(status=400, body={"error": {"message": "Too many images in the request"}})
    with bench(tmp_path, refused, window=200_000) as b:
        result = b.agent.run_conversation(picture_message(3))
        assert result.outcome == "failed"
        assert len(b.sim.requests) == 1
        assert b.agent.gauge.window == 200_000


@pytest.mark.spec("F1")
def test_images_leave_in_steps_so_that_the_prompt_before_them_stays_the_same() -> None:
    entries = [Entry(i, Message.from_dict(picture_message(1, f"n{i}"))) for i in range(30)]
    dropped = [surplus_images(entries[:n], 10) for n in range(1, 31)]
    left = [n - sum(one.values()) for n, one in enumerate(dropped, 1)]
    assert max(left) == 10
    assert min(left[9:]) >= 5
    assert sum(a != b for a, b in pairwise(dropped)) == 4, "a prompt cache is broken once in five images, not at each"
    shorter = without_images(entries[0], 1)
    assert LEFT_OUT.format(address="m:0") in shorter.message.text
    assert without_images(entries[0], 1) is shorter


def test_a_turn_does_not_look_for_images_in_the_whole_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path, window=10_000_000) as b:
        history = [{"role": ("user", "assistant")[n % 2], "content": f"number {n}"} for n in range(400)]
        b.agent.run_conversation("begin", conversation_history=history)
        looked_at: list[int] = []

        def count(entry: Entry) -> int:
            looked_at.append(entry.seq)
            return count_images(entry)

        monkeypatch.setattr("perdure.agent.session.count_images", count)
        monkeypatch.setattr("perdure.agent.model_request.count_images", count)
        assert b.agent.run_conversation("go on").outcome == "completed"
        assert set(looked_at) == {403, 404}


@pytest.mark.spec("A6")
def test_images_that_are_left_out_are_not_counted(tmp_path: Path) -> None:
    with bench(tmp_path, refuse_images(6), window=200_000) as b:
        for _ in range(9):
            b.agent.run_conversation(picture_message(2))
        calls = [c for c in b.store.ledger.calls(b.agent.session_id or "") if not c.verdict]
        for call in calls[3:]:
            assert call.estimate_tokens == pytest.approx(call.usage.prompt_tokens, rel=0.15)


@pytest.mark.spec("G2")
def test_an_output_cap_is_found_once_and_used_from_then_on(tmp_path: Path) -> None:
    with bench(tmp_path, mode="anthropic_messages", model="claude-x", window=200_000, max_output=8_192) as b:
        for n in range(4):
            assert b.agent.run_conversation(f"question {n}").outcome == "completed"
        assert len(b.sim.requests) == 5
        assert [r.body["max_tokens"] for r in b.sim.requests[1:]] == [8_192] * 4
        other = b.again()
        assert other.run_conversation("another conversation").outcome == "completed"
        assert len(b.sim.requests) == 6


@pytest.mark.spec("G2")
def test_an_unstated_output_cap_is_remembered_once_a_lower_one_was_accepted(tmp_path: Path) -> None:
    def answer(asked: ScriptRequest) -> Say | Fail:
        if asked.body["max_tokens"] <= 1_000:
            return Say("fine")
        return Fail(status=400, body={"error": {"message": "max_tokens is too large"}})

    settings = Settings.model_validate({"model": {"max_tokens": 3_000}})
    with bench(tmp_path, answer, settings=settings) as b:
        for n in range(3):
            assert b.agent.run_conversation(f"question {n}").outcome == "completed"
        assert [r.body["max_tokens"] for r in b.sim.requests] == [3_000, 1_500, 750, 750, 750]


@pytest.mark.spec("G2", "G3")
def test_a_request_too_large_for_its_rate_tier_is_compacted_and_the_tier_is_not_learned(tmp_path: Path) -> None:
    limit = 12_000

    def answer(asked: ScriptRequest) -> Say | Fail:
        size = len(json.dumps(asked.body)) // 4
        if size <= limit:
            return Say("Done.")
        text = f"Request too large for gpt-4o on tokens per min (TPM): Limit {limit}, Requested {size}."
        return Fail(status=429, body={"error": {"message": text, "type": "tokens", "code": "rate_limit_exceeded"}})

    with bench(tmp_path, answer, window=200_000) as b:
        result = b.agent.run_conversation("And now?", conversation_history=working_session(24))
        assert result.outcome == "completed"
        assert len(b.sim.requests) == 2
        assert b.models.learned == []
        assert b.agent.gauge.window == limit


@pytest.mark.spec("A2", "H1")
@pytest.mark.parametrize("status", [400, 401, 429])
def test_a_refused_request_costs_nothing(tmp_path: Path, status: int) -> None:
    refused = Fail(status=status, body={"error": {"message": "no", "type": "invalid_request_error"}})
    with bench(tmp_path, refused, "Here I am.") as b:
        assert b.agent.run_conversation("one").outcome == "failed"
        assert b.agent.run_conversation("two").outcome == "completed"
        totals = b.store.ledger.totals(b.agent.session_id or "")
        assert (totals.unreported_calls, totals.unreported_estimate_tokens, totals.unpriced_calls) == (0, 0, 0)
        assert totals.usage == b.sim.billed[0]
        first, _ = b.store.ledger.calls(b.agent.session_id or "")
        assert first.verdict
        assert first.cost_usd == 0


@pytest.mark.spec("A2")
def test_a_stream_that_broke_off_may_have_been_billed(tmp_path: Path) -> None:
    with bench(tmp_path, Say("some words that end", drop_after=3)) as b:
        b.agent.run_conversation("one")
        assert b.store.ledger.totals(b.agent.session_id or "").unreported_calls == 1


@pytest.mark.spec("G2")
@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("chat_completions", {"max_tokens": 8_000}),
        ("codex_responses", {"max_tokens": 8_000}),
        ("anthropic_messages", {}),
    ],
)
def test_the_output_allowance_stays_within_the_room_the_prompt_leaves(
    tmp_path: Path, mode: Any, settings: dict[str, Any]
) -> None:
    with bench(tmp_path, mode=mode, window=8_000, settings=Settings.model_validate({"model": settings})) as b:
        for turn in range(3):
            assert b.agent.run_conversation(f"Question {turn}: " + "what about this? " * 40).outcome == "completed"
        assert [r.status for r in b.sim.requests] == [200] * 3


@pytest.mark.spec("G3")
def test_an_empty_reply_to_a_small_prompt_does_not_shrink_the_window(tmp_path: Path) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "length"}
    usage = {"prompt_tokens": 120, "completion_tokens": 0, "total_tokens": 120}
    empty = Raw(json.dumps({"id": "x", "choices": [choice], "usage": usage}).encode())
    with bench(tmp_path, empty, "fine", window=128_000) as b:
        b.agent.run_conversation("hi")
        assert b.agent.gauge.window == 128_000
        assert len(b.sim.requests) == 1


@pytest.mark.spec("F1")
def test_older_images_leave_the_view_by_address_and_can_be_opened_again(tmp_path: Path) -> None:
    settings = Settings.model_validate({"context": {"max_images": 4}})
    with bench(tmp_path, lambda asked: "I see.", window=200_000, settings=settings) as b:
        for n in range(6):
            b.agent.run_conversation(picture_message(1, f"n{n}"))
        sent = b.sim.requests[-1].body["messages"]
        assert images_in(sent) == 4
        assert LEFT_OUT.format(address="m:1") in json.dumps(sent[1])
        search = SessionSearch(b.store.search_index)
        context = ToolContext("call", conversation_id=b.agent.session_id or "")
        reply = search.session_search(context, "m:1")
        assert [part.to_dict() for part in reply.parts] == [picture_message(1, "n0")["content"][-1]]
        b.agent.run_conversation(picture_message(7))
        assert images_in(b.sim.requests[-1].body["messages"][-1]) == 7, "the newest message keeps all of its images"
        assert images_in(b.sim.requests[-1].body["messages"]) == 7


@pytest.mark.spec("F1")
@pytest.mark.parametrize("number_of_calls", [1, 2])
def test_images_of_results_are_accepted_by_a_service_that_requires_alternation(
    tmp_path: Path, number_of_calls: int
) -> None:
    def look() -> ToolReply:
        """Shows a picture."""
        return ToolReply("a picture", parts=(ImagePart("data:image/png;base64,AAAA"),))

    calls = Say(calls=tuple(Call("look", {}) for _ in range(number_of_calls)))
    with bench(tmp_path, calls, "I see.", "Go on.", window=200_000, tools=(tool_from_function(look),)) as b:
        for message in ("look", "and now?"):
            assert b.agent.run_conversation(message).error is None
            assert images_in(b.sim.requests[-1].body["messages"]) == number_of_calls
        assert b.sim.violations == []


@pytest.mark.spec("F1")
def test_the_images_of_an_older_message_are_limited_too(tmp_path: Path) -> None:
    settings = Settings.model_validate({"context": {"max_images": 4}})
    with bench(tmp_path, lambda asked: "I see.", window=200_000, settings=settings) as b:
        b.agent.run_conversation(picture_message(7))
        assert images_in(b.sim.requests[-1].body["messages"]) == 7
        b.agent.run_conversation("next")
        assert images_in(b.sim.requests[-1].body["messages"]) <= 4
