"""A reply that never came to its end, and a call that failed for good: what is kept, and what the person reads."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from perdure.agent.turn import ConversationResult
from perdure.config.settings import Settings
from perdure.context.summary_input import transcribe
from perdure.context.task_state.reader import read_state
from perdure.core.events import CallFinished, Event, Notice, TextDelta
from perdure.core.messages import Message
from perdure.providers.types import ApiMode, Endpoint
from perdure.store.records import Span
from perdure.testing.simulator import Fail, Say
from support.agents import Bench, bench
from support.simulator import MODES


def _run_until_text(b: Bench, text: str, *, pieces: int = 3) -> ConversationResult:
    """Run a turn and interrupt it once a few pieces of its reply have arrived."""
    heard: list[str] = []
    several = threading.Event()

    def hear(event: object) -> None:
        if isinstance(event, TextDelta):
            heard.append(event.text)
            if len(heard) == pieces:
                several.set()

    stop = b.agent.events.listen(hear)
    threading.Thread(target=lambda: (several.wait(30), b.agent.interrupt()), daemon=True).start()
    result = b.agent.run_conversation(text)
    stop()
    return result


SLOW = Say("one two three four five six seven eight nine ten", chunk_chars=4, chunk_delay_s=0.15)


@pytest.mark.spec("J4")
@pytest.mark.parametrize("mode", MODES)
def test_what_was_written_before_an_interrupt_is_a_marked_message_that_the_model_reads_once(
    tmp_path: Path, mode: ApiMode
) -> None:
    with bench(tmp_path, SLOW, "Fine.", mode=mode) as b:
        result = _run_until_text(b, "count")
        assert result.outcome == "interrupted"
        asked, reply = (entry.message for entry in result.entries)
        assert (asked.role, reply.role, reply.cut_off) == ("user", "assistant", "interrupted")
        assert reply.text.startswith("one two")
        assert b.store.ledger.events(result.session_id, kind="partial_reply") == [], "one source"
        assert len(b.store.ledger.events(result.session_id, kind="turn_stopped")) == 1, "one stop, one event"
        assert b.agent.chat("again") == "Fine."
        assert b.sim.violations == []
        # The model reads the reply where it was, and once that it was stopped; the log does not have that note.
        sent = json.dumps(b.sim.requests[-1].body, ensure_ascii=False)
        assert sent.count("one two") == 1
        assert sent.count("stopped your previous reply") == 1
        assert "cut_off" not in sent
        stored = b.store.history(b.agent.session_id or "").entries
        assert not any("stopped your" in e.message.text for e in stored)


@pytest.mark.spec("J4", "E1")
def test_a_stopped_reply_is_searched_opened_exported_and_read_after_a_restart(tmp_path: Path) -> None:
    slow = Say("the walrus sleeps on Tuesdays and swims on Fridays", chunk_chars=8, chunk_delay_s=0.15)
    with bench(tmp_path, slow, "Fine.", "Fine again.") as b:
        session_id = _run_until_text(b, "tell me").session_id
        hits = b.store.search("walrus")
        assert [hit.address for hit in hits] == ["m:2"]
        opened = b.store.open("m:2", conversation_id=session_id).text
        assert "the walrus" in opened
        assert "[stopped here]" in opened
        exported = b.store.transfer.export_messages(session_id)
        assert [m["role"] for m in exported] == ["system", "user", "assistant"]
        assert Message.from_dict(exported[2]).cut_off == "interrupted"
        # Another process goes on with it: the model learns of the stop there, too.
        again = b.again(session_id=session_id)
        try:
            assert again.chat("go on") == "Fine."
        finally:
            again.close()
        sent = json.dumps(b.sim.requests[-1].body, ensure_ascii=False)
        assert "stopped your previous reply" in sent
        assert sent.count("the walrus") == 1


def test_the_prompt_after_a_stopped_reply_begins_with_the_one_before(tmp_path: Path) -> None:
    with bench(tmp_path, SLOW, "Fine.", "Good.") as b:
        _run_until_text(b, "count")
        b.agent.chat("again")
        b.agent.chat("and again")
        first, second, third = (request.body["messages"] for request in b.sim.requests)
        assert second[: len(first)] == first
        assert third[: len(second)] == second


def test_a_compaction_records_a_stopped_reply_and_leaves_its_request_open(tmp_path: Path) -> None:
    slow = Say("The walrus sleeps on ice floes, " * 4, chunk_chars=40, chunk_delay_s=0.15)
    answers = [f"Answer {n}. " + "word " * 600 for n in range(8)]
    with bench(tmp_path, "Hello.", "Hello again.", slow, *answers, window=16_000) as b:
        b.agent.chat("Hello.")
        b.agent.chat("Hello again.")
        session_id = _run_until_text(b, "Where does the walrus sleep?", pieces=2).session_id
        entries = b.store.history(session_id).entries
        for n in range(6):
            b.agent.chat(f"Question {n}?")
        b.agent.compress()
        after = b.store.history(b.agent.session_id or "").entries
    assert "The walrus sleeps on ice floes" in next(e.message.text for e in after if e.message.kind == "handoff")
    assert "cut off here" in "\n".join(transcribe(entries).blocks)
    assert [r.text for r in read_state(entries, {}).open_requests] == ["Where does the walrus sleep?"]


@pytest.mark.spec("J4", "A4")
def test_what_was_written_before_a_stream_broke_is_a_message_too(tmp_path: Path) -> None:
    with bench(tmp_path, Say("one two three four five six", chunk_chars=4, drop_after=4), "Fine.") as b:
        result = b.agent.run_conversation("count")
        reply = result.entries[-1].message
        assert (result.outcome, reply.cut_off) == ("failed", "transport")
        assert reply.text.startswith("one")
        events = b.store.timeline.events_between(result.session_id, Span(1, 2))
        assert [(seq, e.kind) for seq, e in events] == [(2, "turn_failed")]
        assert b.agent.chat("again") == "Fine."
        sent = json.dumps(b.sim.requests[-1].body, ensure_ascii=False)
        assert "cut off by an error of the service" in sent


def test_a_reply_that_another_attempt_wrote_whole_leaves_an_event_and_no_message(tmp_path: Path) -> None:
    broken = Say("one two three four five six", chunk_chars=4, drop_after=4)
    spare = Endpoint("custom", "", "chat_completions", "m-2")
    with bench(tmp_path, broken, "one two three four", fallbacks=(spare,)) as b:
        result = b.agent.run_conversation("count")
        assert result.final_response == "one two three four"
        assert [m["role"] for m in result.messages] == ["user", "assistant"]
        (event,) = b.store.ledger.events(result.session_id, kind="partial_reply")
        assert event.payload["why"] == "transport"


def test_a_turn_that_is_finished_later_has_its_cut_reply_written_again(tmp_path: Path) -> None:
    with bench(tmp_path, SLOW, "one two three.") as b:
        _run_until_text(b, "count")
        result = b.loop_thread.run(b.agent.afinish_turn())
        assert result.final_response == "one two three."
        assert b.sim.violations == []
        assert b.sim.requests[-1].body["messages"][-1]["role"] == "user"


@pytest.mark.parametrize("mode", MODES)
def test_a_reply_cut_at_the_output_limit_is_marked(tmp_path: Path, mode: ApiMode) -> None:
    settings = Settings.model_validate({"model": {"max_tokens": 8}})
    with bench(tmp_path, Say("word " * 100), mode=mode, settings=settings) as b:
        events: list[Event] = []
        stop = b.agent.events.listen(events.append)
        assert b.agent.run_conversation("go").outcome == "completed"
        stop()
        assert [e.finish for e in events if isinstance(e, CallFinished)] == ["length"]
        assert any("cut off at the output limit" in e.text for e in events if isinstance(e, Notice))


@pytest.mark.spec("J4")
def test_a_reply_that_came_whole_is_not_marked(tmp_path: Path) -> None:
    with bench(tmp_path, "Hello.") as b:
        b.agent.chat("hi")
        assert b.store.history(b.agent.session_id or "").entries[-1].message.cut_off is None
        assert b.store.ledger.events(b.agent.session_id or "", kind="partial_reply") == []


def test_a_connection_lost_in_the_middle_of_a_reply_says_that_the_reply_is_kept(tmp_path: Path) -> None:
    with bench(tmp_path, Say("one two three four five six", chunk_chars=4, drop_after=4), "five six.") as b:
        line = b.agent.run_conversation("count").error or ""
        assert "the connection was lost in the middle of the reply" in line
        assert "The reply so far is kept, and the model reads it: ask it to continue." in line
        assert "discarded" not in line
        assert "try again" not in line.lower()
        b.agent.chat("continue")
        assert any(m["role"] == "assistant" and "one" in m["content"] for m in b.sim.requests[-1].body["messages"])


@pytest.mark.parametrize(
    ("fail", "once"), [("openai_bad_key", "stores another key"), ("openai_rate_limit", "Try again")]
)
def test_the_line_names_the_place_and_advises_once(tmp_path: Path, fail: str, once: str) -> None:
    with bench(tmp_path, *[Fail(fail)] * 5) as b:
        line = b.agent.run_conversation("hi").error or ""
        assert line.startswith(b.sim.root_url.removeprefix("http://"))
        assert line.count(once) == 1
        assert line.endswith("Nothing of the conversation is lost.")
