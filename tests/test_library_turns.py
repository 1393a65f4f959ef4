"""What a program learns of its turns: failures, interrupts, streams, callbacks, warnings; copies of results."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perdure
from perdure import Agent
from perdure.core.events import Notice, TextDelta
from perdure.core.wording import describe_in_program
from perdure.testing.simulator import Call, Fail, Say, Simulator


def agent(sim: Simulator, folder: Path, **options: Any) -> Agent:
    options = {"tools": (), "settings": {}, "api_key": "k", **options}
    return Agent(model="m-1", base_url=sim.base_url, home=folder, store=folder / "perdure.db", **options)


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_failed_turn_tells_its_kind_and_its_cause_in_words_of_the_library(tmp_path: Path) -> None:
    with Simulator(script=[Fail("openai_bad_key")] * 3) as sim, agent(sim, tmp_path) as one:
        with pytest.raises(perdure.TurnFailed, match="api_key=") as caught:
            one.chat("hi")
        failure, cause = caught.value, caught.value.__cause__
        assert (failure.kind, failure.partial_text) == ("auth", "")
        assert failure.verdict is not None
        assert failure.verdict.status == 401
        assert isinstance(cause, perdure.ProviderError)
        assert cause.verdict is failure.verdict
        assert failure.result.error == str(failure)
        assert "perdure login" not in f"{failure} {cause}"
        assert isinstance(pickle.loads(pickle.dumps(cause)), perdure.ProviderError)


def test_an_interrupted_chat_raises_with_what_had_arrived(tmp_path: Path) -> None:
    slow = Say("one two three four five " * 20, chunk_delay_s=0.1, chunk_chars=10)
    with Simulator(script=[slow]) as sim, agent(sim, tmp_path) as one:
        stop = one.events.listen(lambda event: one.interrupt() if isinstance(event, TextDelta) else None)
        with pytest.raises(perdure.TurnFailed, match="interrupted") as caught:
            one.chat("go")
        stop()
    assert caught.value.kind == "interrupted"
    assert caught.value.partial_text.startswith("one two")
    assert caught.value.__cause__ is None


def look() -> str:
    """Look around."""
    return "nothing"


@pytest.mark.parametrize(
    ("reply", "kind", "outcome"),
    [
        (Say(""), "no_answer", "completed"),
        (Say(" \n"), "no_answer", "completed"),
        (Say("", thinking="hm"), "no_answer", "completed"),
        (Say("", finish="content_filter"), "content_filter", "completed"),
        (Say(calls=(Call("look"),)), "step_limit", "budget"),
    ],
)
def test_chat_raises_with_the_reason_where_the_model_gave_no_answer(
    tmp_path: Path, reply: Say, kind: str, outcome: str
) -> None:
    options: dict[str, Any] = {"settings": {"agent": {"max_turns": 2}}, "tools": [look]}
    with Simulator(script=lambda request: reply) as sim, agent(sim, tmp_path, **options) as one:
        with pytest.raises(perdure.TurnFailed) as caught:
            one.chat("Is it paid?")
        result = one.run_conversation("Is it paid?")
        finished = list(one.stream("Is it paid?"))[-1]
    assert caught.value.kind == caught.value.result.missing_answer == kind
    assert (result.outcome, result.missing_answer, result.error) == (outcome, kind, None)
    assert result.final_response, "a line for people"
    assert finished.missing_answer == kind  # type: ignore[attr-defined]


def test_what_the_model_sums_up_at_the_step_limit_or_says_before_a_filter_is_an_answer(tmp_path: Path) -> None:
    options: dict[str, Any] = {"settings": {"agent": {"max_turns": 1}}, "tools": [look]}
    script = [Say(calls=(Call("look"),)), "I looked once.", Say("It is p", finish="content_filter")]
    with Simulator(script=script) as sim, agent(sim, tmp_path, **options) as one:
        assert one.chat("Is it paid?") == "I looked once."
        assert one.chat("Is it paid?") == "It is p"
        assert one.chat("Is it paid?").startswith("Simulated")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A new conversation (/new) or a larger window is needed.", "A new conversation or a larger window is needed."),
        ("choose another model with /model.", "choose another model with .switch_model(name)."),
        ("no key for 'openai': run `perdure login openai`, set X", "no key for 'openai': pass api_key=, set X"),
        ("http://h/v1/models", "http://h/v1/models"),
    ],
)
def test_advice_for_the_terminal_is_reworded_for_a_program(text: str, expected: str) -> None:
    assert describe_in_program(text) == expected


class Raising(perdure.ContextEngine):
    name = "raising"

    def update_from_response(self, usage: Any) -> None:
        return

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False

    def compress(self, messages: Any, *, focus_topic: str | None = None, reason: Any = "threshold") -> Any:
        raise ValueError("boom")


@pytest.mark.spec("M1")
def test_an_engine_that_raises_at_an_overflow_is_named_with_its_error(tmp_path: Path) -> None:
    perdure.register_context_engine("raising", Raising)
    overflow = [Fail("openai_overflow")] * 3
    settings = {"context": {"engine": "raising"}}
    with Simulator(script=["One.", *overflow]) as sim, agent(sim, tmp_path, settings=settings) as one:
        one.chat("hi")
        with pytest.raises(perdure.TurnFailed, match="'raising' failed: ValueError: boom"):
            one.chat("and again")


class Exhausted(Raising):
    """An engine whose own iterator has no items left."""

    name = "exhausted"

    def compress(self, messages: Any, *, focus_topic: str | None = None, reason: Any = "threshold") -> Any:
        return next(iter(()))


@pytest.mark.spec("M1")
def test_an_engine_that_raises_stop_iteration_ends_the_turn_with_an_error(tmp_path: Path) -> None:
    perdure.register_context_engine("exhausted", Exhausted)
    overflow = [Fail("openai_overflow")] * 3
    settings = {"context": {"engine": "exhausted"}}
    with Simulator(script=["One.", *overflow]) as sim, agent(sim, tmp_path, settings=settings) as one:
        one.chat("hi")
        with pytest.raises(perdure.TurnFailed, match="'exhausted' failed: StopIteration"):
            asyncio.run(asyncio.wait_for(one.achat("and again"), 20))


def test_a_summarizer_without_items_left_leads_to_a_digest_at_once() -> None:
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"m{i} " + "word " * 100} for i in range(60)]
    start = time.monotonic()
    report = perdure.compress(messages, context_length=8_000, summarize=lambda prompt: next(iter(())))
    assert (report.outcome, time.monotonic() - start < 30) == ("digest", True)
    assert "StopIteration" in report.message


# -- what a conversation begins with ---------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["hey", b"hey", {"role": "user", "content": "x"}, 3])
def test_a_history_that_is_no_list_is_refused_before_anything_is_sent(tmp_path: Path, history: Any) -> None:
    with Simulator() as sim, agent(sim, tmp_path) as one:
        with pytest.raises(perdure.InvalidMessage, match="conversation_history is a list like"):
            one.run_conversation("hi", conversation_history=history)
        assert one.session_id is None
        assert not sim.requests


def test_a_history_that_is_not_the_stored_one_starts_a_conversation_and_says_so(tmp_path: Path) -> None:
    with Simulator() as sim:
        with agent(sim, tmp_path) as one:
            stored = one.run_conversation("hi")
        with agent(sim, tmp_path, session_id=stored.session_id) as one:
            lines: list[str] = []
            one.events.tap(lambda event: lines.append(event.text) if isinstance(event, Notice) else None)
            more = one.run_conversation("and?", conversation_history=iter(stored.messages))  # type: ignore[arg-type]
            assert (more.session_id, lines) == (stored.session_id, [])
            other = one.run_conversation("y", conversation_history=[{"role": "user", "content": "another"}])
            assert other.conversation_id != stored.conversation_id
    assert [line for line in lines if f"stored in {stored.session_id}" in line and other.session_id in line]


def test_a_system_prompt_replaces_that_of_a_resumed_conversation_for_this_agent(tmp_path: Path) -> None:
    with Simulator() as sim:
        with agent(sim, tmp_path, system_prompt="Answer in English.") as one:
            one.chat("hi")
            session_id = one.session_id
        with agent(sim, tmp_path, system_prompt="Answer in German.", session_id=session_id) as one:
            one.chat("hi")
            one.run_conversation("hi", system_message="Answer in French.")
            one.chat("hi")
        with agent(sim, tmp_path, session_id=session_id) as one:
            one.chat("hi")
        prompts = [request.body["messages"][0]["content"] for request in sim.requests]
    languages = ["English", "German", "French", "German", "English"]
    assert prompts == [f"Answer in {language}." for language in languages]


# -- set-up ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("M1")
def test_an_engine_that_does_not_exist_is_reported_to_a_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[str] = []
    options: dict[str, Any] = {
        "settings": {"context": {"engine": "lcmm"}},
        "callbacks": {"status_callback": lines.append},
    }
    caplog.set_level(logging.WARNING, "perdure")
    with Simulator(script=["One.", "Two."]) as sim, agent(sim, tmp_path, **options) as one:
        notices = [e.text for e in one.stream("hi") if isinstance(e, Notice)]
        assert not [e for e in one.stream("again") if isinstance(e, Notice)], "once is enough"
    assert [line for line in lines if "'lcmm' not found" in line]
    assert "'lcmm' not found" in notices[0]
    assert "'lcmm' not found" in caplog.text


def test_tools_that_a_model_cannot_be_offered_are_reported_once(tmp_path: Path, monkeypatch: Any) -> None:
    def weather(city: str) -> str:
        """The weather in a city."""
        return "rain"

    with Simulator(script=["One.", "Two."]) as sim, agent(sim, tmp_path, tools=[weather]) as one:
        monkeypatch.setattr(type(one.deps.models), "takes_tools", lambda self, endpoint: False)
        notices = [e.text for text in ("hi", "again") for e in one.stream(text) if isinstance(e, Notice)]
    assert [text for text in notices if "m-1 cannot call tools" in text] == notices[:1]


# -- streams and callbacks -------------------------------------------------------------------------------------------


def test_a_stream_runs_its_turn_once_however_often_it_is_read(tmp_path: Path) -> None:
    with Simulator(script=["One.", "Two."]) as sim, agent(sim, tmp_path) as one:
        events = one.stream("book the flight")
        assert list(events)
        assert list(events) == []
        assert len(sim.requests) == 1
        again = one.stream("and a hotel")
        first = next(again)
        assert [first, *again][-1].final_response == "Two."  # type: ignore[attr-defined]


def test_a_callback_may_start_the_next_turn_without_a_wait(tmp_path: Path) -> None:
    texts: list[str] = []
    answers: list[tuple[str, float]] = []

    def after_turn(text: str) -> None:
        texts.append(text)
        if len(texts) == 1:
            start = time.monotonic()
            answers.append((one.chat("and the summary?"), time.monotonic() - start))

    options = {"callbacks": {"step_callback": after_turn}}
    with Simulator(script=["One.", "Two."]) as sim, agent(sim, tmp_path, **options) as one:
        one.chat("go")
    ((answer, seconds),) = answers
    assert answer == "Two."
    assert seconds < 3


def test_an_async_callback_is_awaited(tmp_path: Path) -> None:
    pieces: list[str] = []

    async def on_text(text: str) -> None:
        pieces.append(text)

    options = {"callbacks": {"stream_delta_callback": on_text}}
    with Simulator(script=["hello"]) as sim, agent(sim, tmp_path, **options) as one:
        one.chat("hi")
    assert "".join(pieces) == "hello"


# -- results ---------------------------------------------------------------------------------------------------------


def test_results_can_be_copied_pickled_and_written_as_json(tmp_path: Path) -> None:
    def look(path: str) -> str:
        """Look at a file."""
        return "empty"

    script = [Say(calls=(Call("look", {"path": "a.py"}),)), "One.", "Two."]
    with Simulator(script=script) as sim, agent(sim, tmp_path, tools=[look]) as one:
        one.chat("hi")
        result = one.run_conversation("again")
        report = one.compress()
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"m{i} " + "word " * 100} for i in range(60)]
    for value in (result, report, perdure.compress(messages, context_length=8_000), result.usage):
        for copied in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert copied.to_dict() == value.to_dict()
        assert json.loads(json.dumps(value.to_dict())).keys() == dict(value).keys()


# -- usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("B6")
@pytest.mark.parametrize(
    "usage",
    [
        SimpleNamespace(prompt_tokens=7_000, completion_tokens=5),
        SimpleNamespace(input_tokens=200, cache_read_input_tokens=6_800, cache_creation_input_tokens=None),
        {"input_tokens": 7_000, "output_tokens": 5},
    ],
)
def test_a_compressor_takes_the_usage_object_of_an_sdk(usage: Any) -> None:
    compressor = perdure.ContextCompressor(context_length=8_000)
    compressor.update_from_response(usage)
    assert compressor.should_compress()


def test_no_thread_of_a_callback_outlives_its_turn(tmp_path: Path) -> None:
    options = {"callbacks": {"step_callback": lambda text: None}}
    with Simulator(script=["One."]) as sim, agent(sim, tmp_path, **options) as one:
        one.chat("hi")
    assert not [t for t in threading.enumerate() if t.name == "perdure-events"]
