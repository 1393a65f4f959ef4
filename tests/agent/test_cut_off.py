"""A reply that never came to its end, and a call that failed for good: what is kept, and what the person reads."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from perdure.config.settings import Settings
from perdure.core.events import CallFinished, Event, Notice, TextDelta
from perdure.providers.types import ApiMode
from perdure.testing.simulator import Fail, Say
from support.agents import bench
from support.simulator import MODES


@pytest.mark.spec("J4")
@pytest.mark.parametrize("mode", MODES)
def test_what_was_said_before_an_interrupt_is_kept_as_an_event_and_not_in_the_history(
    tmp_path: Path, mode: ApiMode
) -> None:
    slow = Say("one two three four five six seven eight nine ten", chunk_chars=4, chunk_delay_s=0.15)
    with bench(tmp_path, slow, "Fine.", mode=mode) as b:
        heard: list[str] = []
        several = threading.Event()

        def hear(event: object) -> None:
            if isinstance(event, TextDelta):
                heard.append(event.text)
                if len(heard) == 3:
                    several.set()

        stop = b.agent.events.listen(hear)
        threading.Thread(target=lambda: (several.wait(10), b.agent.interrupt()), daemon=True).start()
        result = b.agent.run_conversation("count")
        stop()
        (kept,) = b.store.ledger.events(result.session_id, kind="partial_reply")
        assert result.outcome == "interrupted"
        assert [m["role"] for m in result.messages] == ["user"]
        assert kept.payload["text"].startswith("one two")
        assert kept.payload["why"] == "interrupted"
        assert b.store.ledger.events(result.session_id, kind="turn_stopped") == [], "one stop, one event"
        assert b.agent.chat("again") == "Fine."
        assert b.sim.violations == []
        # The model learns of the stop, once; the history and the log do not have it.
        sent = json.dumps(b.sim.requests[-1].body, ensure_ascii=False)
        assert "stopped your previous reply" in sent
        assert "one two" in sent
        stored = b.store.history(b.agent.session_id or "").entries
        assert not any("stopped your" in e.message.text for e in stored)


@pytest.mark.spec("J4", "A4")
def test_what_was_said_before_a_stream_broke_is_kept_too(tmp_path: Path) -> None:
    with bench(tmp_path, Say("one two three four five six", chunk_chars=4, drop_after=4)) as b:
        result = b.agent.run_conversation("count")
        (kept,) = b.store.ledger.events(result.session_id, kind="partial_reply")
        assert result.outcome == "failed"
        assert kept.payload["text"].startswith("one")
        assert kept.payload["why"] == "transport"


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
def test_a_reply_that_came_whole_leaves_no_such_event(tmp_path: Path) -> None:
    with bench(tmp_path, "Hello.") as b:
        b.agent.chat("hi")
        assert b.store.ledger.events(b.agent.session_id or "", kind="partial_reply") == []


@pytest.mark.parametrize(
    ("fail", "once"), [("openai_bad_key", "stores another key"), ("openai_rate_limit", "Try again")]
)
def test_the_line_names_the_place_and_advises_once(tmp_path: Path, fail: str, once: str) -> None:
    with bench(tmp_path, *[Fail(fail)] * 5) as b:
        line = b.agent.run_conversation("hi").error or ""
        assert line.startswith(b.sim.root_url.removeprefix("http://"))
        assert line.count(once) == 1
        assert line.endswith("Nothing of the conversation is lost.")
