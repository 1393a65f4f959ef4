"""What happened beside the words is kept: spills, how long tools took, model switches, notices; and at what cost."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.config.settings import Settings
from perdure.core.events import Event, ModelSwitched, Notice
from perdure.providers.routes import EndpointChain
from perdure.providers.types import Endpoint
from perdure.store.records import StoredEvent
from perdure.testing.simulator import Call, Fail, Say
from perdure.tools.output_limits import OutputLimiter
from perdure.tools.runtime import INTERRUPTED, ToolRuntime
from support.agents import Bench, bench


def talk(path: str) -> str:
    """Says too much."""
    return "\n".join(f"{path} line {n}" for n in range(3_000))


def nap(seconds: float) -> str:
    """Takes its time."""
    time.sleep(seconds)
    return "done"


def kept(b: Bench, kind: str) -> list[StoredEvent]:
    assert b.agent.session_id is not None
    return b.store.ledger.events(b.agent.session_id, kind=kind)


def with_outputs(b: Bench) -> None:
    """The bench keeps no outputs of its own: here they go to the store."""
    runtime = b.deps.tools
    runtime.outputs, runtime.output_limiter = b.store.outputs, OutputLimiter(b.store.outputs)
    assert isinstance(runtime, ToolRuntime)


@pytest.mark.spec("H2")
def test_a_spill_is_kept_with_its_tool_its_size_and_its_address(tmp_path: Path) -> None:
    script = (Say(calls=(Call("talk", {"path": "a.log"}, "c1"),)), "Seen.")
    with bench(tmp_path, *script, tools=[talk], window=16_000) as b:
        with_outputs(b)
        b.agent.chat("read it")
        (output,) = b.store.outputs.list(b.agent.session_id or "")
        (spill,) = kept(b, "spill")
        result = next(e for e in b.store.history(b.agent.session_id or "").entries if e.message.role == "tool")
    assert spill.payload == {"tool": "talk", "call": "c1", "address": output.address, "chars": output.chars}
    assert spill.created_at_ms == result.created_at_ms


def test_how_long_each_tool_of_a_batch_took_is_kept_with_the_results(tmp_path: Path) -> None:
    calls = (Call("nap", {"seconds": 0.15}, "slow"), Call("nap", {"seconds": 0.0}, "quick"))
    with bench(tmp_path, Say(calls=calls), "Done.", tools=[nap]) as b:
        b.agent.chat("sleep")
        (told,) = kept(b, "tools")
    seconds = told.payload["seconds"]
    assert set(seconds) == {"slow", "quick"}
    assert seconds["slow"] >= 0.15 > seconds["quick"] >= 0


def test_a_batch_that_was_cut_off_tells_only_of_what_finished(tmp_path: Path) -> None:
    calls = (Call("nap", {"seconds": 0.0}, "quick"), Call("nap", {"seconds": 30.0}, "endless"))
    with bench(tmp_path, Say(calls=calls), "Done.", tools=[nap]) as b:
        events: list[Event] = []
        stop = b.agent.events.listen(lambda e: (events.append(e), _interrupt_once_quick_is_done(b, e)))
        assert b.agent.run_conversation("sleep").outcome == "interrupted"
        stop()
        (told,) = kept(b, "tools")
        results = [
            e.message.text for e in b.store.history(b.agent.session_id or "").entries if e.message.role == "tool"
        ]
    assert set(told.payload["seconds"]) == {"quick"}
    assert results == ["done", INTERRUPTED]


def _interrupt_once_quick_is_done(b: Bench, event: Event) -> None:
    if type(event).__name__ == "ToolFinished":
        b.agent.interrupt()


@pytest.mark.spec("J4")
def test_a_switch_by_hand_and_one_by_need_are_kept_with_their_reason(tmp_path: Path) -> None:
    failing = Fail(status=429, body={"error": {"message": "Rate limit reached"}})
    spare = Endpoint("custom", "", "chat_completions", "m-2", api_key="k")
    with bench(tmp_path, "One.", failing, "Two.", "Three.", fallbacks=(spare,)) as b:
        b.agent.chat("first")
        b.agent.chat("second")
        b.agent.switch_model(EndpointChain((replace(b.agent.endpoint, model="m-3"),)))
        b.agent.chat("third")
        switches = [e.payload for e in kept(b, "model_switch")]
        recoveries = [e.payload["kind"] for e in kept(b, "recovery")]
    assert switches == [
        {"old": "m-1", "new": "m-2", "reason": "rate limit"},
        {"old": "m-2", "new": "m-3", "reason": "chosen"},
    ]
    assert recoveries == ["rate_limit"]


def test_a_switch_before_anything_was_said_is_told_and_kept_nowhere(tmp_path: Path) -> None:
    with bench(tmp_path, "One.") as b:
        heard: list[Event] = []
        stop = b.agent.events.listen(heard.append)
        b.agent.switch_model(EndpointChain((replace(b.agent.endpoint, model="m-3"),)))
        b.agent.chat("first")
        stop()
        assert ModelSwitched("m-1", "m-3", "chosen") in heard
        assert kept(b, "model_switch") == []


def test_a_notice_is_kept_as_it_was_told(tmp_path: Path) -> None:
    def forget(text: str) -> str:
        raise OSError("no index")

    with bench(tmp_path, "One.", recall=forget) as b:
        heard: list[Event] = []
        stop = b.agent.events.listen(heard.append)
        b.agent.chat("first")
        stop()
        (notice,) = kept(b, "notice")
    assert Notice(notice.payload["text"], notice.payload["level"]) in heard
    assert notice.payload == {"text": "Nothing was recalled: OSError: no index", "level": "warning"}


@pytest.mark.spec("C3", "E11")
def test_a_compaction_says_at_which_threshold_it_was_made(tmp_path: Path) -> None:
    settings = Settings.model_validate({"model": {"max_tokens": 500}})
    with bench(tmp_path, *["Answer. " * 60] * 40, window=4_000, settings=settings) as b:
        for n in range(30):
            b.agent.chat(f"question {n} " + "words " * 60)
            if kept(b, "compaction"):
                break
        b.agent.chat("one more")
        first = kept(b, "compaction")[0].payload
        calls = b.store.ledger.calls(b.agent.session_id or "")
    assert first["threshold"] == calls[-1].threshold_tokens
    assert first["prompt_before"] >= first["threshold"] > first["prompt_after"]
    after = next(c for c in calls if c.session_id != calls[0].session_id)
    assert first["prompt_after"] <= after.estimate_tokens < first["prompt_before"]


def test_events_cost_no_write_of_their_own(tmp_path: Path) -> None:
    """Two calls and four messages of a turn with tools: what is told about the tools is written with their results."""
    script = (Say(calls=(Call("talk", {"path": "a.log"}, "c1"),)), "Seen.")
    with bench(tmp_path, *script, tools=[talk], window=16_000) as b:
        with_outputs(b)
        b.agent.chat("read it")
        told = b.store.ledger.all_events(b.agent.session_id or "")
        results = [e for e in b.store.history(b.agent.session_id or "").entries if e.message.role == "tool"]
    assert {e.kind for e in told} == {"spill", "tools"}
    assert {e.created_at_ms for e in told} == {results[0].created_at_ms}


def test_a_note_that_cannot_be_kept_does_not_end_a_turn(tmp_path: Path) -> None:
    with bench(tmp_path, "Yes.") as b:
        b.agent.chat("hello")
        conversation = b.agent.open()
        b.store.close()
        heard: list[Event] = []
        stop = b.agent.events.listen(heard.append)
        conversation.emit(Notice("hm"))
        stop()
        assert conversation.live.has_pending, "it is tried again with the next write"
    assert heard == [Notice("hm")]


def test_a_turn_that_failed_leaves_its_reason_with_the_conversation(tmp_path: Path) -> None:
    refused = Fail(status=401, body={"error": {"message": "wrong key", "type": "authentication_error"}})
    with bench(tmp_path, refused, "Now it works.") as b:
        first = b.agent.run_conversation("hello")
        b.agent.chat("hello again")
        failures = kept(b, "turn_failed")
    assert first.outcome == "failed"
    assert [f.payload["reason"] for f in failures] == [first.error]
    assert "wrong key" in (first.error or "")


def test_how_each_call_ended_is_kept_with_the_results(tmp_path: Path) -> None:
    def breaks() -> str:
        """Never works."""
        raise ValueError("no")

    script = (
        Say(calls=(Call("nap", {"seconds": 0.0}, "good"), Call("breaks", {}, "bad"), Call("none", {}, "ugly"))),
        "x",
    )
    with bench(tmp_path, *script, tools=[nap, breaks]) as b:
        b.deps.tools.hooks.pre_tool_call.append(lambda call, _: "not now" if call.name == "nap" else None)
        b.agent.chat("go")
        (told,) = kept(b, "tools")
    assert told.payload["states"] == {"good": "refused", "bad": "failed", "ugly": "failed"}
    assert told.payload["exit_codes"] == {}


def test_a_notice_behind_the_last_reply_is_stored_when_the_turn_is_over(tmp_path: Path) -> None:
    with bench(tmp_path, Say("Half a sen", finish="length")) as b:
        b.agent.chat("tell me everything")
        notices = [e.payload["text"] for e in kept(b, "notice")]
    assert len(notices) == 1


@pytest.mark.parametrize("finish", ["content_filter", "refusal"])
def test_an_answer_that_the_model_declined_is_on_record(tmp_path: Path, finish: str) -> None:
    with bench(tmp_path, Say("I cannot help with that.", finish=finish), "Gladly.") as b:
        b.agent.chat("something bad")
        b.agent.chat("something good")
        (refused,) = kept(b, "model_refused")
    assert refused.payload["model"] == b.agent.endpoint.model


def test_a_turn_stopped_before_any_text_is_on_record(tmp_path: Path) -> None:
    started, is_over = threading.Event(), threading.Event()

    def waits() -> str:
        """Runs until it is stopped."""
        started.set()
        is_over.wait(30)
        return "late"

    with bench(tmp_path, Say(calls=(Call("waits", {}, "c1"),)), "Fine.", tools=[waits]) as b:
        threading.Thread(target=lambda: (started.wait(30), b.agent.interrupt()), daemon=True).start()
        assert b.agent.run_conversation("go").outcome == "interrupted"
        is_over.set()
        assert len(kept(b, "turn_stopped")) == 1
        b.agent.chat("again")
        assert len(kept(b, "turn_stopped")) == 1
